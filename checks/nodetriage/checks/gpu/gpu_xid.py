"""Errors that the NVIDIA driver writes to the kernel log: Xid of a GPU, SXid of an NVSwitch, and those without a code.

Source: the kernel log; the codes are explained in xid.toml, sxid.toml and nvlink5.toml.
The memory is the lines of the last day, so that what repeats is seen across runs and restarts of the agent.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import NVIDIA, Check, Finding, Host, Scalar, Unavailable
from nodetriage.checks.readers.nvidia_log import KERNEL_PATTERN, parse
from nodetriage.checks.readers.pci_presence import Presence, read_presence
from nodetriage.checks.rules import xid_repeats
from nodetriage.checks.rules.xid_devices import of_known_devices, says_off_bus, unknown_devices, witnessed
from nodetriage.checks.rules.xid_log import DAY_S, Log, Seen, ended, entry_of, extend, live, see, uuids


@dataclass(frozen=True, slots=True)
class Policy:
    """How lines count as one event, and how many events are too many."""

    burst_gap_s: float = 180.0  # one error prints many lines: those closer than this are one burst (at least 60)
    repeat_window_s: float = DAY_S  # at most a day: that is what the check remembers
    # Bursts of 13 (same place), 31 or 32 on one GPU that make gpu_xid_repeated, of 109 that make it critical.
    repeats: int = 2
    warning_repeats: int = 5  # bursts of one code of severity warning on one GPU that make gpu_xid_repeated
    any_device: bool = False  # for trials only: lines about devices that this machine does not have count as well

    def __post_init__(self) -> None:
        if self.burst_gap_s < 60 or not 0 < self.repeat_window_s <= DAY_S:
            raise ValueError("burst_gap_s must be at least 60 and repeat_window_s at most 86400")


def read(host: Host) -> Log:
    """Raises Unavailable where no part here could write any line. No call goes to the driver: it may never return."""
    parsed = ((record, parse(record.text)) for record in host.kernel_log())
    entries = tuple(entry_of(record, line) for record, line in parsed if line)
    if (
        not entries
        and not host.exists("/sys/module/nvidia")
        and not any(d.vendor == NVIDIA for d in host.pci_devices())
    ):
        raise Unavailable("no NVIDIA device on the PCI bus, and its driver is not loaded")
    return Log(entries, read_presence(host, {e.line.component for e in entries if says_off_bus(e.line)}))


def judge(now: Log, before: Log | None, policy: Policy) -> Iterator[Finding]:
    """One finding for each device and fault that the new lines show, unless a later line takes it back."""
    before = before or Log()
    here = {*now.devices.on_bus, *before.devices.on_bus}
    if policy.any_device:
        here |= {e.line.component for e in (*before.entries, *now.entries) if e.line.pci is not None}
    yield from unknown_devices(now.entries, here)
    earlier, new = see(of_known_devices(before.entries, here)), see(of_known_devices(now.entries, here))
    names, fresh = uuids((*before.entries, *now.entries)), {id(seen) for seen in new}
    found: dict[tuple[str, str], Finding] = {}
    for (component, fault), group in live([*earlier, *new]).items():
        news = [seen for seen in group if id(seen) in fresh]
        if not news:
            continue
        worst = max(news, key=lambda s: s.worth.severity)  # of equals the first: later ones are its echo
        # A milder line does not soften a fault that is still held.
        gravest = max((worst, *group), key=lambda s: s.worth.severity)
        count = sum(s.entry.lines for s in xid_repeats.bursts(group, policy.burst_gap_s)[-1])
        evidence = _evidence(gravest, news, count, names.get(component))
        found[component, fault] = Finding(component, fault, gravest.worth.severity, evidence)
    for again in xid_repeats.judge(
        earlier, new, policy.burst_gap_s, policy.repeat_window_s, policy.repeats, policy.warning_repeats
    ):
        known = found.get((again.component, again.fault), again)
        severity = max(known.severity, again.severity)
        found[again.component, again.fault] = replace(
            again, severity=severity, evidence={**known.evidence, **again.evidence}
        )
    yield from (witnessed(finding, now.devices, here) for finding in found.values())


def clears(now: Log, before: Log | None) -> Iterable[tuple[str, str]]:
    """What the new lines take back: Xid 154 with value 0, and 162, which says that 163 is over."""
    return ended(see(now.entries))


def next_state(before: Log | None, now: Log) -> Log:
    """The lines of the last day, and the devices that are or were here."""
    before = before or Log()
    here = tuple(sorted({*now.devices.on_bus, *before.devices.on_bus}))
    return Log(extend(before.entries, now.entries), Presence(here))


def _evidence(worst: Seen, news: list[Seen], count: int, uuid: str | None) -> dict[str, Scalar]:
    line = worst.line
    known = {
        "sxid" if line.kind == "sxid" else "xid": line.code,
        "text": line.rest[:200], "pid": line.pid, "process": line.process, "mig": line.mig, "uuid": uuid,
        "at_boot_s": round(worst.entry.at_s, 3),
    }  # fmt: skip
    qualifiers = {k: v for s in reversed(news) for k, v in s.worth.evidence.items()}
    found: dict[str, Scalar] = {k: v for k, v in known.items() if v is not None}
    return {**found, **qualifiers, **worst.worth.evidence, "count": count}


CHECK = Check(
    name="gpu_xid",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=(
        "gpu_off_bus", "gpu_ecc_uncorrectable", "gpu_ecc_uncontained", "gpu_ecc_contained", "gpu_ecc_corrected_storm",
        "gpu_row_remap_pending", "gpu_row_remap_failed", "gpu_nvlink_error", "gpu_chip_link_error", "gpu_gsp_timeout",
        "gpu_init_failed", "gpu_recovery_action", "gpu_reset_required", "gpu_context_switch_timeout",
        "gpu_power_smoothing_off", "gpu_xid_fatal", "gpu_xid_service", "gpu_xid_warning", "gpu_xid_repeated",
        "gpu_xid_application", "gpu_xid_notice", "gpu_xid_unknown", "nvswitch_fatal", "nvswitch_error",
        "kernel_line_unknown_device",
    ),
    next_state=next_state,
    clears=clears,
    kernel_pattern=KERNEL_PATTERN,
)  # fmt: skip
