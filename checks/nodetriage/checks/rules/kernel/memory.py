"""Memory that fails: EDAC, pages that the kernel takes away, and what the machine check handler says of memory.

Source: drivers/edac/edac_mc.c, edac_device.c; mm/memory-failure.c; arch/x86/kernel/cpu/mce/core.c. A page that is
"Recovered" or "Delayed" is out of use; after "Failed" and "Ignored" bad memory stays in use.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_EDAC = "drivers/edac/edac_mc.c"
_MF = "mm/memory-failure.c"
_LABEL = r"on (?P<label>[\w#?./:-]{1,60}(?: memory)?)"
_PFN = r"Memory failure: (?P<pfn>0x[0-9a-f]{1,16}): "


def _page(name: str, text: str, severity: Severity, *examples: str, state: str = "event") -> KernelRule:
    fault = "mem_page_retired" if severity <= Severity.WARNING else "mem_uncorrected"
    return KernelRule(f"page.{name}", text, fault, severity, examples, "memory", state=state, source=_MF)


def _mce(name: str, text: str, *examples: str) -> KernelRule:
    source = "arch/x86/kernel/cpu/mce/core.c"
    return KernelRule(f"mce.{name}", text, "mem_uncorrected", Severity.CRITICAL, examples, "memory", source=source)


RULES = KernelRules((
    KernelRule(
        "edac.ue", rf"EDAC MC(?P<mc>\d{{1,3}}): (?P<errors>\d{{1,9}}) UE (?:[\w-]+ ){{0,6}}{_LABEL}", "mem_uncorrected",
        Severity.CRITICAL,
        (
            "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x5a0c18 offset:0x0)",
            "EDAC MC1: 1 UE on mc#1csrow#2channel#3 (csrow:2 channel:3 page:0x7d1a2c offset:0x1c0 grain:64)",
            "EDAC MC0: 1 UE Multi-bit ECC on unknown memory (node:1 card:5 module:0 rank:1 bank_group:2 row:23112)",
        ),
        r"\g<label>", source=f"{_EDAC}:edac_ue_error",
        never=("EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm Socket#0 IMC#0: DEV 0000:7e:0c.0",),
    ),
    KernelRule(
        "edac.ce", rf"EDAC MC(?P<mc>\d{{1,3}}): (?P<errors>\d{{1,9}}) CE (?:[\w-]+ ){{0,6}}{_LABEL}", "mem_corrected",
        Severity.INFO,
        (
            "EDAC MC3: 1 CE memory read error on CPU_SrcID#1_MC#1_Chan#0_DIMM#0 (channel:0 slot:0 page:0x2fd2b5)",
            "EDAC MC0: 2 CE memory scrubbing error on CPU_SrcID#0_Ha#0_Chan#2_DIMM#1 (channel:2 slot:1 page:0x1d3a44)",
        ),
        r"\g<label>", state="corrected", source=f"{_EDAC}:edac_ce_error",
    ),
    KernelRule(
        "edac.device", r"EDAC DEVICE\d{1,3}: UE: (?P<device>[\w.-]{1,40}) instance: (?P<instance>\w{1,40})", "cpu_uncorrected",
        Severity.CRITICAL,
        ("EDAC DEVICE0: UE: xgene_edac instance: l3c0 block: l3c00 count: 1 'L3 uncorrectable error'",),
        r"\g<device> \g<instance>", source="drivers/edac/edac_device.c",
    ),
    KernelRule(
        "edac.ecc_off", r"EDAC (?:i10nm|skx|amd64): ECC is disabled on imc (?P<mc>\d{1,3}) channel (?P<channel>\d{1,3})",
        "mem_ecc_off", Severity.WARNING, ("EDAC i10nm: ECC is disabled on imc 2 channel 1",),
        r"imc\g<mc> channel\g<channel>", state="lasting", source="drivers/edac/skx_common.c",
    ),
    _page("inject", r"Injecting memory failure for pfn (?P<pfn>0x[0-9a-f]{1,16}) at ", Severity.INFO,
          "Injecting memory failure for pfn 0x2fd2b5 at process virtual address 0x7f21c0000000", state="info"),
    _page("failed", _PFN + r"recovery action for (?P<page>[\w -]{1,60}): (?P<outcome>Failed|Ignored)", Severity.CRITICAL,
          "Memory failure: 0x2fd2b5: recovery action for huge page: Failed",
          "Memory failure: 0x2fd2b5: recovery action for reserved kernel page: Ignored", state="lasting"),
    _page("delayed", _PFN + r"recovery action for (?P<page>[\w -]{1,60}): (?P<outcome>Delayed)", Severity.MAJOR,
          "Memory failure: 0x2fd2b5: recovery action for huge page: Delayed"),
    _page("dirty", _PFN + r"recovery action for (?P<page>dirty [\w -]{1,60}): (?P<outcome>Recovered)", Severity.MAJOR,
          "Memory failure: 0x2fd2b5: recovery action for dirty LRU page: Recovered"),
    _page("recovered", _PFN + r"recovery action for (?P<page>[\w -]{1,60}): (?P<outcome>Recovered)", Severity.WARNING,
          "Memory failure: 0x2fd2b5: recovery action for clean LRU page: Recovered",
          "Memory failure: 0x1c0a3f2: recovery action for free buddy page: Recovered", state="recovered"),
    _page("clean", _PFN + r"corrupted page was clean: dropped", Severity.WARNING,
          "Memory failure: 0x2fd2b5: corrupted page was clean: dropped without side effects", state="recovered"),
    _page("again", _PFN + r"already hardware poisoned", Severity.WARNING,
          "Memory failure: 0x2fd2b5: already hardware poisoned"),
    _page("sigbus", _PFN + r"(?:Sending SIGBUS to|Killing) (?P<task>.{1,15}):(?P<pid>\d{1,10}) due to hardware memory corruption",
          Severity.CRITICAL,
          "Memory failure: 0x2fd2b5: Sending SIGBUS to python3:31337 due to hardware memory corruption",
          "Memory failure: 0x2fd2b5: Killing python3:31337 due to hardware memory corruption"),
    KernelRule(
        "page.sigbus.ghes", r"GHES: 0x[0-9a-f]{1,16}: Sending SIGBUS to (?P<task>.{1,15}):(?P<pid>\d{1,10}) due to hardware memory",
        "mem_uncorrected", Severity.CRITICAL,
        ("GHES: 0x4a2b3c000: Sending SIGBUS to python3:31337 due to hardware memory corruption",), "memory",
        versions="7.0", source="drivers/acpi/apei/ghes.c:memory_failure_cb",
    ),
    _page("outside", _PFN + r"memory outside kernel control", Severity.MAJOR,
          "Memory failure: 0x4080000000: memory outside kernel control"),
    _page("unmap", _PFN + r"failed to unmap page", Severity.CRITICAL,
          "Memory failure: 0x2fd2b5: failed to unmap page (mapcount=1)",
          "Memory failure: 0x2fd2b5: failed to unmap page (folio mapcount=1)"),
    _page("referenced", _PFN + r"(?P<page>[\w -]{1,60}) still referenced by \d{1,9} users", Severity.MAJOR,
          "Memory failure: 0x2fd2b5: dirty LRU page still referenced by 1 users"),
    _page("overflow", r"Memory failure: buffer overflow when queuing memory failure at (?P<pfn>0x[0-9a-f]{1,16})",
          Severity.CRITICAL, "Memory failure: buffer overflow when queuing memory failure at 0x2fd2b5"),
    _page("soft", r"(?:S|s)oft offline: (?P<pfn>0x[0-9a-f]{1,16}): [\w -]{1,60} (?:migration|isolation) failed", Severity.WARNING,
          "Soft offline: 0x2fd2b5: page migration failed -16, type 0x17ffffc0000000(node=0|zone=2)",
          "Soft offline: 0x2fd2b5: page isolation failed, page count 2, type 0x17ffffc0000000(node=0|zone=2)",
          "soft offline: 0x2fd2b5: hugepage migration failed -16, type 17ffffc0000000"),
    KernelRule(
        "page.bad_address", r"\[Firmware Warn\]: GHES: Invalid address in generic error data: ", "mem_page_retired",
        Severity.WARNING, ("[Firmware Warn]: GHES: Invalid address in generic error data: 0x38c0a01000000",), "memory",
        versions="up to 6.14", source="drivers/acpi/apei/ghes.c:ghes_do_memory_failure",
    ),
    _mce("not_recovered", r"mce: Memory error not recovered", "mce: Memory error not recovered"),
    _mce("kernel_poison", r"mce: Kernel accessed poison in user space at ",
         "mce: Kernel accessed poison in user space at 2fd2b5a40"),
    _mce("user_access", r"mce: Uncorrected hardware memory error in user-access",
         "mce: Uncorrected hardware memory error in user-access at 3f80"),
    _mce("page_ignored", r"mce: Uncorrected memory error in page 0x[0-9a-f]{1,16} ignored",
         "mce: Uncorrected memory error in page 0x2fd2b5 ignored\nRebuild kernel with CONFIG_MEMORY_FAILURE=y"),
))  # fmt: skip
