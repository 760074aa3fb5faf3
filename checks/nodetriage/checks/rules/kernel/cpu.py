"""Machine checks, Arm's aborts and system errors, and heat of a CPU. rules/reports/mce.py puts the lines of one error together.

Source: arch/x86/kernel/cpu/mce, drivers/edac/mce_amd.c, arch/arm64/kernel/traps.c, arch/arm64/mm/fault.c,
drivers/thermal/intel/therm_throt.c. The meaning of the status word: Intel SDM volume 3, IA32_MCi_STATUS; AMD PPR,
MCA_STATUS.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_CORE = "arch/x86/kernel/cpu/mce/core.c"
_AMD = "drivers/edac/mce_amd.c:amd_decode_mce"
# The lines of one machine check, of Intel's form and of AMD's. Both memory and CPU are judged from them.
LINES = (
    KernelRule(
        "mce.status",
        r"(?:mce: |)\[Hardware Error\]: CPU (?P<cpu>\d{1,5}): Machine Check(?P<word> Exception)?: [0-9a-f]{1,16} "
        r"Bank (?P<bank>\d{1,3}): (?P<status>[0-9a-f]{16})",
        "", Severity.INFO,
        (
            "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 3: be00000000800400",
            "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 9: 8c000040000800c1",
        ),
        r"cpu\g<cpu>", source=f"{_CORE}:__print_mce",
    ),
    KernelRule(
        "mce.processor", r"(?:mce: |)\[Hardware Error\]: PROCESSOR (?P<vendor>\d{1,3}):", "", Severity.INFO,
        ("mce: [Hardware Error]: PROCESSOR 0:806f8 TIME 1733571456 SOCKET 0 APIC 30 microcode 2b0005c0",), "cpu",
        source=f"{_CORE}:__print_mce",
    ),
    KernelRule(
        "mce.amd.sentence",
        r"\[Hardware Error\]: (?P<sentence>System Fatal error|Uncorrected, software (?:restartable|containable) error"
        r"|Uncorrected error|Deferred error|Corrected error)[.,]",
        "", Severity.INFO,
        (
            "[Hardware Error]: System Fatal error.", "[Hardware Error]: Uncorrected, software restartable error.",
            "[Hardware Error]: Uncorrected, software containable error.",
            "[Hardware Error]: Deferred error, no action required.",
            "[Hardware Error]: Corrected error, no action required.",
        ),
        "cpu", source=_AMD,
    ),
    KernelRule(
        "mce.amd.status",
        r"\[Hardware Error\]: CPU:(?P<cpu>\d{1,5}) \([0-9a-f]{1,3}:[0-9a-f]{1,3}:[0-9a-f]{1,3}\) MC(?P<bank>\d{1,3})_STATUS"
        r"\[(?P<flags>[\w|-]{1,80})\]: 0x(?P<status>[0-9a-f]{1,16})",
        "", Severity.INFO,
        (
            "[Hardware Error]: CPU:5 (19:11:1) MC17_STATUS[-|UE|MiscV|AddrV|-|TCC|SyndV|UECC|-|Poison|-]: "
            "0xbc802800000c0135",
        ),
        r"cpu\g<cpu>", source=_AMD,
    ),
    KernelRule(
        "mce.amd.unit", r"\[Hardware Error\]: (?P<unit>[\w /-]{3,60}) Ext\. Error Code: \d{1,3}", "", Severity.INFO,
        ("[Hardware Error]: Unified Memory Controller Ext. Error Code: 0, DRAM ECC error.",), "cpu", source=_AMD,
    ),
    KernelRule(
        "mce.amd.fru", r"\[Hardware Error\]: FRU Text: (?P<fru>.{1,80})", "", Severity.INFO,
        ("[Hardware Error]: FRU Text: P0 CHANNEL A D0",), "memory", versions="6.14 and later", source=_AMD,
    ),
)  # fmt: skip


def _cpu(
    name: str, text: str, severity: Severity, component: str, source: str, *examples: str, **more: str
) -> KernelRule:
    fault = "cpu_corrected" if severity <= Severity.WARNING else "cpu_uncorrected"
    return KernelRule(name, text, fault, severity, examples, component, source=source, **more)  # type: ignore[arg-type]


OTHERS = (
    # Only for mce.logged: EDAC has told of the record, and mem_errors judges it.
    KernelRule(
        "mce.edac",
        r"EDAC (?:(?:i7core|sbridge|skx|i10nm) MC\d{1,3}: HANDLING MCE MEMORY ERROR"
        r"|MC\d{1,3}: \d{1,9} [CU]E (?:memory (?:read|write|scrubbing) error |error |)on )",
        "", Severity.INFO,
        (
            "EDAC sbridge MC1: HANDLING MCE MEMORY ERROR",
            "EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 (channel:2 slot:0 page:0x0 offset:0x0 grain:8 syndrome:0x0)",
        ),
        "memory", source="drivers/edac/edac_mc.c:edac_mc_printk",
    ),
    KernelRule(
        "mce.logged", r"(?:mce: |)\[Hardware Error\]: Machine check events logged", "cpu_corrected", Severity.WARNING,
        ("mce: [Hardware Error]: Machine check events logged",), "cpu", state="corrected",
        source=f"{_CORE}:mce_notify_irq",
        never=("mce: Machine check injector initialized", "MCE: In-kernel MCE decoding enabled."),
    ),
    _cpu(
        "mce.word", r"(?:mce: |)\[Hardware Error\]: Machine check: ", Severity.CRITICAL, "cpu", f"{_CORE}:mce_panic",
        "mce: [Hardware Error]: Machine check: Processor context corrupt", state="lasting",
    ),
    _cpu(
        "mce.broadcast", r"mce: CPUs not responding to MCE broadcast", Severity.CRITICAL, "cpu", f"{_CORE}:mce_timed_out",
        "mce: CPUs not responding to MCE broadcast (may include false positives): 12,60", state="lasting",
    ),
    _cpu(
        "mce.int18", r"mce: CPU#(?P<cpu>\d{1,5}): Unexpected int18", Severity.CRITICAL, r"cpu\g<cpu>",
        f"{_CORE}:unexpected_machine_check", "mce: CPU#3: Unexpected int18 (Machine Check)",
    ),
    _cpu(
        "mce.pool", r"mce: MCE records pool full", Severity.WARNING, "cpu", "arch/x86/kernel/cpu/mce/genpool.c",
        "mce: MCE records pool full!",
    ),
    _cpu(
        "mce.storm.old", r"mce: CMCI storm detected: switching to poll", Severity.WARNING, "cpu",
        "arch/x86/kernel/cpu/mce/intel.c", "mce: CMCI storm detected: switching to poll mode",
        state="corrected", versions="up to 6.1",
    ),
    _cpu(
        "mce.storm", r"mce: CPU(?P<cpu>\d{1,5}) BANK(?P<bank>\d{1,3}) CMCI storm detected", Severity.WARNING, r"cpu\g<cpu>",
        "arch/x86/kernel/cpu/mce/threshold.c", "mce: CPU24 BANK13 CMCI storm detected", state="corrected",
        versions="6.8 and later",
    ),
    _cpu(
        "arm.abort", r"Internal error: (?:synchronous external abort|synchronous parity or ECC error|SError)",
        Severity.CRITICAL, "cpu", "arch/arm64/mm/fault.c:do_sea",
        "Internal error: synchronous external abort: 0000000096000010 [#1] SMP",
        "Internal error: synchronous parity or ECC error: 0000000096000018 [#1] SMP", state="lasting",
    ),
    # The process is dead already. A program that has the memory of a dead device mapped gets the same abort.
    _cpu(
        "arm.abort.user",
        r"[\w./-]{1,15}\[\d{1,10}\]: unhandled exception: [\w ()]{1,15}, ESR 0x[0-9a-f]{8,16}, "
        r"synchronous (?:external abort|parity or ECC error)",
        Severity.MAJOR, "cpu", "arch/arm64/mm/fault.c",
        "python3[31337]: unhandled exception: DABT (lower EL), ESR 0x0000000092000010, synchronous external abort "
        "in libc.so.6[7c000,ffff8a0e0000+18c000]",
    ),
    _cpu(
        "arm.serror", r"SError Interrupt on CPU(?P<cpu>\d{1,5}), code 0x", Severity.CRITICAL, r"cpu\g<cpu>",
        "arch/arm64/kernel/traps.c:arm64_serror_panic",
        "SError Interrupt on CPU17, code 0x00000000be000011 -- SError", state="lasting",
    ),
    _cpu(
        "arm.bad_mode", r"Bad mode in (?:\w{1,20} ){1,2}handler detected on CPU(?P<cpu>\d{1,5}), code 0x", Severity.CRITICAL,
        r"cpu\g<cpu>", "arch/arm64/kernel/traps.c:bad_mode",
        "Bad mode in Error handler detected on CPU17, code 0xbe000011 -- SError", state="lasting", versions="up to 5.4",
    ),
    _cpu(
        "arm.unhandled", r"Unhandled fault at 0x[0-9a-f]{8,16}$", Severity.CRITICAL, "cpu",
        "arch/arm64/mm/fault.c:do_mem_abort", "Unhandled fault at 0xffff80001b2a0000", versions="up to 5.14",
    ),
    _cpu(
        "arm.sdei", r"sdei: unsafe: exception during handler", Severity.CRITICAL, "cpu",
        "drivers/firmware/arm_sdei.c", "sdei: unsafe: exception during handler",
    ),
    KernelRule(
        "therm.throttled", r"(?:mce: |)CPU(?P<cpu>\d{1,5}): (?:Core|Package) temperature(?:/speed)? (?:is )?above threshold",
        "cpu_throttled", Severity.WARNING,
        (
            "mce: CPU12: Core temperature is above threshold, cpu clock is throttled (total events = 17)",
            "CPU3: Package temperature/speed above threshold, cpu clock throttled (total events = 1)",
        ),
        "cpu", source="drivers/thermal/intel/therm_throt.c:throttle_active_work",
        never=("CPU0: Package temperature/speed normal (total events = 41)",),
    ),
)  # fmt: skip
RULES = KernelRules((*LINES, *OTHERS))
