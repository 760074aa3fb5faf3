"""Disks and file systems that fail, as the kernel logs it: I/O errors, resets, lost RAID members, forced read-only.

Source: the kernel log: block/blk-core.c, drivers/nvme/host, drivers/md, fs/ext4, fs/xfs, fs/btrfs. The part of an NVMe
disk is its PCI address, as its number changes between boots; others have the kernel's name.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, Host, Severity
from nodetriage.checks.readers.pci import ADDRESS
from nodetriage.checks.rules.disk_lines import RULES
from nodetriage.checks.rules.kernel_lines import Event, events, findings, nothing, pattern

_NVME = re.compile(r"(nvme\d+)(?:c\d+)?(?:n\d+)?(?:p\d+)?")


@dataclass(frozen=True, slots=True)
class Policy:
    """What each is worth; devices in `ignore` are not judged."""

    ignore: tuple[str, ...] = ("loop*", "nbd*", "fd*", "sr*", "ram*", "zram*")  # patterns: files and media of users
    io_error: Severity = Severity.MAJOR
    disk_reset: Severity = Severity.MAJOR
    disk_lost: Severity = Severity.CRITICAL
    fs_error: Severity = Severity.MAJOR
    fs_read_only: Severity = Severity.CRITICAL


def read(host: Host) -> tuple[Event, ...]:
    """`component` is the disk's PCI address where it has one, else the kernel's name."""
    return tuple(replace(e, component=_pci(host, e.component) or e.component) for e in events(host.kernel_log(), RULES))


def _pci(host: Host, name: str) -> str:
    found = _NVME.fullmatch(name)
    try:
        address = host.link(f"/sys/class/nvme/{found[1]}/device").name.lower() if found else ""
    except OSError:
        return ""  # it is gone: its name is all there is
    return address if ADDRESS.fullmatch(address) else ""


def judge(now: tuple[Event, ...], before: tuple[Event, ...] | None, policy: Policy) -> Iterator[Finding]:
    """One finding a part and fault."""
    merged: dict[tuple[str, str], Event] = {}
    for event in now:
        known = merged.get((event.kind, event.component), replace(event, lines=0))
        merged[event.kind, event.component] = replace(known, lines=known.lines + event.lines)
    seen = [e for e in merged.values() if not any(fnmatchcase(e.component, p) for p in policy.ignore)]
    kinds = ("io_error", "disk_reset", "disk_lost", "fs_error", "fs_read_only")
    names = {"io_error": "disk_io_error", "fs_read_only": "fs_forced_read_only"}
    yield from findings(seen, {kind: (names.get(kind, kind), getattr(policy, kind)) for kind in kinds})


CHECK = Check(
    name="disk_errors",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("disk_io_error", "disk_reset", "disk_lost", "fs_error", "fs_forced_read_only"),
    next_state=nothing,
    kernel_pattern=pattern(RULES),
)
