"""Memory in use beside the least that was in use while no job ran: /proc/meminfo (proc_meminfo(5)), and /dev/shm."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Host

GIB = 1 << 30
_FILE = "/proc/meminfo"
_FIELDS = ("MemTotal", "MemAvailable", "HugePages_Total", "HugePages_Free", "Hugepagesize")


@dataclass(frozen=True, slots=True)
class Memory:
    """In bytes. `least_used` and `least_huge`: while no job ran in this boot; None before the first such moment."""

    used: int
    huge: int
    shm: int | None  # None where there is no /dev/shm
    least_used: int | None = None
    least_huge: int | None = None


def read_memory(host: Host) -> Memory:
    """Raises ValueError where the file has no such lines."""
    found = dict(re.findall(r"^(\w+):\s+(\d{1,15})\b", host.text(_FILE), re.MULTILINE | re.ASCII))
    if missing := [name for name in _FIELDS[:2] if name not in found]:
        raise ValueError(f"{_FILE}: expected the lines {' and '.join(_FIELDS[:2])}; {' and '.join(missing)} is missing")
    total, available, huge, free, size = (int(found.get(name, 0)) for name in _FIELDS)
    try:
        space = host.statvfs("/dev/shm")  # noqa: S108 it only asks how full it is
        shm = space.total_bytes - space.free_bytes
    except FileNotFoundError:
        shm = None
    return Memory((total - available) * 1024, (huge - free) * size * 1024, shm)


def with_least(now: Memory, before: Memory | None, is_idle: bool) -> Memory:
    """`now` with the least so far, in which it counts only while no job runs."""
    used, huge = (before.least_used, before.least_huge) if before else (None, None)
    if is_idle:
        used = now.used if used is None else min(used, now.used)
        huge = now.huge if huge is None else min(huge, now.huge)
    return replace(now, least_used=used, least_huge=huge)


def left(now: Memory, before: Memory | None) -> Iterator[tuple[str, int]]:
    """What kind of memory is in use beyond the least so far, and how many bytes."""
    least = with_least(now, before, is_idle=True)
    yield "shm", now.shm or 0
    yield "huge_pages", now.huge - (least.least_huge or 0)
    yield "memory", now.used - (least.least_used or 0)
