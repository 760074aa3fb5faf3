"""A small ext4 on a loop device, which a test can fill, make read-only, or damage."""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

EXT4_IOC_SHUTDOWN, SHUTDOWN_WITHOUT_FLUSH = 0x8004587D, 2  # fs/ext4/ext4.h of Linux
TOOLS = ("losetup", "mkfs.ext4", "mount", "umount")


def missing() -> str:
    """What keeps such a disk from being made here; empty if nothing does."""
    if os.geteuid() != 0:
        return "a loop device needs root"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"a loop device needs {', '.join(absent)}" if absent else ""


class LoopDisk:
    """Mounted at `path` until `close`."""

    def __init__(self, folder: Path, size_kib: int = 4096) -> None:
        self.path, image = folder / "disk", folder / "disk.img"
        self.path.mkdir()
        image.touch()
        os.truncate(image, size_kib << 10)
        _run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image))
        _run("mount", "-o", "loop", str(image), str(self.path))

    def fill(self) -> None:
        """Until not one block is free."""
        with contextlib.suppress(OSError), (self.path / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 1024)

    def empty(self) -> None:
        (self.path / "filler").unlink()

    def make_read_only(self) -> None:
        """Before anything on it is open for writing."""
        _run("mount", "-o", "remount,ro", str(self.path))

    def die(self) -> None:
        """From now on every access is an I/O error, as after the loss of the device."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", SHUTDOWN_WITHOUT_FLUSH))
        finally:
            os.close(fd)

    def close(self) -> None:
        _run("umount", "-l", str(self.path))


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=90)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
