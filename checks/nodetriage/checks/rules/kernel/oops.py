"""Oopses, structures of the kernel that something wrote over, NMIs and panics.

Source: arch/*/kernel/traps.c and fault.c, lib/bug.c, mm/, lib/list_debug.c, arch/x86/kernel/nmi.c, kernel/panic.c. A
program's own protection fault begins with "traps:" or with its name, and is not the kernel's. Structures that were
written over are the work of a driver as often as of memory: no line says which.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_X86 = "arch/x86/kernel/dumpstack.c:__die_header"
_USERS = (
    "python3[4711]: segfault at 7f1c00000008 ip 00007f1c2a4b1c44 sp 00007ffd1b2a3c40 error 4 in libtorch.so[7f+40]",
    "traps: python3[4711] general protection fault ip:7f1c2a4b1c44 sp:7ffd1b2a3c40 error:0 in libc.so.6[7f+19]",
    "traps: train[4711] trap invalid opcode ip:55d0c2a1b0c4 sp:7ffd1b2a3c40 error:0 in train[55d0c1e00000+2000000]",
)


def _oops(name: str, text: str, source: str, *examples: str, never: tuple[str, ...] = ()) -> KernelRule:
    return KernelRule(
        f"oops.{name}", text, "kernel_oops", Severity.MAJOR, examples, "kernel", state="lasting", source=source,
        never=never,
    )  # fmt: skip


def _corrupt(name: str, text: str, severity: Severity, source: str, *examples: str) -> KernelRule:
    return KernelRule(f"mm.{name}", text, "kernel_memory_corrupted", severity, examples, "kernel", source=source)


RULES = KernelRules((
    _oops(
        "page_fault", r"BUG: (?:unable to handle|kernel NULL pointer)", "arch/x86/mm/fault.c",
        "BUG: unable to handle page fault for address: ffffb5a2c0c01000",
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
    ),
    _oops("bug", r"kernel BUG at [\w./-]{4,120}:\d{1,6}!", "lib/bug.c:__report_bug", "kernel BUG at mm/slub.c:448!"),
    _oops(
        "code", r"(?:Oops: |Oops: Oops: )[0-9a-f]{4} \[#\d{1,5}\] (?:PREEMPT|SMP)", _X86,
        "Oops: 0002 [#1] SMP NOPTI", "Oops: Oops: 0002 [#1] PREEMPT SMP",
    ),
    _oops(
        "protection", r"(?:Oops: |)general protection fault(?:, |: )", _X86,
        "general protection fault, probably for non-canonical address 0xdead000000000122: 0000 [#1] PREEMPT SMP NOPTI",
        "Oops: general protection fault, probably for non-canonical address 0xdead000000000122: 0000 [#1] SMP",
        "general protection fault: 0000 [#1] SMP NOPTI", never=_USERS,
    ),
    _oops(
        "trap",
        r"(?:Oops: |)(?:invalid opcode|divide error|stack segment|segment not present|invalid TSS|alignment check"
        r"|control protection|double fault|bounds|coprocessor segment overrun): [0-9a-f]{4} \[#\d{1,5}\] (?:PREEMPT|SMP)",
        _X86, "invalid opcode: 0000 [#1] PREEMPT SMP NOPTI", "divide error: 0000 [#1] PREEMPT SMP NOPTI",
        "Oops: invalid opcode: 0000 [#1] PREEMPT SMP NOPTI", never=_USERS,
    ),
    _oops(
        "stack", r"BUG: (?:TASK|IRQ|SOFTIRQ|ENTRY|NMI|#DF|#DB|#MC|#VC|EXCEPTION) ?\w{0,8} stack guard page was hit at",
        "arch/x86/kernel/traps.c:handle_stack_overflow",
        "BUG: TASK stack guard page was hit at 00000000f1f7a2c9 (stack is 000000001b2b7f2a..00000000f3b2a8d1)",
    ),
    _oops(
        "arm", r"Internal error: (?:Oops|undefined instruction|SP/PC alignment|level|BRK|ptrace BRK|FPAC|GCS|BTI)",
        "arch/arm64/kernel/traps.c:__die", "Internal error: Oops - BUG: 00000000f2000800 [#1] SMP",
    ),
    _oops(
        "arm.fault", r"Unable to handle kernel (?:NULL pointer|paging request|read|write|execute|access|unaligned)",
        "arch/arm64/mm/fault.c:die_kernel_fault",
        "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008",
        "Unable to handle kernel paging request at virtual address ffff80008a2c1000",
    ),
    _oops(
        "power", r"Oops: (?:Kernel access of bad area|Exception in kernel mode|Weird page fault|Bad kernel stack), sig: ",
        "arch/powerpc/kernel/traps.c:__die", "Oops: Kernel access of bad area, sig: 11 [#1]",
    ),
    KernelRule(
        "oops.atomic", r"BUG: (?:scheduling while atomic|sleeping function called from invalid context)",
        "kernel_bug", Severity.WARNING,
        (
            "BUG: scheduling while atomic: swapper/12/0/0x00000002",
            "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:585",
        ),
        "kernel", source="kernel/sched/core.c:__schedule_bug",
    ),
    KernelRule(
        "mm.refcount", r"refcount_t: (?:underflow|saturated|addition|decrement)[;\w ]{1,40}", "kernel_bug",
        Severity.WARNING, ("refcount_t: underflow; use-after-free.",), "kernel", source="lib/refcount.c",
    ),
    _corrupt(
        "bad_page", r"BUG: Bad page (?:state|map) in process", Severity.MAJOR, "mm/page_alloc.c:bad_page",
        "BUG: Bad page state in process python3  pfn:1a2b3c",
        "BUG: Bad page map in process python3  pte:8000001a2b3c40e7 pmd:1a2b3c067",
    ),
    _corrupt(
        "bad_page.suppressed", r"BUG: Bad page (?:state|map): \d+ messages suppressed", Severity.WARNING,
        "mm/page_alloc.c:bad_page", "BUG: Bad page state: 12 messages suppressed",
    ),
    _corrupt(
        "rss", r"BUG: (?:Bad rss-counter state mm|non-zero pgtables_bytes on freeing mm):", Severity.WARNING,
        "kernel/fork.c:check_mm", "BUG: Bad rss-counter state mm:00000000a1b2c3d4 type:MM_ANONPAGES val:1",
        "BUG: Bad rss-counter state mm:00000000b1b6e5d4 idx:1 val:512",
        "BUG: non-zero pgtables_bytes on freeing mm: 4096",
    ),
    _corrupt(
        "bad_table", r"(?:mm|arch|include|fs)/[\w./-]{4,60}:\d{1,6}: bad (?:pmd|pud|p4d|pgd|pte) [0-9a-f]{8,16}\(",
        Severity.MAJOR, "mm/pgtable-generic.c", "mm/pgtable-generic.c:53: bad pmd 00000000c1d2e3f4(8000001a2b3c40e7)",
        "mm/memory.c:456: bad pmd 000000008f1d2f10(80000004e8c000e7)",
    ),
    _corrupt(
        "slab", r"BUG [\w:-]{4,60} \((?:Tainted: |Not tainted\))", Severity.MAJOR, "mm/slub.c:__slab_bug",
        "BUG kmalloc-512 (Tainted: P           OE     ): Freepointer corrupt",
        "BUG kmalloc-512 (Not tainted): Poison overwritten",
    ),
    _corrupt(
        "list", r"list_(?:del|add) corruption[.,] ", Severity.MAJOR, "lib/list_debug.c",
        "list_del corruption. prev->next should be ffff888112345678, but was ffff888112345679. (prev=ffff888112345600)",
        "list_del corruption, ffff888112345678->next is LIST_POISON1 (dead000000000100)",
    ),
    KernelRule(
        "nmi.error", r"NMI: (?:IOCK error \(debug interrupt\?\)|PCI system error \(SERR\)|Not continuing)",
        "kernel_nmi", Severity.MAJOR,
        (
            "NMI: IOCK error (debug interrupt?) for reason 60 on CPU 0.",
            "NMI: PCI system error (SERR) for reason a1 on CPU 0.",
        ),
        "kernel", source="arch/x86/kernel/nmi.c",
    ),
    KernelRule(
        "nmi.unknown", r"Uhhuh\. NMI received for unknown reason ", "kernel_nmi", Severity.WARNING,
        ("Uhhuh. NMI received for unknown reason 3d on CPU 0.",), "kernel",
        source="arch/x86/kernel/nmi.c:unknown_nmi_error",
    ),
    KernelRule(
        "panic", r"(?:---\[ end )?Kernel panic - not syncing: ", "kernel_panic", Severity.CRITICAL,
        (
            "Kernel panic - not syncing: Fatal exception in interrupt", "Kernel panic - not syncing: Hard LOCKUP",
            "---[ end Kernel panic - not syncing: Fatal exception ]---",
        ),
        "kernel", state="lasting", source="kernel/panic.c:vpanic",
        never=("mce: [Hardware Error]: Fake kernel panic: Fatal Machine check",),
    ),
))  # fmt: skip
