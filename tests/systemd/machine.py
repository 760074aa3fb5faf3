"""Small machines with a real systemd as process 1 (systemd-nspawn), on a machine whose own process 1 is none.

All boot one tree; each keeps its changes in memory and loses them when it stops. There is no machined to ask: the
machine's process 1 is nspawn's only child, and its namespaces are entered by nsenter.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from slurm_cluster import wait_until

BOOT_LIMIT_S = 120.0
STOP_LIMIT_S = 15.0
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_POWER_OFF = signal.SIGRTMIN + 14  # systemd(1), signals: at once


class Network:
    """A bridge in a network namespace of its own; nothing in it reaches the world. `stop` removes it."""

    def __init__(self) -> None:
        self.name = f"nodetriage-{os.getpid()}"
        _ip("netns", "add", self.name)
        for words in ("link set lo up", "link add br0 type bridge", "link set br0 up"):
            _ip("-n", self.name, *words.split())

    def stop(self) -> None:
        _ip("netns", "del", self.name)


class Machine:
    """Boots at once; `stop` ends it whatever state it is in.

    `network` and `address` (IP/LENGTH) put it on a bridge; without them it is alone with its loopback.
    """

    def __init__(
        self,
        tree: Path,
        folder: Path,
        name: str,
        options: Sequence[str] = (),
        *,
        network: Network | None = None,
        address: str = "",
    ) -> None:
        self.name, self._log = name, folder / f"{name}.log"
        argv = [
            "systemd-nspawn", "--quiet", f"--directory={tree}", "--boot", "--volatile=overlay", "--register=no",
            "--keep-unit", f"--machine={name}", f"--hostname={name}", "--link-journal=no", "--console=pipe",
            "--network-bridge=br0" if network else "--private-network", *options,
        ]  # fmt: skip
        if network:  # not `ip netns exec`: its new /sys lacks the cgroups that nspawn looks for
            argv = ["nsenter", f"--net=/run/netns/{network.name}", *argv]
        with self._log.open("wb") as log:
            self._nspawn = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.pid = 0
        try:
            wait_until(self._booted, BOOT_LIMIT_S, f"{name} is up")
            if address:
                self.run(f"ip addr add {address} dev host0 && ip link set host0 up")
        except BaseException:
            self.stop()
            raise

    @property
    def root(self) -> Path:
        """Its root folder, as seen from here."""
        return Path(f"/proc/{self.pid}/root")

    def run(self, script: str, *, check: bool = True, timeout_s: float = 180) -> str:
        """Standard output of a shell script in the machine. Raises RuntimeError with all that it said."""
        done = self.attempt(script, timeout_s)
        if check and done.returncode:
            raise RuntimeError(f"{self.name}: {script}: exit {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def attempt(self, script: str, timeout_s: float = 180) -> "subprocess.CompletedProcess[str]":
        """The same, whatever comes of it."""
        inside = ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p"]
        clean = ["env", "-i", f"PATH={SYSTEM_PATH}", "HOME=/root", "TERM=dumb", "LANG=C.UTF-8", "SYSTEMD_PAGER=cat"]
        argv = [*inside, *clean, "sh", "-c", script]
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s)

    def show(self, unit: str, key: str) -> str:
        """One property of a unit, by systemd's name."""
        return self.run(f"systemctl show --property={key} --value {unit}").strip()

    def put(self, source: Path, target: str) -> None:
        """A file of ours, under `target` in the machine."""
        with source.open("rb") as content:
            self._write(target, content)

    def write(self, target: str, text: str) -> None:
        with subprocess.Popen(["printf", "%s", text], stdout=subprocess.PIPE) as said:
            assert said.stdout
            self._write(target, said.stdout)

    def stop(self) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, _POWER_OFF)
        try:
            self._nspawn.wait(STOP_LIMIT_S if self.pid else 0.1)
        except subprocess.TimeoutExpired:
            self._nspawn.kill()
            self._nspawn.wait()

    def _write(self, target: str, content: object) -> None:
        script = f"mkdir -p $(dirname {shlex.quote(target)}) && cat >{shlex.quote(target)}"
        argv = ["nsenter", "-t", str(self.pid), "-m", "sh", "-c", script]
        subprocess.run(argv, stdin=content, check=True, capture_output=True, timeout=180)  # type: ignore[call-overload]

    def _booted(self) -> bool:
        if self._nspawn.poll() is not None:
            raise RuntimeError(f"{self.name} did not start: {self._log.read_text(errors='replace')[-1000:]}")
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
        if not children:
            return False
        self.pid = int(children[0])
        said = self.attempt("systemctl is-system-running").stdout
        return said.strip() in ("running", "degraded")


def eventually(machine: Machine, script: str, expected: str, timeout_s: float = 90) -> str:
    """What the script says, once `expected` is in it. Raises TimeoutError with what it said last."""
    deadline = time.monotonic() + timeout_s
    while True:
        done = machine.attempt(script)
        if expected in done.stdout:
            return done.stdout
        if time.monotonic() > deadline:
            raise TimeoutError(f"{machine.name}: {script}: no {expected!r} in:\n{done.stdout[-3000:]}{done.stderr}")
        time.sleep(0.1)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=60)
