"""sick_fs.py MOUNTPOINT DIR CONTROL: the files of DIR at MOUNTPOINT, over FUSE, with the illness that CONTROL names.

CONTROL is read anew at each operation: "hang" (for as long as it says so), or an errno's name such as EIO or ESTALE;
"only OP..." after it leaves all but some of getattr, open, read, write, fsync, statfs well. A loop device over one of
the files gives the illness to a block device. Runs till unmounted.
"""

import errno
import os
import sys
import time
from pathlib import Path

import mfusepy

STAT = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size")
STATVFS = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_ffree", "f_files", "f_frsize", "f_namemax")
POLL_S = 0.05

mountpoint, directory, control = sys.argv[1:]


def ail(operation: str) -> None:
    while True:
        words = Path(control).read_text().split()
        if not words or ("only" in words and operation not in words[words.index("only") :]):
            return
        if words[0] != "hang":
            raise mfusepy.FuseOSError(getattr(errno, words[0]))
        time.sleep(POLL_S)


class SickFS(mfusepy.Operations):
    use_ns = True

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        ail("getattr")
        found = os.lstat(directory + path)
        times = {name: getattr(found, f"{name}_ns") for name in ("st_atime", "st_mtime", "st_ctime")}
        return {name: getattr(found, name) for name in STAT} | times

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *(found.name for found in Path(directory + path).iterdir())]

    def statfs(self, path: str) -> dict[str, int]:
        ail("statfs")
        found = os.statvfs(directory + path)
        return {name: getattr(found, name) for name in STATVFS}

    def open(self, path: str, flags: int) -> int:
        ail("open")
        return os.open(directory + path, flags & ~os.O_DIRECT)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        ail("read")
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        ail("write")
        return os.pwrite(fh, data, offset)

    def fsync(self, path: str, datasync: int, fh: int) -> None:
        ail("fsync")
        os.fsync(fh)

    def release(self, path: str, fh: int) -> None:
        os.close(fh)


mfusepy.FUSE(SickFS(), mountpoint, foreground=True, allow_other=True, fsname="sick", attr_timeout=0, entry_timeout=0)
