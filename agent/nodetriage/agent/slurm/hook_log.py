"""Files between the agent and its hooks: notes of hooks that had no answer, and the deadline that the agent sets.

Both files are root's. packaging/slurm/nodetriage-hook.c is the other side.
"""

import contextlib
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

LIMIT_BYTES = 64 << 10  # where the hooks stop writing


class Note(msgspec.Struct, frozen=True):
    """One hook that got no answer, so that its job was let in. `at` is unix seconds."""

    hook: str
    at: int
    why: str = ""
    job: str = ""


@dataclass(frozen=True, slots=True)
class HookLog:
    """`lost`: there were more than could be noted, or some could not be read; `why` says more where it is known."""

    notes: tuple[Note, ...] = ()
    lost: bool = False
    why: str = ""


def take(folder: Path) -> HookLog:
    """All notes, which are gone then; none while a hook is writing. Raises OSError."""
    path = folder / "unanswered"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return HookLog()
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        data = os.read(fd, 2 * LIMIT_BYTES)
        path.unlink()
    except BlockingIOError:
        return HookLog()
    finally:
        os.close(fd)
    return read(data)


def read(data: bytes) -> HookLog:
    """The notes in a file's bytes. Never raises: a line that was cut short is a loss, not the end."""
    notes, lost = [], len(data) > LIMIT_BYTES
    for line in data.splitlines():
        try:
            notes.append(_decoder.decode(line))
        except msgspec.MsgspecError:
            lost = True
    return HookLog(tuple(notes), lost)


_decoder = msgspec.json.Decoder(Note)


def tell_hooks(folder: Path, deadline_s: float) -> None:
    """How long a hook waits for the agent, for as long as the machine is up. Raises OSError."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = folder / "hooks.new"
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as out:
        out.write(f"deadline_ms={deadline_s * 1000:.0f}\n")
    new.replace(folder / "hooks")
