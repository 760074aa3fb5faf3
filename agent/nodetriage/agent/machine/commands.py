"""The only user of child programs: bounds their time and output, and never waits for one that cannot die.

`subprocess.run(timeout=)` waits without limit after its kill, so a child in uninterruptible sleep hangs its parent.
This module abandons such a child after KILL_WAIT_S and counts it. The children of a dead worker fall to the fork
server, which kills them.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from nodetriage.checks.model import Program, Unavailable

KILL_WAIT_S = 0.5
OUTPUT_LIMIT_BYTES = 16 << 20
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"LC_ALL": "C", "PATH": PATH}

_abandoned: list["subprocess.Popen[bytes]"] = []


def run(
    argv: tuple[str, ...],
    timeout_s: float,
    *,
    stdin: bytes = b"",
    clock: Callable[[], float] = time.monotonic,
) -> Program:
    """Runs the program in a session of its own, with a fixed environment (LC_ALL=C).

    Raises Unavailable where it is not installed, PermissionError where it may not be started, TimeoutError after
    `timeout_s`, OverflowError beyond OUTPUT_LIMIT_BYTES. The last two kill its process group.
    """
    deadline = clock() + timeout_s
    child = _start(argv, bool(stdin))
    try:
        stdout, stderr = _converse(child, stdin, deadline, clock)
        status = child.wait(max(0.0, deadline - clock()))
    except subprocess.TimeoutExpired:
        _kill(child)
        raise TimeoutError(f"{argv[0]}: no answer after {timeout_s:g} s") from None
    except BaseException:
        _kill(child)
        raise
    finally:
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
    return Program(status, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


def _start(argv: tuple[str, ...], has_stdin: bool) -> "subprocess.Popen[bytes]":
    if not _is_installed(argv[0]):  # a fork that finds this out costs a hundred times as much
        raise Unavailable(f"{argv[0]}: not installed")
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
            # No preexec_fn: with one, each start copies this process's page tables and costs three times as much.
        )
    except FileNotFoundError:
        raise Unavailable(f"{argv[0]}: not installed") from None


def _is_installed(program: str) -> bool:
    return any(Path(folder, program).exists() for folder in PATH.split(":"))


def _converse(
    child: "subprocess.Popen[bytes]", stdin: bytes, deadline: float, clock: Callable[[], float]
) -> tuple[bytes, bytes]:
    """The child's stdout and stderr until it closes both. Raises TimeoutExpired, OverflowError."""
    assert child.stdout is not None
    assert child.stderr is not None
    said = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    out, err = said.values()
    with selectors.DefaultSelector() as ready:
        for fd in said:
            ready.register(fd, selectors.EVENT_READ)
        if child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)
            ready.register(child.stdin.fileno(), selectors.EVENT_WRITE)
        while ready.get_map():
            left_s = deadline - clock()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(child.args, 0)
            for key, _ in ready.select(left_s):
                if key.fd in said:
                    _listen(ready, key.fd, said[key.fd])
                    if len(out) + len(err) > OUTPUT_LIMIT_BYTES:
                        raise OverflowError(f"{child.args!r}: more than {OUTPUT_LIMIT_BYTES} bytes of output")
                else:
                    stdin = _tell(ready, child, stdin)
    return bytes(out), bytes(err)


def _listen(ready: selectors.BaseSelector, fd: int, said: bytearray) -> None:
    chunk = os.read(fd, 65536)
    said += chunk
    if not chunk:
        ready.unregister(fd)


def _tell(ready: selectors.BaseSelector, child: "subprocess.Popen[bytes]", stdin: bytes) -> bytes:
    """Writes what the pipe takes and returns the rest. A child that does not read its input is no error."""
    assert child.stdin is not None
    try:
        stdin = stdin[os.write(child.stdin.fileno(), stdin) :]
    except BrokenPipeError:
        stdin = b""
    if not stdin:
        ready.unregister(child.stdin.fileno())
        child.stdin.close()
    return stdin


def _kill(child: "subprocess.Popen[bytes]") -> None:
    """Kills the child's process group. The child is not reaped yet, so the group's number is still its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.wait(KILL_WAIT_S)
    except subprocess.TimeoutExpired:
        _abandoned.append(child)


def abandoned() -> int:
    """How many children still sleep in the kernel, where no signal ends them. Reaps those that have died since."""
    _abandoned[:] = [child for child in _abandoned if child.poll() is None]
    return len(_abandoned)
