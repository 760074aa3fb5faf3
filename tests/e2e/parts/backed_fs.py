"""backed_fs.py MOUNTPOINT DIR: an empty file system whose every statvfs is answered after a write below DIR.

It stands for a file server: when the disk under DIR is frozen or dead, whoever asks for MOUNTPOINT waits in the
kernel, where no signal reaches, as with a hard NFS mount. Runs till unmounted.
"""

import os
import sys
from pathlib import Path

import mfusepy

mountpoint, backing = sys.argv[1:]


class BackedFS(mfusepy.Operations):
    use_ns = True

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        return {"st_mode": 0o40755, "st_nlink": 2}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", ".."]

    def statfs(self, path: str) -> dict[str, int]:
        (Path(backing) / "asked").write_text("statfs")
        found = os.statvfs(backing)
        return {"f_bsize": found.f_bsize, "f_frsize": found.f_frsize, "f_blocks": found.f_blocks}


mfusepy.FUSE(BackedFS(), mountpoint, foreground=True, allow_other=True, fsname="backed")
