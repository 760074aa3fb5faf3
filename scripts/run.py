"""`make run` [FOLDER]: controller and agent on this machine, with its real input, and what every check found so far.

Both are the real programs, as a site starts them; only their folder (.run/ unless named) and three settings are
special: no scheduler, so that nothing is drained; a socket instead of a port; and kernel-log records of user space
are believed, so that a fault can be tried by writing a line. Needs no root, and says what it cannot see without.
"""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nodetriage.agent.control_socket import ask

Row = tuple[str, str, str, str]  # check, outcome, age, what was found

ROOT = Path(__file__).resolve().parents[1]
RUN = Path(
    sys.argv[1] if len(sys.argv) > 1 else ".run"
)  # relative: a Unix socket's path may have 107 bytes, and the project may lie deep
SOCKET = RUN / "agent/agent.sock"
KERNEL_LOG = Path("/dev/kmsg")
START_LIMIT_S = 20.0
STOP_LIMIT_S = 15.0
TRY_IT = "<3>NVRM: Xid (PCI:0000:3a:00): 79, pid=1, name=x, GPU has fallen off the bus."

AGENT_TOML = f"""\
[agent]
state_dir = "{RUN}/agent"
run_dir = "{RUN}/agent"

[controller]
addresses = ["unix:{RUN}/controller.sock"]

[kernel_log]
accept_user_records = true  # for trials only: on a node, only what the kernel itself wrote is believed

[checks.gpu_xid]
any_device = true  # likewise: on a node, a line counts if the machine has the device
"""

CONTROLLER_TOML = f"""\
[controller]
listen = "unix:{RUN}/controller.sock"
state_dir = "{RUN}/controller"

[scheduler]
kind = "none"
"""


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Interrupts:
    """Ctrl-C and SIGTERM: the first one ends the watching by a KeyboardInterrupt, further ones change nothing.

    Within `with interrupts:` even the first one waits, so that no program starts that nobody will stop.
    """

    def __init__(self) -> None:
        self._asked = self._waits = False
        for number in (signal.SIGTERM, signal.SIGINT):  # SIGINT too: a shell that starts us with & has it ignored
            signal.signal(number, self._interrupt)

    def _interrupt(self, _number: int, _frame: object) -> None:
        if self._asked:
            return
        self._asked = True
        if not self._waits:
            raise KeyboardInterrupt

    def __enter__(self) -> None:
        self._waits = True

    def __exit__(self, *_: object) -> None:
        self._waits = False
        if self._asked:
            raise KeyboardInterrupt


