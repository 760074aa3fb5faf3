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
from nodetriage.checks.rules.kernel_lines import UNKNOWN_DEVICE, Event, events, findings, pattern

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


@dataclass(frozen=True, slots=True)
class Log:
    """What the kernel said of disks, and the names of those that it has, in the memory of all that it had since boot.

    `names` is None where they are not known: then a line counts whatever it names.
    """

    events: tuple[Event, ...] = ()
    names: tuple[str, ...] | None = None


def read(host: Host) -> Log:
    """`component` is the disk's PCI address where it has one, else the kernel's name."""
    found = events(host.kernel_log(), RULES)
    named = tuple(replace(e, component=_pci(host, e.component) or e.component) for e in found)
    blocks = host.glob("/sys/class/block/*")
    return Log(named, tuple(p.name for p in (*blocks, *host.glob("/sys/class/nvme/nvme*"))) if blocks else None)


def _pci(host: Host, name: str) -> str:
    found = _NVME.fullmatch(name)
    try:
        address = host.link(f"/sys/class/nvme/{found[1]}/device").name.lower() if found else ""
    except OSError:
        return ""  # it is gone: its name is all there is
    return address if ADDRESS.fullmatch(address) else ""


def judge(now: Log, before: Log | None, policy: Policy) -> Iterator[Finding]:
    """One finding a part and fault; lines about a disk that is not here, and was not in this boot, are a warning."""
    names = next_state(before, now).names
    merged: dict[tuple[str, str], Event] = {}
    for event in now.events:
        kind = event.kind if _is_here(event.component, names) else "unknown"
        known = merged.get((kind, event.component), replace(event, kind=kind, lines=0))
        merged[kind, event.component] = replace(known, lines=known.lines + event.lines)
    seen = [e for e in merged.values() if not any(fnmatchcase(e.component, p) for p in policy.ignore)]
    kinds = ("io_error", "disk_reset", "disk_lost", "fs_error", "fs_read_only")
    codes = {"io_error": "disk_io_error", "fs_read_only": "fs_forced_read_only"}
    worth = {kind: (codes.get(kind, kind), getattr(policy, kind)) for kind in kinds}
    yield from findings(seen, {**worth, "unknown": UNKNOWN_DEVICE})


def _is_here(component: str, names: tuple[str, ...] | None) -> bool:
    """A PCI address comes from the disk itself; a namespace or partition of an NVMe disk goes with its controller."""
    if names is None or ADDRESS.fullmatch(component) or component in names:
        return True
    found = _NVME.fullmatch(component)
    return found is not None and found[1] in names


def next_state(before: Log | None, now: Log) -> Log:
    """The names of all disks that were here since boot."""
    if now.names is None:
        return Log(names=before.names if before else None)
    return Log(names=tuple(sorted({*now.names, *((before.names if before else None) or ())})))


CHECK = Check(
    name="disk_errors",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=(
        "disk_io_error",
        "disk_reset",
        "disk_lost",
        "fs_error",
        "fs_forced_read_only",
        "kernel_line_unknown_device",
    ),
    next_state=next_state,
    kernel_pattern=pattern(RULES),
)
