"""A Debian of this machine's own release with a systemd to boot, made once by debootstrap and kept outside the project.

It lies beside the other trees of the tests, under $NODETRIAGE_TEST_CACHE or /var/cache/nodetriage-tests, and may go.
"""

import fcntl
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from debian13 import mirror

# What a node has before we come: Python of the release, and Slurm with munge for the lab.
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "procps", "iproute2", "init-system-helpers",
    "python3", "munge", "slurmd", "slurmctld", "slurm-client",
)  # fmt: skip
SERVICES = ("munge", "slurmd", "slurmctld")  # started by the tests that want them
SETUP_LIMIT_S = 400.0  # about 45 s where the mirror is near


def missing() -> str:
    """What keeps a machine from being booted here; empty if nothing does."""
    if os.geteuid() != 0:
        return "booting a machine needs root"
    absent = [p for p in ("debootstrap", "systemd-nspawn", "nsenter", "ip") if shutil.which(p) is None]
    return f"booting a machine needs {', '.join(absent)}" if absent else ""


def tree() -> Path:
    """The tree, made if it is not there. Skips without the means, fails where the packages cannot be fetched."""
    if reason := missing():
        pytest.skip(reason)
    release = platform.freedesktop_os_release()
    if release.get("ID") != "debian":
        pytest.skip("the packages are tried on this machine's own Debian release, and this is none")
    cache = Path(os.environ.get("NODETRIAGE_TEST_CACHE", "/var/cache/nodetriage-tests"))
    cache.mkdir(parents=True, exist_ok=True)
    root = cache / f"machine-{release['VERSION_CODENAME']}"
    with (cache / "machine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "complete").exists() or (root / "complete").read_text() != " ".join(PACKAGES):
            _make(root, release["VERSION_CODENAME"])
    return root


def _make(root: Path, codename: str) -> None:
    shutil.rmtree(root, ignore_errors=True)
    include = ",".join(PACKAGES)
    argv = ["debootstrap", "--variant=minbase", f"--include={include}", codename, str(root), *mirror()]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SETUP_LIMIT_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"debootstrap of {codename}: not done after {SETUP_LIMIT_S:g} s")
    if done.returncode:
        pytest.fail(f"debootstrap of {codename}: {(done.stdout + done.stderr)[-600:]}")
    (root / "etc/hostname").unlink(missing_ok=True)  # each machine has its own
    for archive in (root / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    subprocess.run(["chroot", str(root), "systemctl", "--quiet", "disable", *SERVICES], check=True, capture_output=True)
    (root / "complete").write_text(" ".join(PACKAGES))
