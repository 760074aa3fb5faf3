"""Numbers in files of sysfs and procfs. What is no number is an error that names the file, never a default."""

import errno
from pathlib import PurePosixPath

from nodetriage.checks.model import Host

# Answers that mean "not for you" or "not on this device": the rest of the device is still worth a look.
REFUSED = (errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM)
_DIGITS = 20  # of 64 bits


def count(host: Host, path: str | PurePosixPath) -> int:
    """The count that the file holds. Raises OSError as the kernel gives it, ValueError where it is no count."""
    return to_count(host.text(path), path)


def count_if_told(host: Host, path: str | PurePosixPath) -> int | None:
    """None where there is no such file, or this function of the device may not ask. Raises what `count` raises."""
    try:
        return count(host, path)
    except OSError as error:
        if error.errno in REFUSED:
            return None
        raise


def count_if_answered(host: Host, path: str | PurePosixPath) -> int | None:
    """As `count_if_told`, of a file whose driver logs a line each time it refuses: it is asked once."""
    try:
        text = host.ask_once(path)
    except OSError as error:
        if error.errno in REFUSED:
            return None
        raise
    return to_count(text, path)


def text_if_told(host: Host, path: str | PurePosixPath) -> str:
    """The file's text; "" where there is none, or the driver refuses. Raises OSError for any other answer."""
    try:
        return host.text(path)
    except OSError as error:
        if error.errno in REFUSED:
            return ""
        raise


def to_count(text: str, where: str | PurePosixPath) -> int:
    """Raises ValueError that names `where`."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise ValueError(f"{where}: expected a count, got {text[:40]!r}")
    return int(text)


def told(error: Exception, path: str | PurePosixPath) -> str:
    """An error of a read as one line that names the file."""
    if isinstance(error, OSError):
        return f"{error.filename or path}: {error.strerror or error}"
    return str(error)
