"""The lock on the controller's folder: one controller in it at a time, and no upgrade of its tables under one."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from nodetriage.checks.model.settings import ConfigError

FILE = "lock"


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Locks the folder for this process; the kernel ends the lock however the process ends.

    Raises ConfigError where another process holds it, or the folder cannot be written.
    """
    try:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        file = os.open(folder / FILE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"controller.state_dir: {folder}: {error.strerror}") from error
    try:
        _lock(file, folder)
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(file)


@contextlib.contextmanager
def no_controller(folder: Path) -> Iterator[None]:
    """Holds the lock while something else works on the folder. Without a lock file no controller ever ran there.

    It makes no file: a controller that runs as another user could not open it.
    """
    try:
        file = os.open(folder / FILE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        _lock(file, folder)
        yield
    finally:
        os.close(file)


def _lock(file: int, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(file, 20).decode(errors="replace").strip()
        raise ConfigError(
            f"controller.state_dir: {folder} is in use by another controller (pid {holder}): stop that one first"
        ) from None
