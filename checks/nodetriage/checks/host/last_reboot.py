"""Why this machine started again, where nobody planned it: one finding, in the first hour after the boot.

Source: the end of the previous boot's journal, pstore, the kernel's report of the firmware's boot error record (BERT,
drivers/acpi/apei/bert.c), and the BMC's event log and restart cause.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers import ipmi, sel
from nodetriage.checks.readers.boot.journal import JournalLine, last_lines
from nodetriage.checks.readers.boot.pstore import kept_lines
from nodetriage.checks.rules import reboot_causes
from nodetriage.checks.rules.event_log import sel_follow, sel_rules

FRESH_S = 3600.0  # after the boot; later nobody can tell what the log's entries have to do with it
_BEFORE_S = 1800.0  # how long before the boot an entry of the BMC's log may be its cause
_BERT = "BERT: Error records from previous boot"
_LAST = "64"


@dataclass(frozen=True, slots=True)
class Policy:
    """What an unplanned start is worth."""

    severity: Severity = Severity.WARNING  # the checks of what broke say what that costs
    by_operator: Severity = Severity.INFO  # the BMC says that a person reset it


@dataclass(frozen=True, slots=True)
class Start:
    """`lines` is None where no journal was kept; then only a cause that was found says that nobody planned it."""

    lines: tuple[JournalLine, ...] | None
    pstore: tuple[str, ...] = ()
    bert: bool = False
    sel: tuple[tuple[str, str], ...] = ()  # fault and text of young entries
    restart_cause: str = ""
    unseen: tuple[str, ...] = ()  # sources that could not be asked


def read(host: Host) -> Start:
    """Raises Unavailable once the machine has been up for longer than FRESH_S."""
    bert, up_s = bool(host.kernel_log()), host.boottime_s()
    if up_s > FRESH_S:
        raise Unavailable("the machine has been up for more than an hour; its start is looked at before that")
    unseen: list[str] = []
    try:
        lines = last_lines(host)
    except (Unavailable, ValueError, TimeoutError) as error:
        lines = None
        unseen.append(f"journal: {error}"[:100])
    entries: tuple[tuple[str, str], ...] = ()
    cause = ""
    try:
        entries = _sel(host, up_s)
        cause = ipmi.ask(host, "chassis", "restart_cause").partition(":")[2].strip()[:100]
    except (Unavailable, ValueError, ipmi.Silent) as error:
        unseen.append(f"BMC: {error}"[:100])
    return Start(lines, kept_lines(host), bert, entries, cause, tuple(unseen))


def _sel(host: Host, up_s: float) -> tuple[tuple[str, str], ...]:
    """(fault, text) of the entries from shortly before the boot on."""
    clock = sel.stamp(ipmi.ask(host, "sel", "time", "get"))
    entries, _ = sel.log_entries(ipmi.ask(host, "sel", "elist", "last", _LAST))
    young = sel_follow.younger(entries, clock, up_s + _BEFORE_S)
    return tuple((sel_rules.assess(e).fault, f"{e.sensor}: {e.event} {e.detail}".strip()[:200]) for e in young)


def next_state(before: Start | None, now: Start) -> Start:
    """That it was looked at is enough: the finding is reported once."""
    return Start(None)


def judge(now: Start, before: Start | None, policy: Policy) -> Iterator[Finding]:
    """Raises Unavailable where nothing tells whether the start was planned."""
    if before is not None or (now.lines is not None and reboot_causes.is_planned(now.lines)):
        return
    cause = reboot_causes.nearest(_causes(now))
    if now.lines is None and cause.kind == reboot_causes.UNKNOWN:
        raise Unavailable("nothing tells whether this start was planned: no journal of the boot before was kept")
    by_operator = cause.kind == reboot_causes.OPERATOR
    evidence: dict[str, Scalar] = {"cause": cause.kind, "source": cause.source, "text": cause.text}
    if now.lines:
        evidence["last_line"] = now.lines[-1].text[:200]
    if now.unseen:
        evidence["unseen"] = "; ".join(now.unseen)[:200]
    yield Finding("node", "reboot_unexpected", policy.by_operator if by_operator else policy.severity, evidence)


def _causes(now: Start) -> Iterator[reboot_causes.Cause]:
    yield from reboot_causes.by_kernel(now.pstore, "pstore")
    yield from reboot_causes.by_kernel((line.text for line in now.lines or () if line.source == "kernel"), "journal")
    if now.bert:
        yield reboot_causes.Cause("hardware_error", "bert", _BERT)
    yield from reboot_causes.by_sel(now.sel)
    yield from reboot_causes.by_bmc(now.restart_cause)


CHECK = Check(
    name="last_reboot",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("reboot_unexpected",),
    worker="bmc",
    every_s=3600,
    timeout_s=240,
    next_state=next_state,
    kernel_pattern=_BERT,
)
