"""Key files: only their owner can read them, and the owner is the user of this process."""

import os
import stat
from pathlib import Path


class NotPrivate(Exception):
    """A key file that others can read or replace. The text names the file and what to do."""


def read_private(path: Path) -> bytes:
    """The content of a key file. Raises NotPrivate, and OSError where it cannot be read."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())  # of what was opened, not of what has that name by now
        if not stat.S_ISREG(status.st_mode):
            raise NotPrivate(f"{path}: expected a regular file")
        if status.st_uid != os.geteuid():
            raise NotPrivate(
                f"{path}: expected owner uid {os.geteuid()}, got {status.st_uid}: chown {os.geteuid()} {path}"
            )
        if status.st_mode & 0o077:
            raise NotPrivate(f"{path}: others have access (mode {stat.S_IMODE(status.st_mode):04o}): chmod 0600 {path}")
        return file.read()
