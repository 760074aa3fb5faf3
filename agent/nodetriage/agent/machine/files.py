"""Reading a file whole with single system calls, for the live and the recorded machine."""

import errno
import os

FILE_LIMIT_BYTES = 64 << 20  # no file that a check reads comes near this; a runaway file must not use up the memory
LINKS_LIMIT = 40  # the kernel's own limit for one path
_SYSFS_BYTES = 4096  # a page: the most that one read of a sysfs file gives (Documentation/filesystems/sysfs.rst)


def read_whole(path: str) -> bytes:
    """The file's bytes. Ignores the size in stat(2): for /proc and /sys it is wrong. Raises OSError from the kernel."""
    # O_NONBLOCK: a FIFO in the place of a file must not hang the reader; regular files ignore the flag.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        chunks: list[bytes] = []
        size = 0
        while chunk := os.read(fd, 65536):
            chunks.append(chunk)
            size += len(chunk)
            if len(chunk) < _SYSFS_BYTES and path.startswith("/sys/"):
                break  # a short read of sysfs is the whole file: this saves half of the calls
            if size > FILE_LIMIT_BYTES:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    except OSError as error:
        error.filename = error.filename or path  # os.read does not set it
        raise
    finally:
        os.close(fd)
