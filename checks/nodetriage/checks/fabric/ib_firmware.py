"""InfiniBand and RoCE adapters whose firmware differs from others of their board, or from the settings.

Reads fw_ver and board_id of /sys/class/infiniband/HCA (Documentation/ABI/stable/sysfs-class-infiniband).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, Host, Severity, Unavailable
from nodetriage.checks.readers.ib_port import Hca, hcas
from nodetriage.checks.readers.sysfs import optional_text


@dataclass(frozen=True, slots=True)
class Policy:
    """Where `expected` does not name a board, its adapters should all have the version that most of them have."""

    expected: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # right versions, by pattern of board_id
    severity: Severity = Severity.WARNING


@dataclass(frozen=True, slots=True)
class Adapter:
    """`version` and `board` are "" where the driver has no such file."""

    name: str
    pci: str
    board: str
    version: str


def read(host: Host) -> tuple[Adapter, ...]:
    """Raises Unavailable where no adapter has a firmware version."""
    found = tuple(_read_one(host, hca) for hca in hcas(host))
    if not any(adapter.version for adapter in found):
        raise Unavailable("no adapter in /sys/class/infiniband has a firmware version (fw_ver)")
    return found


def _read_one(host: Host, hca: Hca) -> Adapter:
    board, version = (optional_text(host, f"{hca.folder}/{name}")[:80] for name in ("board_id", "fw_ver"))
    return Adapter(hca.name, hca.pci, board, version)


def judge(now: tuple[Adapter, ...], before: tuple[Adapter, ...] | None, policy: Policy) -> Iterator[Finding]:
    known = [a for a in now if a.version]
    for adapter in known:
        wanted = next((v for p, v in policy.expected.items() if fnmatchcase(adapter.board, p)), None)
        if wanted is None:
            twins = Counter(a.version for a in known if a.board == adapter.board and a.board)
            wanted = (twins.most_common(1)[0][0],) if len(twins) > 1 else None
        if wanted is not None and adapter.version not in wanted:
            evidence = {
                "version": adapter.version,
                "expected": " ".join(wanted),
                "board": adapter.board,
                "hca": adapter.name,
            }
            yield Finding(adapter.pci or adapter.name, "ib_firmware_drift", policy.severity, evidence)


CHECK = Check(
    name="ib_firmware",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("ib_firmware_drift",),
    worker="fabric",
    every_s=3600,
    wakes_on=("udev:infiniband",),
)
