"""What the kernel kept in persistent storage when it stopped (Documentation/ABI/testing/pstore, systemd-pstore(8))."""

import re
from collections.abc import Iterator

from nodetriage.checks.model import Host

MOST_LINES = 2000
_OLD_S = 86_400  # an archive of an earlier day is not of the last boot
_NAMES = ("*/dmesg.txt", "*/*/dmesg.txt", "*/dmesg-*")
_PREFIX = re.compile(r"^(?:<\d{1,3}>)?(?:\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? )?")
_ARCHIVE = re.compile(r"/(\d{10})\d*(?:/|$)")


def kept_lines(host: Host) -> tuple[str, ...]:
    """The lines of the kernel's log that were saved, without time stamps; those of the newest record last."""
    found: list[str] = []
    for path in _files(host):
        found += (_PREFIX.sub("", line) for line in host.text(path).splitlines())
    return tuple(found[-MOST_LINES:])


def _files(host: Host) -> Iterator[str]:
    """What systemd-pstore has moved away already, if it is of the time before this boot, then what it has not."""
    kept = (str(path) for name in _NAMES for path in host.glob(f"/var/lib/systemd/pstore/{name}"))
    for path in kept:
        at, booted_s = _ARCHIVE.search(path), _booted_unix_s(host)
        if at and booted_s - _OLD_S <= int(at[1]) <= booted_s + 600:
            yield path
    yield from map(str, host.glob("/sys/fs/pstore/dmesg-*"))


def _booted_unix_s(host: Host) -> int:
    found = re.search(r"^btime (\d{1,12})$", host.text("/proc/stat"), re.MULTILINE | re.ASCII)
    if found is None:
        raise ValueError('/proc/stat: expected a line "btime NUMBER", found none')
    return int(found[1])
