"""A Debian 13 tree with Slurm 24.11 in it, made once by debootstrap and kept outside the project; safe to delete.

It lies under $NODETRIAGE_TEST_CACHE, or /var/cache/nodetriage-tests. A link inside it makes its own path name it from
within as well, so that one path means the same file to a daemon in the tree and to a test outside.
"""

import contextlib
import fcntl
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# What the tests of this folder are parametrised by.
THIS_MACHINE, DEBIAN13 = "this-machine", "debian13"
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurmrestd", "slurm-wlm-jwt-plugin", "munge")
COMMANDS = ("scontrol", "sinfo", "squeue", "sbatch", "scancel", "srun", "salloc")
SETUP_LIMIT_S = 250.0  # about 35 s where the mirror is near
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The mounts are in a namespace of the daemon's own, and go with it.
_ENTER = """
for d in proc dev sys; do mount --rbind "/$d" "$0/$d"; done
exec chroot "$0" "$@"
"""


def entering(root: Path) -> list[str]:
    """What to put before a command to run it in the tree, with /proc, /dev and /sys."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, str(root)]


def tree() -> Path:
    """The tree, made if it is not there. Fails the test, saying why, where that cannot be done."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("Slurm 24.11 in a Debian 13 tree needs root and debootstrap")
    cache = Path(os.environ.get("NODETRIAGE_TEST_CACHE", "/var/cache/nodetriage-tests"))
    cache.mkdir(parents=True, exist_ok=True)
    root = cache / "debian13"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "complete").exists():
            _make(root)
    _name_this_host(root)
    return root


@contextlib.contextmanager
def folder_in(root: Path) -> Iterator[Path]:
    """A folder of this session's own in the tree. What sessions that were killed left there is removed first."""
    clusters = root / "clusters"
    clusters.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        with (root / "clusters.lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            for old in clusters.iterdir():
                _remove_if_left(old)
            folder = Path(tempfile.mkdtemp(dir=clusters))
            folder.chmod(0o755)
            mine = stack.enter_context((folder / "session").open("w"))
            fcntl.flock(mine, fcntl.LOCK_EX)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def _remove_if_left(folder: Path) -> None:
    """Its session holds a lock for as long as it lives."""
    with contextlib.suppress(BlockingIOError), (folder / "session").open("a") as session:
        fcntl.flock(session, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)


def _make(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    where = " ".join(mirror()) or "debootstrap's default mirror"
    _run(["debootstrap", "--variant=minbase", "trixie", str(root), *mirror()], f"could not fetch from {where}")
    # No service is to start by being installed.
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    apt = [*entering(root), "env", "DEBIAN_FRONTEND=noninteractive", f"PATH={SYSTEM_PATH}", "apt-get"]
    _run([*apt, "update"], f"apt-get update in {root} could not reach {where}")
    _run([*apt, "install", "-y", "--no-install-recommends", *PACKAGES], f"apt-get install in {root}")
    inside = root / str(root).lstrip("/")
    inside.parent.mkdir(parents=True, exist_ok=True)
    inside.symlink_to("/")
    _wrap_commands(root)
    (root / "complete").touch()


def mirror() -> list[str]:
    """The one that this machine installs from; none where it names none: debootstrap has a default."""
    lists = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    text = "\n".join(p.read_text() for p in lists if p.is_file())
    found = re.search(r"^(?:URIs: |deb (?:\[[^]]*\] )?)(http\S*/debian/?)(?:\s|$)", text, re.MULTILINE)
    return [found[1]] if found else []


def _wrap_commands(root: Path) -> None:
    """Slurm's commands as programs of this machine, in the tree's folder host-bin. They need no mounts."""
    folder = root / "host-bin"
    folder.mkdir()
    for name in COMMANDS:
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec chroot {root} /usr/bin/{name} "$@"\n')
        path.chmod(0o755)


def _name_this_host(root: Path) -> None:
    host = socket.gethostname().partition(".")[0]
    hosts = root / "etc/hosts"
    if not hosts.exists() or host not in hosts.read_text().split():
        hosts.write_text(f"127.0.0.1 localhost {host}\n")


def _run(argv: list[str], what: str) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SETUP_LIMIT_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{what}: not done after {SETUP_LIMIT_S:g} s")
    if done.returncode:
        pytest.fail(f"{what}: {(done.stdout + done.stderr)[-600:]}")
