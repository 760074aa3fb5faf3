"""Local file systems that have almost no blocks or inodes left.

Reads the mount table of process 1 and calls statvfs(3) on each local, writable file system. It leaves out those of file
servers and of FUSE: a full one is no fault of this node, and fs_mounts checks that they answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, FsSpace, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.mounts import Mount, read_mounts, root_of_init


@dataclass(frozen=True, slots=True)
class Policy:
    """The node needs space on its `system` file systems; users fill the others."""

    used_pct: float = 95.0  # of the blocks
    used_inodes_pct: float = 95.0  # of the inodes
    system: tuple[str, ...] = ("/", "/var", "/var/*", "/run")  # shell patterns of mount points
    system_severity: Severity = Severity.MAJOR  # of those
    severity: Severity = Severity.WARNING  # of all others
    ignore: tuple[str, ...] = ("/run/user/*", "/media/*", "/boot/efi")  # shell patterns of mount points


@dataclass(frozen=True, slots=True)
class Usage:
    """`space` is None where statvfs(3) failed; `error` then has its errno name."""

    point: str
    source: str
    space: FsSpace | None = None
    error: str = ""


def read(host: Host) -> tuple[Usage, ...]:
    """Each file system once, at the first of its mount points. Raises Unavailable where there is none."""
    first: dict[str, Mount] = {}
    root = root_of_init(host)
    for mount in sorted((m for m in read_mounts(host) if m.local and not m.read_only), key=lambda m: len(m.point)):
        first.setdefault(mount.device, mount)
    found = []
    for mount in first.values():
        try:
            found.append(Usage(mount.point, mount.source, host.statvfs(f"{root}{mount.point}")))
        except OSError as error:
            found.append(Usage(mount.point, mount.source, error=error.strerror or str(error)))
    if not any(usage.space for usage in found):
        raise Unavailable(
            f"the space of no local file system can be read: {found[0].error if found else 'none is mounted'}"
        )
    return tuple(found)


def judge(now: tuple[Usage, ...], before: tuple[Usage, ...] | None, policy: Policy) -> Iterator[Finding]:
    """A file system that does not answer is the business of fs_mounts."""
    for usage in now:
        if usage.space is None or any(fnmatchcase(usage.point, p) for p in policy.ignore):
            continue
        severity = (
            policy.system_severity if any(fnmatchcase(usage.point, p) for p in policy.system) else policy.severity
        )
        blocks = _used_pct(usage.space.total_bytes, usage.space.free_bytes)
        inodes = _used_pct(usage.space.total_inodes, usage.space.free_inodes)
        facts: dict[str, Scalar] = {"used_pct": blocks, "used_inodes_pct": inodes, "source": usage.source}
        if blocks >= policy.used_pct:
            yield Finding(
                usage.point, "fs_full", severity, {**facts, "free_gib": round(usage.space.free_bytes / 2**30, 2)}
            )
        if inodes >= policy.used_inodes_pct:
            yield Finding(usage.point, "fs_no_inodes", severity, {**facts, "free_inodes": usage.space.free_inodes})


def _used_pct(total: int, free: int) -> float:
    """0 where the file system does not count them (btrfs and vfat have no inodes)."""
    return round(100 * (total - free) / total, 1) if 0 <= free <= total and total else 0.0


CHECK = Check(
    name="fs_full",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("fs_full", "fs_no_inodes"),
    worker="storage",
    every_s=300,
)
