"""Counts and words in files of sysfs and procfs (Documentation/filesystems/sysfs.rst, proc(5)): one value in each file.

A file that does not hold what it should is an error that names the file, never a default.
"""

import errno
from pathlib import PurePosixPath

from nodetriage.checks.model import Host

# The file does not exist on this device, or this function of the device may not read it.
REFUSED = (errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM)
_DIGITS = 20  # of the largest 64-bit number


def count(host: Host, path: str | PurePosixPath) -> int:
    """The whole number in the file, 0 or more. Raises OSError as the kernel gives it, ValueError for no count."""
    return to_count(host.text(path), path)


def optional_count(host: Host, path: str | PurePosixPath) -> int | None:
    """As `count`; None where the file does not exist or this function of the device may not read it."""
    try:
        return count(host, path)
    except OSError as error:
        if error.errno in REFUSED:
            return None
        raise


def optional_count_once(host: Host, path: str | PurePosixPath) -> int | None:
    """As `optional_count`, for a file whose driver logs a line each time it refuses: one refusal is remembered."""
    try:
        text = host.ask_once(path)
    except OSError as error:
        if error.errno in REFUSED:
            return None
        raise
    return to_count(text, path)


def optional_text(host: Host, path: str | PurePosixPath) -> str:
    """The file's text; "" where it does not exist or the driver refuses. Raises OSError for any other error."""
    try:
        return host.text(path)
    except OSError as error:
        if error.errno in REFUSED:
            return ""
        raise


def to_count(text: str, where: str | PurePosixPath) -> int:
    """`text` as a count. Raises ValueError that names the file `where`."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise ValueError(f"{where}: expected a count, got {text[:40]!r}")
    return int(text)


def error_line(error: Exception, path: str | PurePosixPath) -> str:
    """The error of a read in one line that names the file."""
    if isinstance(error, OSError):
        return f"{error.filename or path}: {error.strerror or error}"
    return str(error)
