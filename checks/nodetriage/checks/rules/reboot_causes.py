"""Why a machine started again, from what its last boot left and what its BMC knows. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nodetriage.checks.model.kernel_line import KernelPattern, kernel_pattern
from nodetriage.checks.readers.boot.journal import JournalLine

UNKNOWN, PLANNED, OPERATOR = "unknown", "planned", "operator"


@dataclass(frozen=True, slots=True)
class Cause:
    """`kind` is heat, power, hardware_error, watchdog, kernel_panic, hang, operator or unknown."""

    kind: str
    source: str = ""  # pstore, journal, bert, sel, bmc
    text: str = ""


def _rules(*pairs: tuple[str, str]) -> tuple[tuple[KernelPattern, str], ...]:
    return tuple((kernel_pattern(expression), kind) for expression, kind in pairs)


# The kernel's own lines, the nearest to the cause first.
_KERNEL = _rules(
    (r"thermal thermal_zone\d+: \S{1,15}: critical temperature reached", "heat"),
    (r"thermal thermal_zone\d+: (?:\w+: )?critical temperature reached", "heat"),
    (r"critical temperature reached \(\d+ C\), shutting down", "heat"),
    (r"(?:mce: )?\[Hardware Error\]: CPU \d+: Machine Check Exception: ", "hardware_error"),
    (r"(?:\{\d{1,10}\})?\[Hardware Error\]: event severity: fatal", "hardware_error"),
    (r"Kernel panic - not syncing: (?:Fatal [Mm]achine check|Fatal hardware error)", "hardware_error"),
    (r"Kernel panic - not syncing: Timeout: Not all CPUs", "hardware_error"),
    (r"Kernel panic - not syncing: (?:Hard LOCKUP|softlockup: hung tasks|hung_task: blocked tasks)", "hang"),
    (r"Kernel panic - not syncing: NMI: Not continuing", "hardware_error"),
    (r"Kernel panic - not syncing: ", "kernel_panic"),
    (r"BUG: unable to handle |BUG: kernel NULL pointer dereference", "kernel_panic"),
    (r"watchdog: BUG: soft lockup - CPU#\d+ stuck|watchdog: Watchdog detected hard LOCKUP on cpu ", "hang"),
    (r"NMI watchdog: (?:BUG: soft lockup - CPU#|Watchdog detected hard LOCKUP)", "hang"),
    (r"rcu: INFO: \w{1,30} (?:self-)?detected (?:expedited )?stalls? on CPU", "hang"),
)  # fmt: skip
_BY_INIT = (
    "Sending SIGTERM to remaining processes...", "Shutting down.", "Reached target System Reboot",
    "Reached target System Power Off", "Reached target System Shutdown", "Reached target reboot.target",
    "Reached target poweroff.target", "Reached target shutdown.target", "Reached target kexec.target",
    "Reached target Reboot", "Reached target Power-Off", "Reached target Shutdown", "Reached target Final Step",
)  # fmt: skip
_BY_LOGIND = ("System is rebooting", "System is powering down", "The system will reboot", "The system will power off")
_STOPPED = "Journal stopped"  # also where journald alone is started again, so it counts as the last line only
# `ipmitool chassis restart_cause` (IPMI 2.0, table 28-11).
_BMC = {
    "watchdog expired": "watchdog",
    "always-restore power policy": "power",
    "restore-previous power policy": "power",
    "chassis power control command": OPERATOR,
    "pushbutton": OPERATOR,
    "PEF": "hardware_error",  # the BMC's own reaction to an event of its log
}
_SEL = {  # by the fault that an entry of the log is
    "bmc_thermal": "heat", "bmc_power": "power", "bmc_power_supply": "power", "bmc_processor": "hardware_error",
    "bmc_memory_uncorrectable": "hardware_error", "bmc_critical_interrupt": "hardware_error",
}  # fmt: skip


def is_planned(lines: Sequence[JournalLine]) -> bool:
    """Whether systemd shut the machine down, for whomever (`scontrol reboot`, an operator). Needs a line."""
    last = lines[-1]
    if last.source == "system" and last.comm == "systemd-journal" and last.text == _STOPPED:
        return True
    return any(
        (line.source == "init" and line.text.startswith(_BY_INIT))
        or (line.source == "system" and line.comm == "systemd-logind" and line.text.startswith(_BY_LOGIND))
        for line in lines
    )


def by_kernel(lines: Iterable[str], source: str) -> Iterator[Cause]:
    """The line that is nearest to the cause: several follow from one another."""
    texts = tuple(lines)
    for pattern, kind in _KERNEL:
        if (text := next((t for t in texts if pattern.match(t)), None)) is not None:
            yield Cause(kind, source, text[:200])
            return


def by_sel(faults: Iterable[tuple[str, str]]) -> Iterator[Cause]:
    """From (fault, text) of the log's young entries, the oldest first."""
    for fault, text in faults:
        if fault in _SEL:
            yield Cause(_SEL[fault], "sel", text[:200])
        elif fault == "bmc_host_stopped" and text.startswith("Watchdog"):
            yield Cause("watchdog", "sel", text[:200])


def by_bmc(restart_cause: str) -> Iterator[Cause]:
    for words, kind in _BMC.items():
        if words in restart_cause:
            yield Cause(kind, "bmc", restart_cause[:100])


def nearest(causes: Iterable[Cause]) -> Cause:
    """Heat and power come before what the kernel saw of them; a person's hand comes last."""
    order = ("heat", "power", "hardware_error", "hang", "kernel_panic", "watchdog", OPERATOR)
    return min(causes, key=lambda cause: order.index(cause.kind), default=Cause(UNKNOWN))
