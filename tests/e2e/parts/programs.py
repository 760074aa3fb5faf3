"""The two real programs of the project, started, killed and looked into by tests and benchmarks."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

BIN = Path(sys.executable).parent
NODETRIAGE, NODETRIAGECTL = str(BIN / "nodetriage"), str(BIN / "nodetriagectl")


class Program:
    """A child whose output goes to a file.

    `die_at` names the step at which it is to kill itself, as by SIGKILL, once the file `die_when` exists.
    """

    def __init__(
        self, log: Path, *argv: str, env: Mapping[str, str] | None = None, die_at: str = "", die_when: str = "/"
    ) -> None:
        self.log = log
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *argv],
                env={**(env or os.environ), "NODETRIAGE_DIE_AT": die_at, "NODETRIAGE_DIE_WHEN": die_when},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def status(self) -> int | None:
        """The exit status, as Popen gives it; None while it runs."""
        return self._child.poll()

    def send(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, as the kernel's OOM killer would."""
        self._child.kill()
        self._child.wait()

    def wait(self, timeout_s: float = 90) -> int:
        return self._child.wait(timeout_s)

    def stop(self, timeout_s: float = 90) -> int:
        """SIGTERM, and its exit status. A program that does not end in time is killed, and TimeoutExpired raised."""
        self._child.terminate()
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def said(self) -> str:
        return self.log.read_text(errors="replace")


def runs(pid: int) -> bool:
    """Whether a process lives; one that only waits to be reaped does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
