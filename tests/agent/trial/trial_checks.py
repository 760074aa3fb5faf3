"""Checks that do as a file tells them: for tests of the agent. The folder is in the environment as TRIAL."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from nodetriage.checks.model import Check, Finding, Host, KernelRecord, Severity, Unavailable


@dataclass(frozen=True, slots=True)
class Policy:
    limit: int = 3


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    fds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Count:
    runs: int


def folder() -> Path:
    return Path(os.environ["TRIAL"])


def read_word(host: Host) -> Word:
    word = host.text(folder() / "word") if host.exists(str(folder() / "word")) else "ok"
    if word == "absent":
        raise Unavailable("there is no such part")
    if word == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if word == "exit":
        os._exit(7)
    if word == "spin":
        time.sleep(3600)
    if word == "program":
        script = f"echo $$ >{folder()}/partial; mv {folder()}/partial {folder()}/pid; exec sleep 600"
        host.run(("sh", "-c", script), 3600)
    if word == "print":
        print("a library prints", flush=True)
    return Word(word, tuple(sorted(fd.name for fd in Path("/proc/self/fd").iterdir())) if word == "fds" else ())


def judge_word(now: Word, before: Word | None, policy: Policy) -> Iterator[Finding]:
    if now.text == "broken":
        raise KeyError("broken")
    if now.text.startswith("bad"):
        yield Finding(now.text[4:] or "component", "ib_link_down", Severity.MAJOR, {"limit": policy.limit})
    if now.text == "fds":
        yield Finding("fds", "ib_link_down", Severity.MAJOR, {"open": ",".join(now.fds)})


def read_twin(host: Host) -> Word:
    """Of the same class as the one that reads "word", with a file of its own."""
    path = folder() / "twin"
    return Word(host.text(path) if host.exists(str(path)) else "ok")


def read_disk(host: Host) -> Word:
    """Writes, as reading a frozen file system does not hang."""
    host.statvfs(folder() / "mount")
    (folder() / "mount/probe").write_text("x")
    return Word("ok")


def read_touch(host: Host) -> Word:
    """Leaves the writing to a program, and gives that up after half a second."""
    host.run(("touch", f"{folder()}/mount/touched"), 0.5)
    return Word("ok")


def nothing(now: Word, before: Word | None, policy: Policy) -> Iterator[Finding]:
    yield from ()


def read_log(host: Host) -> tuple[KernelRecord, ...]:
    return host.kernel_log()


def judge_log(
    now: tuple[KernelRecord, ...], before: tuple[KernelRecord, ...] | None, policy: Policy
) -> Iterator[Finding]:
    for record in now:
        yield Finding(
            record.text.split()[-1], "gpu_xid_fatal", Severity.CRITICAL, {"text": record.text, "seq": record.seq}
        )


def read_count(host: Host) -> Count:
    return Count(1)


def judge_count(now: Count, before: Count | None, policy: Policy) -> Iterator[Finding]:
    yield Finding(f"run-{before.runs if before else 0}", "ib_link_down", Severity.MAJOR)


def remember_count(before: Count | None, now: Count) -> Count:
    return Count((before.runs if before else 0) + now.runs)


# A check that answers must not be taken for hung where the machine stands still for a moment; one that is to hang is
# given up after HANG_S, and so is one whose answer may wait in the worker behind that.
ENOUGH_S, HANG_S = 60.0, 2.5
WORD = Check(
    name="word",
    read=read_word,
    judge=judge_word,
    policy=Policy(),
    faults=("ib_link_down",),
    every_s=0.5,
    timeout_s=ENOUGH_S,
)
DISK = Check(
    name="disk",
    read=read_disk,
    judge=nothing,
    policy=Policy(),
    faults=(),
    worker="storage",
    every_s=0.5,
    timeout_s=HANG_S,
    hung_fault="mount_hung",
)
TOUCH = replace(DISK, name="touch", read=read_touch, worker="bmc", timeout_s=ENOUGH_S, hung_fault="check_hung")
DISK2 = replace(DISK, name="disk2", read=read_word, hung_fault="check_hung")
LOG = Check(
    name="log",
    read=read_log,
    judge=judge_log,
    policy=Policy(),
    faults=("gpu_xid_fatal",),
    worker="gpu",
    kernel_pattern=r"NTTRIAL fault of part",
    every_s=60.0,
    timeout_s=ENOUGH_S,
)
COUNT = Check(
    name="count",
    read=read_count,
    judge=judge_count,
    next_state=remember_count,
    policy=Policy(),
    faults=("ib_link_down",),
    worker="fabric",
    every_s=60.0,
    timeout_s=ENOUGH_S,
)
TWIN = replace(WORD, name="twin", read=read_twin, every_s=600.0)
MOUNTS = replace(WORD, name="mounts", judge=nothing, faults=(), every_s=600.0, wakes_on=("mounts", "udev:mem"))
ALL = (WORD, DISK, DISK2, LOG, COUNT, MOUNTS, TWIN, TOUCH)
