"""The agent's tests: a folder that tells the trial checks what to do, and a file system that can be frozen."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TRIAL_CHECKS = Path(__file__).parent / "trial"


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the trial checks, here and in every process that the test starts."""
    folder = tmp_path / "trial"
    (folder / "mount").mkdir(parents=True)
    monkeypatch.setenv("TRIAL", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(TRIAL_CHECKS))
    monkeypatch.syspath_prepend(str(TRIAL_CHECKS))
    return folder


class Frozen:
    """An ext4 on a loop device: writing to it sleeps uninterruptibly while it is frozen."""

    def __init__(self, mount: Path) -> None:
        self._mount = mount
        self.is_frozen = False

    def freeze(self) -> None:
        subprocess.run(["fsfreeze", "-f", self._mount], check=True)
        self.is_frozen = True

    def thaw(self) -> None:
        if self.is_frozen:
            subprocess.run(["fsfreeze", "-u", self._mount], check=True)
            self.is_frozen = False


@pytest.fixture
def disk(trial: Path, tmp_path: Path) -> Iterator[Frozen]:
    """A real file system at trial/mount, thawed and unmounted whatever the test did."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, trial / "mount"], check=True)
    frozen = Frozen(trial / "mount")
    try:
        yield frozen
    finally:
        frozen.thaw()
        subprocess.run(["umount", "-l", trial / "mount"], check=True)
        sys.stdout.flush()
