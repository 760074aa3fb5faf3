"""File systems that are not mounted, read-only, stale, failing or hung.

Reads the mount table of process 1, /proc/1/mountinfo (proc_pid_mountinfo(5)), because the agent may run in a mount
namespace of its own. The settings and /etc/fstab (fstab(5)) say which mounts to expect. A statvfs(2) that does not
return makes the check hang, and the finding `mount_hung` names the mount.
"""

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity
from nodetriage.checks.readers.mounts import Fstab, Mount, on_autofs, read_fstab, read_mounts, root_of_init
from nodetriage.checks.rules.disk_lines import MOUNT_FAILS

_UNSEEN = ("EACCES", "EPERM", "ENOENT")  # the agent may not see it, or it was just unmounted


@dataclass(frozen=True, slots=True)
class Expected:
    """One mount that jobs need."""

    read_only: bool = False  # it may be read-only
    severity: Severity = Severity.CRITICAL  # of each fault of it


@dataclass(frozen=True, slots=True)
class Policy:
    """A mount that neither `expected` nor /etc/fstab names is major at most, unless the kernel made it read-only."""

    expected: Mapping[str, Expected] = field(default_factory=dict)  # by mount point
    from_fstab: bool = True  # expect the entries of /etc/fstab too
    ignore: tuple[str, ...] = ("/run/user/*", "/media/*")  # shell patterns of mount points


@dataclass(frozen=True, slots=True)
class Table:
    """`writable` is kept from earlier runs: mount points that were writable at some time in this boot."""

    mounts: tuple[Mount, ...]
    fstab: tuple[Fstab, ...]
    writable: tuple[str, ...] = ()


def read(host: Host) -> Table:
    """Asks each file system with a disk or server behind it; leaves out autofs triggers, which asking would mount."""
    mounts, root = read_mounts(host), root_of_init(host)
    return Table(tuple(replace(m, error=_probe(host, m, root)) for m in mounts), read_fstab(host))


def _probe(host: Host, mount: Mount, root: str) -> str:
    if not mount.real or mount.automounted:
        return ""
    try:
        host.statvfs(f"{root}{mount.point}")
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "unknown")
    return ""


def next_state(before: Table | None, now: Table) -> Table:
    """`now`, with each mount point that was ever writable."""
    writable = {m.point for m in now.mounts if not m.read_only} | set(before.writable if before else ())
    return replace(now, writable=tuple(sorted(writable)))


def judge(now: Table, before: Table | None, policy: Policy) -> Iterator[Finding]:
    expected = _expected(now, policy)
    mounted = {m.point: m for m in now.mounts}
    for point, missing in expected.items():
        if point not in mounted and not on_autofs(point, now.mounts):
            entry = next((e for e in now.fstab if e.point == point), None)
            facts: dict[str, Scalar] = {"fstype": entry.fstype, "source": entry.source} if entry else {}
            yield Finding(point, "mount_missing", missing.severity, facts)
    for mount in now.mounts:
        wanted = expected.get(mount.point)
        if any(fnmatchcase(mount.point, p) for p in policy.ignore) or (mount.by_user and wanted is None):
            continue
        severity = wanted.severity if wanted else Severity.MAJOR
        facts = {"fstype": mount.fstype, "source": mount.source}
        if mount.error == "ESTALE":
            yield Finding(mount.point, "mount_stale", severity, facts)
        elif mount.error and mount.error not in _UNSEEN:
            yield Finding(mount.point, "mount_failing", severity, {**facts, "error": mount.error})
        if mount.emergency:
            yield Finding(mount.point, "mount_read_only", Severity.CRITICAL, {**facts, "emergency_ro": True})
        elif mount.read_only and _should_write(mount, wanted, before):
            yield Finding(mount.point, "mount_read_only", severity, facts)


def _should_write(mount: Mount, wanted: Expected | None, before: Table | None) -> bool:
    if wanted is not None:
        return not wanted.read_only
    # Without settings it should be what it was. Only the whole file system counts, not one bind mount of it.
    return mount.real and mount.super_read_only and before is not None and mount.point in before.writable


def _expected(now: Table, policy: Policy) -> dict[str, Expected]:
    found = {}
    for entry in now.fstab if policy.from_fstab else ():
        if entry.wanted:
            severity = Severity.MAJOR if "nofail" in entry.options else Severity.CRITICAL
            found[entry.point] = Expected("ro" in entry.options, severity)
    return {**found, **policy.expected}


CHECK = Check(
    name="fs_mounts",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("mount_missing", "mount_read_only", "mount_stale", "mount_failing"),
    worker="storage",
    next_state=next_state,
    kernel_wakes=MOUNT_FAILS,
    wakes_on=("mounts",),
    hung_fault="mount_hung",
    in_prolog=True,
)