def start(name: str, *argv: str) -> subprocess.Popen[bytes]:
    """One of the two programs, out of reach of the terminal's Ctrl-C, its log in .run/."""
    with (RUN / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(Path(sys.executable).parent / argv[0]), *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def wait_for(path: Path, name: str, program: subprocess.Popen[bytes]) -> bool:
    """Whether the program listens at its socket; if not, says why."""
    deadline_s = time.monotonic() + START_LIMIT_S
    while not listens(path):
        if program.poll() is not None or time.monotonic() > deadline_s:
            say(f"the {name} did not start; the end of {RUN}/{name}.log:")
            say("\n".join((RUN / f"{name}.log").read_text(errors="replace").splitlines()[-10:]))
            return False
        time.sleep(0.05)
    return True


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        return line.connect_ex(str(path)) == 0


def stop(programs: dict[str, subprocess.Popen[bytes]]) -> int:
    """Ends both, agent first, so that its last events still arrive. 1 if one did not end well."""
    failed = 0
    for name, program in reversed(list(programs.items())):
        program.send_signal(signal.SIGTERM)
        try:
            status = program.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            program.kill()
            status = program.wait()
        say(f"{name} stopped" if status == 0 else f"{name} ended with status {status}; see {RUN}/{name}.log")
        failed |= status != 0
    return failed


def greet() -> None:
    say(f"controller and agent are running; their logs and state are under {RUN}/")
    say("kernel_log.accept_user_records is on: lines that anyone writes to /dev/kmsg are believed; on a node, off.")
    if os.geteuid() != 0:
        say("not root: what only root may read, above all the kernel log, is not looked at; the checks say so.")
    if os.access(KERNEL_LOG, os.W_OK):
        say("To see a fault arrive, in another terminal:")
        say(f"    echo '{TRY_IT}' > {KERNEL_LOG}")
    say(f"What the controller has: .venv/bin/nodetriagectl events --config {RUN}/controller.toml")
    say("Ctrl-C stops both.")
    say()


class Screen:
    """The table: redrawn in place on a terminal; elsewhere printed whole once, then a line for each change."""

    def __init__(self, live: bool) -> None:
        self._live = live
        self._height = 0
        self._before: dict[str, tuple[str, str]] = {}

    def show(self, status: dict[str, Any]) -> None:
        rows = [(name, c["outcome"] or "-", age(c["age_s"]), what(c)) for name, c in status["checks"].items()]
        rows += [
            (
                "kernel log",
                "followed" if status["kernel_log"]["followed"] else "no",
                "",
                status["kernel_log"]["trouble"],
            )
        ]
        rows += [("controller", "", "", status["controller"]["state"])]
        if self._live:
            columns, height = os.get_terminal_size()
            lines = [
                line(row)[: columns - 1] for row in (("check", "outcome", "age", "found"), *fitting(rows, height - 2))
            ]
            up = f"\x1b[{self._height}A" if self._height else ""
            say(up + "\n".join(f"\x1b[2K{text}" for text in lines) + "\x1b[J")
            self._height = len(lines)
            return
        for name, outcome, how_old, found in rows:
            if self._before.get(name) != (outcome, found):
                self._before[name] = (outcome, found)
                say(line((name, outcome, how_old, found)))


def fitting(rows: list[Row], height: int) -> list[Row]:
    """All rows, or without the skipped ones where they are more than the terminal has lines."""
    if len(rows) <= height:
        return rows
    shown = [row for row in rows if row[1] != "skipped"][: height - 1]
    return [*shown, ("", f"{len(rows) - len(shown)} more", "", "not shown here: skipped, or no room")]


def line(row: Row) -> str:
    return f"{row[0]:<18} {row[1]:<9} {row[2]:>6}  {row[3]}".rstrip()


def age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def what(check: dict[str, Any]) -> str:
    found = [f"{f['severity']} {f['fault']} {f['component']} ({f['occurrences']}x)" for f in check["findings"]]
    return "; ".join(found) or str(check["why"])


def watch(programs: dict[str, subprocess.Popen[bytes]]) -> str:
    """Shows the table until a program ends by itself; what to say then."""
    screen = Screen(sys.stdout.isatty())
    while True:
        for name, program in programs.items():
            if program.poll() is not None:
                return f"the {name} ended by itself (status {program.returncode}); see {RUN}/{name}.log"
        with contextlib.suppress(OSError, ValueError):  # busy or stopping: the next look is soon
            screen.show(ask(SOCKET, {"ask": "status"}, 2.0))
        time.sleep(0.2)


def main(interrupts: Interrupts) -> int:
    os.chdir(ROOT)
    RUN.mkdir(parents=True, exist_ok=True)
    with (RUN / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"already running with {RUN}/")
            return 1
        return run(interrupts)


def run(interrupts: Interrupts) -> int:
    (RUN / "agent.toml").write_text(AGENT_TOML)
    (RUN / "controller.toml").write_text(CONTROLLER_TOML)
    programs: dict[str, subprocess.Popen[bytes]] = {}
    trouble = "did not start"
    try:
        for name, path, argv in (
            ("controller", RUN / "controller.sock", ("nodetriagectl", "controller", "--config")),
            ("agent", SOCKET, ("nodetriage", "agent", "--config")),
        ):
            with interrupts:
                programs[name] = start(name, *argv, str(RUN / f"{name}.toml"))
            if not wait_for(path, name, programs[name]):
                return stop(programs) | 1
        greet()
        trouble = watch(programs)
    except KeyboardInterrupt:
        trouble = ""
        say()
    failed = stop(programs)
    if trouble:
        say(trouble)
    return 1 if trouble or failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(Interrupts()))
    except KeyboardInterrupt:  # before any program was started
        sys.exit(130)
