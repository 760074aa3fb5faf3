"""Key files: readable by their owner alone, and the owner is who reads them."""

import os
import stat
from pathlib import Path


class NotPrivate(Exception):
    """A key file that others could read or replace; the text names the file and what to do."""


def read_private(path: Path) -> bytes:
    """The content of a key file. Raises NotPrivate, and OSError where it cannot be read."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())  # of what was opened, not of what has that name by now
        if not stat.S_ISREG(status.st_mode):
            raise NotPrivate(f"{path}: expected a regular file")
        if status.st_uid != os.geteuid():
            raise NotPrivate(f"{path}: must belong to uid {os.geteuid()}, who reads it, not to uid {status.st_uid}")
        if status.st_mode & 0o077:
            raise NotPrivate(f"{path}: others have access (mode {stat.S_IMODE(status.st_mode):04o}): chmod 0600 {path}")
        return file.read()
