"""Clocks, thermal and power shutdown, CPUs that did not start, the BMC's interface, USB controllers, memory that ran out.

Source: kernel/time/clocksource.c, arch/x86/kernel/tsc*.c, drivers/thermal, kernel/reboot.c, drivers/char/ipmi,
drivers/usb/core/hcd.c, mm/oom_kill.c, mm/page_io.c.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_CLOCK = "kernel/time/clocksource.c"
_KILLED = r"Killed process (?P<pid>\d{1,10}) \((?P<task>.{1,15})\) "
# A service of the node, not a job, that was at the limit of its own group.
_SERVICES = r"slurmstepd|slurmd|systemd|systemd-journal|systemd-logind|systemd-udevd|sshd|munged|dbus-daemon|chronyd|nvidia-persiste"


def _rule(
    name: str, text: str, fault: str, severity: Severity, source: str, *examples: str, component: str = "kernel",
    state: str = "lasting", prefix: str = "", versions: str = "all", never: tuple[str, ...] = (),
) -> KernelRule:  # fmt: skip
    return KernelRule(name, text, fault, severity, examples, component, prefix, state, source, versions, never)


RULES = KernelRules((
    _rule(
        "clock.unstable", r"clocksource: timekeeping watchdog on CPU\d{1,5}: Marking clocksource '(?P<clock>[\w-]{1,32})' as unstable",
        "clock_source_unstable", Severity.MAJOR, f"{_CLOCK}:clocksource_watchdog",
        "clocksource: timekeeping watchdog on CPU12: Marking clocksource 'tsc' as unstable because the skew is too large:",
        versions="up to 6.14", never=("clocksource: timekeeping watchdog on CPU12: hpet retried 2 times before success",),
    ),
    _rule(
        "clock.skew", r"clocksource: Marking clocksource (?P<clock>[\w-]{1,32}) unstable due to ", "clock_source_unstable",
        Severity.MAJOR, f"{_CLOCK}:watchdog_print_freq_skew", "clocksource: Marking clocksource tsc unstable due to frequency skew",
        versions="7.0",
    ),
    _rule(
        "clock.tsc", r"tsc: Marking TSC unstable due to ", "clock_source_unstable", Severity.MAJOR, "arch/x86/kernel/tsc.c",
        "tsc: Marking TSC unstable due to clocksource watchdog", "tsc: Marking TSC unstable due to check_tsc_sync_source failed",
        never=("tsc: Refined TSC clocksource calibration: 2000.000 MHz",),
    ),
    _rule(
        "clock.warp", r"Measured \d{1,20} cycles TSC warp between CPUs", "clock_source_unstable", Severity.MAJOR,
        "arch/x86/kernel/tsc_sync.c", "Measured 3012 cycles TSC warp between CPUs, turning off TSC clock.",
    ),
    _rule(
        "thermal.critical",
        r"thermal (?P<zone>[\w-]{1,32}): (?:[\w-]{1,40}: )?critical temperature reached(?: \((?P<celsius>-?\d{1,4}) C\))?, shutting",
        "thermal_shutdown", Severity.CRITICAL, "drivers/thermal/thermal_core.c",
        "thermal thermal_zone0: acpitz: critical temperature reached, shutting down",
        "thermal thermal_zone0: critical temperature reached (105 C), shutting down", component=r"\g<zone>",
    ),
    _rule(
        "thermal.protection", r"reboot: HARDWARE PROTECTION (?:shutdown|reboot)", "thermal_shutdown", Severity.CRITICAL,
        "kernel/reboot.c:__hw_protection_shutdown", "reboot: HARDWARE PROTECTION shutdown (Temperature too high)",
    ),
    _rule(
        "cpu.not_started", r"smpboot: do_boot_cpu failed\(-?\d{1,6}\) to wakeup CPU#(?P<cpu>\d{1,5})", "cpu_not_started",
        Severity.MAJOR, "arch/x86/kernel/smpboot.c", "smpboot: do_boot_cpu failed(-1) to wakeup CPU#12", component=r"cpu\g<cpu>",
    ),
    # A virtual machine has the interface's table and no BMC: ipmi_si says so at each boot.
    _rule(
        "ipmi.absent", r"ipmi_si (?P<place>[\w.:-]{1,40}): There appears to be no BMC at this location", "bmc_unreachable",
        Severity.WARNING, "drivers/char/ipmi/ipmi_si_intf.c:try_smi_init",
        "ipmi_si IPI0001:00: There appears to be no BMC at this location", component="bmc",
    ),
    _rule(
        "ipmi.invalid", r"ipmi_si (?P<place>[\w.:-]{1,40}): KCS in invalid state", "bmc_unreachable", Severity.WARNING,
        "drivers/char/ipmi/ipmi_kcs_sm.c", "ipmi_si IPI0001:00: KCS in invalid state 9", component="bmc", state="event",
    ),
    _rule(
        "usb.dead", r"HC died; cleaning up", "usb_controller_dead", Severity.WARNING, "drivers/usb/core/hcd.c:usb_hc_died",
        "xhci_hcd 0000:00:14.0: HC died; cleaning up", component=r"\g<device>", prefix="pci",
        never=("usb 1-7: device not accepting address 13, error -71",),
    ),
    _rule(
        "oom.global", rf"Out of memory: {_KILLED}", "kernel_out_of_memory", Severity.WARNING, "mm/oom_kill.c:__oom_kill_process",
        "Out of memory: Killed process 4711 (python3) total-vm:1843200512kB, anon-rss:1519812340kB, file-rss:1024kB, "
        "shmem-rss:65536kB, UID:1000 pgtables:2976512kB oom_score_adj:0", state="event",
    ),
    _rule(
        "oom.service",
        rf"Memory cgroup out of memory: Killed process (?P<pid>\d{{1,10}}) \((?P<task>{_SERVICES})\) total-vm:\d{{1,15}}kB, "
        r"anon-rss:\d{1,15}kB, file-rss:\d{1,15}kB, shmem-rss:\d{1,15}kB, UID:0 ",
        "kernel_out_of_memory", Severity.WARNING, "mm/oom_kill.c:__oom_kill_process",
        "Memory cgroup out of memory: Killed process 1201 (slurmstepd) total-vm:284320kB, anon-rss:251980kB, file-rss:1024kB, "
        "shmem-rss:0kB, UID:0 pgtables:597kB oom_score_adj:-999", state="event",
        never=(
            "Memory cgroup out of memory: Killed process 4242 (python3) total-vm:104857600kB, anon-rss:0kB, file-rss:0kB, "
            "shmem-rss:0kB, UID:1000 pgtables:0kB oom_score_adj:0",
            "Memory cgroup out of memory: Killed process 4242 (slurmstepd) total-vm:104857600kB, anon-rss:0kB, file-rss:0kB, "
            "shmem-rss:0kB, UID:1000 pgtables:0kB oom_score_adj:0",
        ),
    ),
    _rule(
        "oom.nothing", r"Out of memory and no killable processes", "kernel_out_of_memory", Severity.CRITICAL,
        "mm/oom_kill.c:out_of_memory", "Out of memory and no killable processes...",
    ),
    _rule(
        "oom.stuck", r"oom_reaper: unable to reap pid:(?P<pid>\d{1,10}) ", "kernel_out_of_memory", Severity.WARNING,
        "mm/oom_kill.c:oom_reap_task", "oom_reaper: unable to reap pid:4711 (python3)", state="event",
        never=("oom_reaper: reaped process 4711 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:65536kB",),
    ),
    _rule(
        "swap.error", r"(?:Write|Read)-error on swap-device \((?P<swap>\d{1,7}:\d{1,7}):\d{1,20}\)", "swap_io_error", Severity.MAJOR,
        "mm/page_io.c:__end_swap_bio_write", "Write-error on swap-device (259:3:81920)",
        "Read-error on swap-device (259:3:81920)", component=r"swap \g<swap>", state="event",
    ),
))  # fmt: skip
