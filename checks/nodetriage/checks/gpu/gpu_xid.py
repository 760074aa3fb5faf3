"""Errors that the NVIDIA driver writes to the kernel log: Xid of a GPU, SXid of an NVSwitch, and those without a code.

Source: the kernel log; the codes are explained in xid.toml, sxid.toml and nvlink5.toml.
The memory is the lines of the last day, so that what repeats is seen across runs and restarts of the agent.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import NVIDIA, Check, Finding, Host, Unavailable
from nodetriage.checks.readers.nvidia_log import KERNEL_PATTERN, parse
from nodetriage.checks.readers.pci_presence import Presence, driver_devices, read_presence
from nodetriage.checks.rules import xid_repeats
from nodetriage.checks.rules.xid_devices import found_again, of_known_devices, says_off_bus, unknown_devices, witnessed
from nodetriage.checks.rules.xid_events import events
from nodetriage.checks.rules.xid_log import DAY_S, Log, entry_of, extend, live, see, uuids, with_causes
from nodetriage.checks.rules.xid_log import clears as ended_on_devices


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
    suspects = {e.line.component for e in entries if says_off_bus(e.line)}
    return Log(entries, read_presence(host, suspects) if entries else driver_devices(host), host.boottime_s())


def judge(now: Log, before: Log | None, policy: Policy) -> Iterator[Finding]:
    """One finding for each device and fault that the new lines show, unless a later line takes it back."""
    now, before = (now, before) if before else (now.as_first_look(), Log())
    here = {*now.devices.on_bus, *before.devices.on_bus, *found_again(now.entries)}
    if policy.any_device:
        here |= {e.line.component for e in (*before.entries, *now.entries) if e.line.pci is not None}
    yield from unknown_devices(now.entries, here)
    earlier, new = see(of_known_devices(before.entries, here)), see(of_known_devices(now.entries, here))
    lines = with_causes([*earlier, *new])
    names, read_now = uuids((*before.entries, *now.entries)), {id(entry) for entry in now.entries}
    fresh = {id(seen) for seen in lines if id(seen.entry) in read_now}
    found: dict[tuple[str, str], list[Finding]] = {}
    for (component, fault), group in live(lines).items():
        found[component, fault] = list(events(group, fresh, policy.burst_gap_s, names.get(component)))
    for again in xid_repeats.judge(
        earlier, new, policy.burst_gap_s, policy.repeat_window_s, policy.repeats, policy.warning_repeats
    ):
        known = found.get((again.component, again.fault)) or [again]
        severity = max(known[0].severity, again.severity)
        evidence = {**known[0].evidence, **again.evidence}
        found[again.component, again.fault] = [replace(again, severity=severity, evidence=evidence)]
    yield from (witnessed(finding, now.devices, here) for group in found.values() for finding in group)


def clears(now: Log, before: Log | None) -> Iterable[tuple[str, str]]:
    """What the new lines take back: a reset of a GPU, a load of the driver, power smoothing that works again."""
    return ended_on_devices(see(now.entries), see(before.entries if before else ()))


def next_state(before: Log | None, now: Log) -> Log:
    """The lines of the last day, and the devices that are or were here."""
    now, before = (now, before) if before else (now.as_first_look(), Log())
    here = {*now.devices.on_bus, *before.devices.on_bus, *found_again(now.entries)}
    return Log(extend(before.entries, now.entries), Presence(tuple(sorted(here))))


CHECK = Check(
    name="gpu_xid",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=(
        "gpu_off_bus", "gpu_ecc_uncorrectable", "gpu_ecc_uncontained", "gpu_ecc_contained",
        "gpu_ecc_corrected_storm", "gpu_row_remap_pending", "gpu_row_remap_failed", "gpu_nvlink_error",
        "gpu_chip_link_error", "gpu_gsp_timeout", "gpu_init_failed", "gpu_driver_mismatch",
        "gpu_recovery_action", "gpu_reset_required", "gpu_context_switch_timeout", "gpu_power_smoothing_off",
        "gpu_xid_fatal", "gpu_xid_service", "gpu_xid_warning", "gpu_xid_repeated", "gpu_xid_application",
        "gpu_xid_notice", "gpu_xid_unknown", "nvswitch_fatal", "nvswitch_error", "kernel_line_unknown_device",
    ),
    next_state=next_state,
    clears=clears,
    kernel_pattern=KERNEL_PATTERN,
)  # fmt: skip
