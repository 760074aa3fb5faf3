"""What the driver logged about uncorrectable memory errors: it decides what the counts that NVML shows are worth.

Xid 48, 94, 95, 140, 171 and 172; xid_rules says what each is worth.
"""

from dataclasses import dataclass

from nodetriage.checks.model import Host, Severity, Unavailable
from nodetriage.checks.readers.nvidia_log import parse, xids
from nodetriage.checks.rules.xid_rules import assess

PATTERN = xids(48, 94, 95, 140, 171, 172)
_KEPT = 20  # lines of one GPU
_EARLY_S = 60.0  # a count may rise in the run after the line, or the line be read in the run after the count


@dataclass(frozen=True, slots=True)
class EccLine:
    """One line about one GPU."""

    at_s: float  # since boot
    xid: int
    severity: Severity


def read(host: Host) -> dict[str, tuple[EccLine, ...]]:
    """The new lines by PCI address; none where this process may not read the kernel log: NVML's counts are enough."""
    found: dict[str, tuple[EccLine, ...]] = {}
    try:
        records = host.kernel_log()
    except (PermissionError, Unavailable):
        return found
    for record in records:
        line = parse(record.text)
        worth = assess(line) if line and line.pci is not None else None
        if line and worth and line.code is not None:
            known = found.get(line.component, ())
            found[line.component] = (*known, EccLine(max(record.at_us, 0) / 1e6, line.code, worth.severity))[-_KEPT:]
    return found


def gravest(lines: tuple[EccLine, ...], since_s: float) -> EccLine | None:
    """The line that decides about counts that rose after `since_s`; None where the driver logged nothing of it."""
    near = [line for line in lines if line.at_s >= since_s - _EARLY_S]
    return max(near, key=lambda line: line.severity, default=None)


def extend(before: tuple[EccLine, ...], now: tuple[EccLine, ...]) -> tuple[EccLine, ...]:
    """What to remember: the newest lines."""
    return (*before, *now)[-_KEPT:]
