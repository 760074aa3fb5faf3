"""A mount that stops answering when its disk is frozen: FUSE over ext4 on a loop device."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from programs import Program
from slurm_cluster import wait_until

TOOLS = ("fusermount3", "losetup", "mkfs.ext4", "fsfreeze", "mount", "umount")


def missing() -> str:
    """What keeps such a mount from being made here; empty if nothing does."""
    if os.geteuid() != 0:
        return "a frozen file system needs root"
    absent = [t for t in TOOLS if shutil.which(t) is None]
    return f"a frozen file system needs {', '.join(absent)}" if absent else ""


class FreezableMount:
    """`point` is a mount that answers until `freeze()` and again after `thaw()`; `disk` is what is behind it."""

    def __init__(self, folder: Path) -> None:
        self.point = folder / "scratch"
        self.disk, image = folder / "disk", folder / "image"
        self.point.mkdir()
        self.disk.mkdir()
        image.touch()
        os.truncate(image, 16 << 20)
        _run("mkfs.ext4", "-q", str(image))
        _run("mount", "-o", "loop", str(image), str(self.disk))
        server = Path(__file__).with_name("backed_fs.py")
        self._server = Program(folder / "server.log", sys.executable, str(server), str(self.point), str(self.disk))
        try:
            wait_until(self.point.is_mount, 60, f"{self.point} is mounted")
        except BaseException:
            self.close()
            raise

    def freeze(self) -> None:
        _run("fsfreeze", "--freeze", str(self.disk))

    def thaw(self) -> None:
        _run("fsfreeze", "--unfreeze", str(self.disk))

    def thaw_if_frozen(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.thaw()

    def close(self) -> None:
        """Frees whoever waits for the mount, and takes everything down."""
        self.thaw_if_frozen()
        with contextlib.suppress(RuntimeError):
            _run("fusermount3", "-u", "-z", str(self.point))
        self._server.stop()
        _run("umount", "-l", str(self.disk))  # somebody may just be asking it for its size


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=90)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
