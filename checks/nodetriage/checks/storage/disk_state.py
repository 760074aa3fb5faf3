"""NVMe controllers that are dead or stuck, and RAID sets that lack a member or have failed, as the kernel knows them.

Reads /sys/class/nvme/NAME/state (drivers/nvme/host/sysfs.c) and /sys/block/mdN/md (Documentation/admin-guide/md.rst).
It asks no disk, so it runs often; disk_health asks the disks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.disks import Controller, read_controllers
from nodetriage.checks.readers.md import Array, read_arrays

_PASSING = ("new", "resetting", "connecting", "deleting", "deleting (no IO)")
_SPARES = {"raid0": 0, "linear": 0, "raid4": 1, "raid5": 1, "raid6": 2}  # members that a set can lose


@dataclass(frozen=True, slots=True)
class Policy:
    """What each is worth."""

    stuck_s: float = 60.0  # how long a controller may reset or connect
    stuck: Severity = Severity.MAJOR  # of a controller that does so for longer
    degraded: Severity = Severity.MAJOR  # of a RAID set that goes on without a member
    failed: Severity = Severity.CRITICAL  # of a RAID set that lost more than it can


@dataclass(frozen=True, slots=True)
class Disks:
    """What the kernel says of NVMe controllers and RAID sets."""

    controllers: tuple[Controller, ...] = ()
    arrays: tuple[Array, ...] = ()


def read(host: Host) -> Disks:
    """Raises Unavailable where there is neither an NVMe controller nor a RAID set."""
    found = Disks(read_controllers(host), read_arrays(host))
    if not found.controllers and not found.arrays:
        raise Unavailable("no NVMe controller and no RAID set in /sys")
    return found


def next_state(before: Disks | None, now: Disks) -> Disks:
    """The newest reading, with since when each controller resets or connects."""
    old = {c.name: c for c in before.controllers} if before else {}
    return replace(now, controllers=tuple(_since(old.get(c.name), c) for c in now.controllers))


def _since(old: Controller | None, now: Controller) -> Controller:
    passing = now.state in _PASSING
    since_s = old.passing_since_s if old and old.passing_since_s is not None else now.at_s
    return replace(now, passing_since_s=since_s if passing else None)


def judge(now: Disks, before: Disks | None, policy: Policy) -> Iterator[Finding]:
    """One finding for a disk, however many sets it belongs to."""
    for disk in next_state(before, now).controllers:
        facts: dict[str, Scalar] = {"device": f"/dev/{disk.name}", "state": disk.state, "transport": disk.transport}
        if disk.state == "dead":
            yield Finding(disk.component, "disk_dead", Severity.CRITICAL, facts)
        elif disk.passing_since_s is not None and disk.at_s - disk.passing_since_s >= policy.stuck_s:
            stuck = {**facts, "since_s": round(disk.at_s - disk.passing_since_s)}
            yield Finding(disk.component, "disk_stuck", policy.stuck, stuck)
    faulty: dict[str, list[str]] = {}
    for array in now.arrays:
        yield from _judge_array(array, policy)
        for member in array.members:
            if member.faulty and not _has_failed(array):
                faulty.setdefault(member.disk, []).append(f"{array.name}:{member.device}")
    for disk_name, sets in faulty.items():
        yield Finding(disk_name, "raid_degraded", policy.degraded, {"members": " ".join(sets[:16])})


def _judge_array(array: Array, policy: Policy) -> Iterator[Finding]:
    facts: dict[str, Scalar] = {"device": f"/dev/{array.name}", "level": array.level, "state": array.state}
    facts |= {"missing_members": array.missing, "disks": array.disks, "syncing": array.syncing}
    if array.error:
        yield Finding(array.name, "disk_unreadable", Severity.WARNING, {"error": array.error})
    elif _has_failed(array):
        yield Finding(array.name, "raid_failed", policy.failed, facts)
    elif array.missing > sum(member.faulty for member in array.members):  # a disk that is gone has no name any more
        yield Finding(array.name, "raid_degraded", policy.degraded, facts)


def _has_failed(array: Array) -> bool:
    if array.level == "raid1":
        return 0 < array.disks <= array.missing
    return array.state == "broken" or array.missing > _SPARES.get(array.level, array.missing)


CHECK = Check(
    name="disk_state",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("disk_dead", "disk_stuck", "disk_unreadable", "raid_degraded", "raid_failed"),
    worker="storage",
    every_s=60,
    next_state=next_state,
    wakes_on=("udev:nvme",),
    in_prolog=True,
)
