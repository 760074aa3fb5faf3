"""The controller's only user of child programs: bounded in time and output, killed with all they started."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KILL_WAIT_S = 0.5
OUTPUT_LIMIT_BYTES = 64 << 20

# Slurm's commands take options from the environment too (SINFO_FORMAT, SQUEUE_STATES, SLURM_TIME_FORMAT, ...), so
# they get none of ours but these.
_PASSED_ON = ("PATH", "SLURM_CONF", "SLURM_CONF_SERVER")


class CommandMissing(Exception):
    """The program is not installed, or may not be started."""


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
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    env = {**passed_on, **(environment or {}), "LC_ALL": "C", "TZ": "UTC"}
    program = shutil.which(argv[0], path=env.get("PATH"))
    if program is None:
        raise CommandMissing(f"{argv[0]}: not installed (looked in {env.get('PATH', 'no PATH')})")
    setpriv = shutil.which("setpriv")
    guard = (setpriv, "--pdeathsig", "KILL") if setpriv else ()
    try:
        child = await asyncio.create_subprocess_exec(
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
    try:
        async with asyncio.timeout(timeout_s):
            stdout, stderr = await _listen(child)
            status = await child.wait()
    except TimeoutError:
        raise TimeoutError(f"{argv[0]}: no answer after {timeout_s:g} s") from None
    finally:
        if child.returncode is None:
            await _kill(child)
    return Answer(status, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


async def _listen(child: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    assert child.stdout is not None
    assert child.stderr is not None
    async with asyncio.TaskGroup() as group:
        out = group.create_task(_read(child.stdout))
        err = group.create_task(_read(child.stderr))
    if out.result() is None or err.result() is None:
        raise OverflowError(f"more than {OUTPUT_LIMIT_BYTES} bytes of output")
    return out.result() or b"", err.result() or b""


async def _read(stream: asyncio.StreamReader) -> bytes | None:
    """All of it; None where it is more than the limit."""
    said = bytearray()
    while chunk := await stream.read(1 << 16):
        said += chunk
        if len(said) > OUTPUT_LIMIT_BYTES:
            return None
    return bytes(said)


async def _kill(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    # One in uninterruptible sleep is left to the kernel: waiting for it would stop all acting.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILL_WAIT_S):
            await child.wait()
