"""Packages as packaging/build.sh makes them, and how they come onto a machine."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from machine import Machine

ROOT = Path(__file__).resolve().parents[2]
BUILD_LIMIT_S = 400.0  # 20 s on an idle machine
TOOLS = ("dpkg-deb", "rpmbuild", "cc")
# An event's way to a test: what the agent answers on its socket.
_ASK = """python3 - <<'END'
import socket
line = socket.socket(socket.AF_UNIX)
line.connect("/run/nodetriage/agent.sock")
line.sendall(b'%s\\n')
print(line.makefile().readline())
END
"""


def build(folder: Path, *options: str, package: str, formats: str = "deb rpm") -> None:
    """Skips where the tools to make packages are not there."""
    if absent := [t for t in TOOLS if shutil.which(t) is None]:
        pytest.skip(f"packages are made with {', '.join(absent)}")
    argv = [str(ROOT / "packaging/build.sh"), *options, "--out", str(folder), package]
    environment = {**os.environ, "FORMATS": formats, "ZSTD_LEVEL": "1", "SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=BUILD_LIMIT_S)
    assert done.returncode == 0, done.stderr


def only(folder: Path, pattern: str) -> Path:
    """The one file of this kind."""
    (found,) = folder.glob(pattern)
    return found


def install(machine: Machine, folder: Path, package: str) -> None:
    """By dpkg alone, which could fetch nothing even if there were a network."""
    deb = only(folder, f"{package}_*.deb")
    machine.put(deb, f"/root/{deb.name}")
    machine.run(f"dpkg -i --force-confold /root/{deb.name}; code=$?; rm /root/{deb.name}; exit $code")


def ask_agent(machine: Machine, request: str) -> str:
    """The agent's answer to one JSON request."""
    return machine.run(_ASK % request)
