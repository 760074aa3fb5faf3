"""Records what checks read from a machine as a folder (see tests/hosts/README.md), to attach to a bug report."""

import contextlib
import dataclasses
import errno
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, Self

from nodetriage.agent.machine.host import Announce, Host
from nodetriage.agent.machine.recorded import command_name, inside, redfish_file
from nodetriage.agent.machine.redact import Redactor
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Check, ClockState, FsSpace, Gpu, KernelRecord, Outcome, Program, Unavailable
from nodetriage.checks.model.host import Process
from nodetriage.checks.profiles import catalogue

_NAME_FILES = ("/proc/sys/kernel/hostname", "/etc/hostname")
_ABSENT = (errno.ENOENT, errno.ENOTDIR)


class CaptureHost(Host):
    """A host that records everything that checks ask for."""

    def __init__(self, root: Path, into: Path, announce: Announce | None = None) -> None:
        super().__init__(root, announce=announce)
        self._into = os.path.realpath(into)
        self._scrub = Redactor(self._key(), self._host_names())
        self.errors: dict[str, str] = {}
        self.spaces: dict[str, FsSpace] = {}
        self.records: dict[int, KernelRecord] = {}
        self.clock_rows: dict[str, str] = {}

    def _key(self) -> bytes:
        """Only this machine knows it, so its captures agree with each other and tell others nothing."""
        try:
            return Host.text(self, "/etc/machine-id").encode()
        except OSError:
            return b""

    def _host_names(self) -> list[str]:
        names: list[str] = []
        for path in _NAME_FILES:
            try:
                name = Host.text(self, path)
            except OSError:
                continue
            names += [name, name.partition(".")[0]]
        return [name for name in names if name != "localhost"]

    def glob(self, pattern: str) -> list[PurePosixPath]:
        try:
            found = super().glob(pattern)
        except OSError as error:
            raise self._noted(error) from None
        for path in found:
            self._exists(str(path))
        return found

    def exists(self, path: str | PurePosixPath) -> bool:
        try:
            found = super().exists(path)
        except OSError as error:
            raise self._noted(error) from None
        if found:
            self._exists(str(path))
        return found

    def text(self, path: str | PurePosixPath) -> str:
        try:
            text = super().text(path)
        except OSError as error:
            raise self._noted(error) from None
        self._write(str(path), self._scrub.text(text, str(path)))
        return text

    def link(self, path: str | PurePosixPath) -> PurePosixPath:
        try:
            target = super().link(path)
        except OSError as error:
            raise self._noted(error) from None
        self._link(self._place(str(path)), target)
        return target

    def _link(self, here: Path, target: PurePosixPath) -> None:
        if here.is_symlink():
            return
        if here.is_dir():  # a file below it was recorded before: move it to the link's target
            there = Path(inside(self._into, str(target)))
            shutil.copytree(here, there, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(here)
        else:
            here.unlink(missing_ok=True)
        here.symlink_to(target)

    def statvfs(self, path: str | PurePosixPath) -> FsSpace:
        try:
            space = super().statvfs(path)
        except OSError as error:
            raise self._noted(error) from None
        self.spaces[str(path)] = space
        return space

    def gpus(self, whole: bool = False) -> tuple[Gpu, ...]:
        try:
            gpus = super().gpus(whole=True)
        except Unavailable as error:
            self._write("/nvml.json", json.dumps({"unavailable": str(error)}, indent=2))
            raise
        found = [_without_none(dataclasses.asdict(gpu)) for gpu in gpus]
        self._write("/nvml.json", self._scrub.text(json.dumps({"gpus": found}, indent=2)))
        return gpus

    def kernel_log(self) -> tuple[KernelRecord, ...]:
        records = super().kernel_log()
        self.records.update((record.seq, record) for record in records)
        self._place("/dev/kmsg").touch()
        return records

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        name = f"/commands/{command_name(argv)}"
        try:
            program = super().run(argv, timeout_s)
        except TimeoutError:
            self.errors[f"{name}.txt"] = "ETIMEDOUT"
            raise
        self._write(f"{name}.txt", self._scrub.text(program.stdout))
        if program.status:
            self._write(f"{name}.status", str(program.status))
        return program

    def redfish(self, path: str, keep_s: float = 0.0) -> str:
        answer = super().redfish(path, keep_s)
        self._write(f"/{redfish_file(path)}", self._scrub.text(answer))
        return answer

    def processes(self) -> tuple[Process, ...]:
        processes = super().processes()
        found = [dataclasses.asdict(process) for process in processes]
        self._write("/processes.json", self._scrub.text(json.dumps(found, indent=2)))
        return processes

    def boottime_s(self) -> float:
        now_s = super().boottime_s()
        self.clock_rows["boottime_s"] = f"boottime_s = {now_s:.3f}"
        return now_s

    def clock(self) -> ClockState:
        state = super().clock()
        rows = (f"{key} = {json.dumps(value)}" for key, value in dataclasses.asdict(state).items())
        self.clock_rows["adjtimex"] = "\n".join(("\n[adjtimex]", *rows))
        return state

    def finish(self) -> None:
        """Writes the tables that collect the answers of all checks."""
        if self.errors:
            self._write(
                "/errors.toml", "\n".join(f"{_quoted(p)} = {_quoted(n)}" for p, n in sorted(self.errors.items()))
            )
        if self.clock_rows:  # the table last, or the time would be in it
            self._write("/clock.toml", "\n".join(self.clock_rows[key] for key in sorted(self.clock_rows, reverse=True)))
        if self.spaces:
            self._write("/statvfs.toml", "\n\n".join(_space(p, s) for p, s in sorted(self.spaces.items())))
        if self.records:
            lines = (self._scrub.text(_raw(record)) for _, record in sorted(self.records.items()))
            self._write("/dev/kmsg", "\n".join(lines))

    def _noted(self, error: OSError) -> OSError:
        path = error.filename
        if error.errno not in (None, *_ABSENT) and isinstance(path, str):
            self.errors[path] = errno.errorcode[error.errno or errno.EIO]
        return error

    def _place(self, path: str) -> Path:
        """The path to write to, always inside the folder. Makes the folders above it."""
        folder, name = os.path.split(os.path.normpath("/" + path.lstrip("/")))
        place = Path(inside(self._into, folder))
        place.mkdir(parents=True, exist_ok=True)
        return place / name

    def _exists(self, path: str) -> None:
        """Records that the path exists. Its content is recorded only if a check reads it."""
        place = self._place(path)
        if place.exists() or place.is_symlink():
            return
        if os.path.isdir(self._machine.locate(path)):
            place.mkdir()
        else:
            place.touch()

    def _write(self, path: str, text: str) -> None:
        place = self._place(path)
        if place.is_symlink():
            place = self._place(str(place.readlink()))
        if place.is_dir():
            return  # recorded as a folder already
        place.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")


class Doing:
    """Writes to stderr what takes long: a call into a faulty driver may never return."""

    def __init__(self, patience_s: float = 10.0) -> None:
        self._patience_s = patience_s
        self._what, self._since_s = "", time.monotonic()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="doing", daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join()

    def say(self, what: str) -> None:
        self._what, self._since_s = what, time.monotonic()

    def _watch(self) -> None:
        shown = ""
        while not self._over.wait(self._patience_s / 10):
            if self._what != shown and time.monotonic() - self._since_s > self._patience_s:
                shown = self._what
                sys.stderr.write(f"nodetriage: still at: {shown}\n")


def capture(checks: Iterable[Check[Any, Any]], host: CaptureHost) -> list[str]:
    """Runs each check on the host. Returns a line for each check that could not read everything."""
    troubles = []
    with contextlib.suppress(OSError):
        host.text(catalogue.DMI_PRODUCT)  # the profile is chosen by it
    for check in checks:
        result = run(check, host.for_check(check), check.policy, None)
        if result.outcome in (Outcome.BROKEN, Outcome.SKIPPED):
            troubles.append(f"{check.name}: {result.outcome}: {result.why}")
    host.finish()
    return troubles


def _without_none(value: dict[str, Any]) -> dict[str, Any]:
    """Without the values that NVML does not know."""
    return {k: _without_none(v) if isinstance(v, dict) else v for k, v in value.items() if v is not None}


def _quoted(text: str) -> str:
    return json.dumps(text)  # a JSON string is a TOML basic string


def _space(path: str, space: FsSpace) -> str:
    rows = (f"{key} = {json.dumps(value)}" for key, value in dataclasses.asdict(space).items())
    return "\n".join((f"[{_quoted(path)}]", *rows))


def _raw(record: KernelRecord) -> str:
    """The record in the form of /dev/kmsg."""
    text = re.sub(r"[\x00-\x1f\\\x7f]", lambda found: f"\\x{ord(found[0]):02x}", record.text)
    return f"{record.priority},{record.seq},{max(record.at_us, 0)},-;{text}"
