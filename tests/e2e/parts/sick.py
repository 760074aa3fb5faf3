"""A file system and a block device that fall ill when told: FUSE, and ext4 on a loop device over one of its files."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from programs import Program
from slurm_cluster import wait_until

TOOLS = ("fusermount3", "losetup", "mkfs.ext4", "mount", "umount", "unshare")
_LOOP_CTL_REMOVE = 0x4C81  # linux/loop.h


def missing() -> str:
    """What keeps such a mount from being made here; empty if nothing does."""
    if os.geteuid() != 0:
        return "a sick file system needs root"
    absent = [t for t in TOOLS if shutil.which(t) is None]
    return f"a sick file system needs {', '.join(absent)}" if absent else ""


class SickMount:
    """`point` is a FUSE mount over `behind`; `ails` says how it is to answer from now on."""

    def __init__(self, folder: Path) -> None:
        self.point, self.behind, self._control = folder / "sick", folder / "behind", folder / "control"
        self.point.mkdir()
        self.behind.mkdir()
        self._control.touch()
        program = str(Path(__file__).with_name("sick_fs.py"))
        argv = (sys.executable, program, str(self.point), str(self.behind), str(self._control))
        self._server = Program(folder / "sick.log", *argv)
        try:
            wait_until(self.point.is_mount, 60, f"{self.point} is mounted")
        except BaseException:
            self.close()
            raise

    def ails(self, illness: str) -> None:
        whole = self._control.with_name("control.new")
        whole.write_text(illness)
        whole.replace(self._control)

    def close(self) -> None:
        """Frees whoever waits for the mount, and takes it down."""
        self.ails("")
        with contextlib.suppress(RuntimeError):
            _run("fusermount3", "-u", "-z", str(self.point))
        self._server.kill()


class SickDisk:
    """An ext4 at `point` on the loop device `name` over a file of a sick mount."""

    def __init__(self, folder: Path) -> None:
        self.mount = SickMount(folder)
        self.point = folder / "data"
        # A number that nobody had since boot, so that the kernel's log has no older lines about the device.
        self._number = 1000 + os.getpid() % 500_000
        self.name = f"loop{self._number}"
        try:
            self.point.mkdir()
            image = self.mount.behind / "image"
            image.touch()
            os.truncate(image, 16 << 20)
            _run("mkfs.ext4", "-q", str(image))
            _run("losetup", f"/dev/{self.name}", str(self.mount.point / "image"))
            _run("mount", "-o", "errors=remount-ro", f"/dev/{self.name}", str(self.point))
        except BaseException:
            self.close()
            raise

    def write(self) -> None:
        """Writes through to the device; that it fails is the point."""
        with contextlib.suppress(OSError):
            fd = os.open(self.point / "file", os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.write(fd, b"x" * 65536)
                os.fsync(fd)
            finally:
                os.close(fd)

    def close(self) -> None:
        self.mount.ails("")
        for argv in (("umount", "-l", str(self.point)), ("losetup", "-d", f"/dev/{self.name}")):
            with contextlib.suppress(RuntimeError):
                _run(*argv)
        self.mount.close()
        with contextlib.suppress(OSError), Path("/dev/loop-control").open("rb") as control:
            wait_until(lambda: _removed(control.fileno(), self._number), 60, f"/dev/{self.name} is free")


def _removed(control: int, number: int) -> bool:
    try:
        fcntl.ioctl(control, _LOOP_CTL_REMOVE, number)
    except OSError:
        return False
    return True


def _run(*argv: str) -> None:
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=90)
    if ran.returncode:
        raise RuntimeError(f"{argv}: {ran.stderr.strip()}")
