"""Runs the controller's child programs, with limits on time and output; kills them with all they started."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KILL_WAIT_S = 0.5
OUTPUT_LIMIT_BYTES = 64 << 20

# Slurm's commands take options from the environment too (SINFO_FORMAT, SQUEUE_STATES, SLURM_TIME_FORMAT, ...). They get
# these variables alone.
_PASSED_ON = ("PATH", "SLURM_CONF", "SLURM_CONF_SERVER")


class CommandMissing(Exception):
    """The program is not installed, or this user may not start it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a child program ended. Text is decoded with replacement characters."""

    status: int
    stdout: str
    stderr: str


async def run(argv: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None) -> Answer:
    """Runs a program without a shell; times it prints are UTC and its words English.

    `environment` adds to what is passed on. Raises CommandMissing; TimeoutError past `timeout_s` and OverflowError
    past OUTPUT_LIMIT_BYTES, after killing the program's whole process group. The kernel kills it too if this process
    dies (setpriv of util-linux, where there is one): what an earlier controller began cannot act later.
    """
    child, listener = await _begin(argv, environment or {})
    try:
        async with asyncio.timeout(timeout_s):
            await listener.ended
    except TimeoutError:
        raise TimeoutError(f"{argv[0]}: no answer after {timeout_s:g} s") from None
    except OverflowError as error:
        raise OverflowError(f"{argv[0]}: {error}") from None
    finally:
        if child.get_returncode() is None:
            await _kill(child.get_pid(), listener)
        child.close()
    stdout, stderr = (bytes(listener.said[fd]).decode("utf-8", "replace") for fd in (1, 2))
    return Answer(child.get_returncode() or 0, stdout, stderr)


async def _begin(
    argv: Sequence[str], environment: Mapping[str, str]
) -> "tuple[asyncio.SubprocessTransport, _Listener]":
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    env = {**passed_on, **environment, "LC_ALL": "C", "TZ": "UTC"}
    program = shutil.which(argv[0], path=env.get("PATH"))
    if program is None:
        raise CommandMissing(f"{argv[0]}: not installed (looked in {env.get('PATH', 'no PATH')})")
    setpriv = shutil.which("setpriv")
    guard = (setpriv, "--pdeathsig", "KILL") if setpriv else ()
    try:
        return await asyncio.get_running_loop().subprocess_exec(
            _Listener,
            *guard,
            program,
            *argv[1:],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise CommandMissing(f"{argv[0]}: {error.strerror or error}") from error


class _Listener(asyncio.SubprocessProtocol):
    """Sets `exited` when the child is dead, and `ended` when both its pipes are closed too."""

    def __init__(self) -> None:
        self.said = {1: bytearray(), 2: bytearray()}
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.exited = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self.ended.done():
            return
        self.said[fd] += data
        if len(self.said[fd]) > OUTPUT_LIMIT_BYTES:
            self.ended.set_exception(OverflowError(f"more than {OUTPUT_LIMIT_BYTES} bytes of output"))

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def _kill(pid: int, listener: _Listener) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    # The kernel ends one in uninterruptible sleep some day: waiting for it here would stop all actions.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILL_WAIT_S):
            await listener.exited.wait()
