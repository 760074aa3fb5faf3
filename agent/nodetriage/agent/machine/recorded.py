"""A machine recorded as a folder of plain files: for tests, bug reports and analysis on a laptop.

tests/hosts/README.md describes the layout. Beside the files themselves there are `nvml.json`, `dev/kmsg`,
`commands/*.txt`, and, for what a folder cannot hold, `errors.toml`, `statvfs.toml` and `clock.toml`. `like.toml` names
another tree, whose files replace those that this one lacks.
"""

import errno
import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from nodetriage.agent.machine import kmsg
from nodetriage.agent.machine.files import LINKS_LIMIT, read_whole
from nodetriage.agent.redfish_settings import RedfishSettings
from nodetriage.checks.model import ClockState, FsSpace, Gpu, KernelRecord, NotRecorded, Process, Program, Unavailable
from nodetriage.checks.model.settings import ConfigError, decode, load_toml

T = TypeVar("T")


class RecordedMachine:
    """Implements host.Machine on a folder. No link leads out of it: an absolute link starts at the folder."""

    is_recorded = True

    def __init__(self, root: Path, likes: tuple[str, ...] = ()) -> None:
        """Raises ConfigError where the folder or one of its own tables is wrong. `likes`: the trees that led here."""
        self._root = os.path.realpath(root)
        if not os.path.isdir(self._root):
            raise ConfigError(f"{root}: no such folder")
        like = self._own_table("like.toml")
        if self._root in likes:
            raise ConfigError(f"{root}/like.toml: a tree cannot be like itself")
        self._base = RecordedMachine(_beside(root, like), (*likes, self._root)) if like else None
        self._without = tuple(like.get("without", ()))
        self._errors = _errors(self._table("errors.toml"))
        self._folders: dict[str, str] = {}  # the resolved path of each folder that was read
        self._gpus: tuple[bytes, tuple[Gpu, ...]] = (b"", ())  # nvml.json as last read, and its GPUs

    def quarantine(self, addresses: frozenset[str]) -> None:
        """A recording cannot hang: nothing to do."""

    def call_programs(self, argvs: Mapping[str, tuple[str, ...]], redfish: RedfishSettings | None = None) -> None:
        """A recording has the output under the program's usual name: nothing to do."""

    def locate(self, path: str) -> str:
        normal = os.path.normpath("/" + path.lstrip("/"))
        if normal in self._errors:
            raise _os_error(self._errors[normal], normal)
        here = self._inside(normal)
        if self._base is None or os.path.lexists(here):
            return here
        return here if self._is_without(normal) else self._base.locate(normal)

    def locate_link(self, path: str) -> str:
        normal = os.path.normpath("/" + path.lstrip("/"))
        if normal in self._errors:
            raise _os_error(self._errors[normal], normal)
        folder, name = os.path.split(normal)
        here = f"{self._inside(folder)}/{name}"
        if self._base is None or os.path.lexists(here) or self._is_without(normal):
            return here
        return self._base.locate_link(normal)

    def _inside(self, path: str) -> str:
        """As `inside`, but resolves each folder only once."""
        folder, _, name = path.rpartition("/")
        if folder in self._folders and not os.path.islink(here := f"{self._folders[folder]}/{name}"):
            return here
        if os.path.isdir(there := inside(self._root, folder)):
            self._folders[folder] = there
        return inside(self._root, path)

    def names(self, folder: str) -> list[str]:
        """The names in this tree and in the tree that it is like."""
        normal = os.path.normpath("/" + folder.lstrip("/"))
        own = self.locate(folder)
        if self._base is None or self._is_without(normal):
            return os.listdir(own)
        found = set(os.listdir(own)) if os.path.isdir(own) else set()
        try:
            found |= set(self._base.names(folder))
        except FileNotFoundError:
            if not os.path.isdir(own):
                raise
        return [name for name in found if not self._is_without(f"{normal}/{name}")]

    def marks(self, folder: str) -> dict[str, int]:
        """Inodes are soon reused, so the change time counts too; 0 for an entry recorded as unreadable."""
        return {name: self._mark(f"{folder}/{name}") for name in self.names(folder)}

    def _mark(self, path: str) -> int:
        try:
            status = os.lstat(self.locate_link(path))
        except OSError:
            return 0
        return hash((status.st_ino, status.st_ctime_ns))

    def _is_without(self, path: str) -> bool:
        return any(path == gone or path.startswith(f"{gone}/") for gone in self._without)

    def statvfs(self, path: str) -> FsSpace:
        self.locate(path)
        table = self._table("statvfs.toml")
        if path not in table:
            raise _os_error(errno.ENOENT, path)
        return _decoded(FsSpace, table[path], "statvfs.toml", path)

    def gpus(self, whole: bool, on_bus: Callable[[], list[str]]) -> tuple[Gpu, ...]:
        """Everything that was recorded, also without `whole`."""
        try:
            data = self._bytes("nvml.json")
        except FileNotFoundError:
            raise NotRecorded("no NVML: the recorded tree has no nvml.json") from None
        if data != self._gpus[0]:
            self._gpus = data, _gpus(json.loads(data))
        return self._gpus[1]

    def kernel_log(self) -> Iterable[KernelRecord]:
        """Every record of dev/kmsg, in that device's raw form; any other line is a record without a time stamp."""
        try:
            log = read_whole(self.locate("/dev/kmsg"))
        except FileNotFoundError:
            raise Unavailable("the recorded tree has no dev/kmsg") from None
        return tuple(record for record in kmsg.replay(log) if kmsg.believed(record))

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        """commands/ARGV.txt (see `command_name`), else commands/PROGRAM.txt; the status from NAME.status, else 0."""
        program = os.path.basename(argv[0])
        for name in (command_name(argv), program):
            if not os.path.exists(self.locate(f"/commands/{name}.txt")):
                continue
            stdout = self._bytes(f"commands/{name}.txt").decode("utf-8", "replace")
            try:
                status = int(self._bytes(f"commands/{name}.status"))
            except FileNotFoundError:
                status = 0
            return Program(status, stdout, "")
        raise Unavailable(f"{program}: not installed")

    def processes(self) -> tuple[Process, ...]:
        """processes.json: a list of them."""
        try:
            listed = json.loads(self._bytes("processes.json"))
        except FileNotFoundError:
            raise NotRecorded("the recorded tree has no processes.json") from None
        if not isinstance(listed, list):
            raise ValueError("processes.json: expected a list of processes")
        return tuple(_decoded(Process, one, "processes.json", str(i)) for i, one in enumerate(listed))

    def redfish(self, path: str, keep_s: float) -> str:
        """redfish/PATH.json: what follows /redfish/v1, up to a "?". Raises Unavailable where there is no redfish/."""
        if not os.path.isdir(self.locate("/redfish")):
            raise Unavailable("no [redfish] address")
        return self._bytes(redfish_file(path)).decode("utf-8", "replace")

    def abandoned_programs(self) -> int:
        return 0  # it only reads files

    def clock(self) -> ClockState:
        """clock.toml's [adjtimex]."""
        table = self._table("clock.toml")
        if "adjtimex" not in table:
            raise Unavailable("the recorded tree has no [adjtimex] in clock.toml")
        return _decoded(ClockState, table["adjtimex"], "clock.toml", "adjtimex")

    def boottime_s(self) -> float:
        """clock.toml's boottime_s, else the recorded uptime, else 0."""
        table = self._table("clock.toml")
        if "boottime_s" in table:
            return float(table["boottime_s"])
        try:
            return float(read_whole(self.locate("/proc/uptime")).split()[0])
        except FileNotFoundError:
            return 0.0

    def _bytes(self, name: str) -> bytes:
        return read_whole(self.locate("/" + name))

    @functools.cache  # noqa: B019 the object lives as long as the command that reads the tree
    def _table(self, name: str) -> dict[str, Any]:
        return self._own_table(name) or (self._base._table(name) if self._base else {})

    def _own_table(self, name: str) -> dict[str, Any]:
        path = Path(self._root, name)
        return load_toml(path) if path.exists() else {}


def inside(root: str, path: str) -> str:
    """The real path of `path`. Resolves links one by one, as the kernel does after chroot(2) into `root`."""
    todo = path.split("/")[::-1]
    at, links = "", 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            at = at.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"{root}{at}/{part}")
        except OSError:  # not a link, or absent: the caller's open shows which
            at = f"{at}/{part}"
            continue
        links += 1
        if links > LINKS_LIMIT:
            raise _os_error(errno.ELOOP, path)
        at = "" if target.startswith("/") else at
        todo += target.split("/")[::-1]
    return f"{root}{at or '/'}"


def _beside(root: Path, like: Mapping[str, Any]) -> Path:
    """The tree that like.toml names: a folder beside this one. Raises ConfigError."""
    name, without = like.get("tree"), like.get("without", [])
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name) or not isinstance(without, list):
        raise ConfigError(f"{root}/like.toml: expected tree, the name of a folder beside this one, and without, a list")
    folder = Path(os.path.realpath(root)).parent
    return (folder.parent if Path(root).name == "before" else folder) / name


def redfish_file(path: str) -> str:
    """Where the answer to GET `path` is recorded: what follows /redfish/v1, up to a "?"."""
    below = path.partition("?")[0].removeprefix("/redfish/v1").strip("/") or "root"
    return f"redfish/{below}.json"


def command_name(argv: tuple[str, ...]) -> str:
    """The file name for this call's output: each run of unusual characters of ARGV becomes one `_`."""
    return re.sub(r"[^A-Za-z0-9.=+-]+", "_", " ".join((os.path.basename(argv[0]), *argv[1:])))


def _gpus(recorded: Any) -> tuple[Gpu, ...]:
    if isinstance(recorded, dict) and "unavailable" in recorded:
        raise Unavailable(str(recorded["unavailable"]))
    gpus = recorded.get("gpus") if isinstance(recorded, dict) else recorded
    if not isinstance(gpus, list):
        raise ValueError("nvml.json: expected a list of GPUs under the key gpus")
    return tuple(_decoded(Gpu, gpu, "nvml.json", f"gpus[{i}]") for i, gpu in enumerate(gpus))


def _decoded(cls: type[T], table: Any, where: str, key: str) -> T:
    """Raises ValueError: a wrong recording makes a check `broken`, as wrong data of a live machine does."""
    try:
        return decode(cls, table, where, key)
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _errors(table: Mapping[str, Any]) -> dict[str, int]:
    """errors.toml: path = errno's name."""
    found = {}
    for path, name in table.items():
        number = getattr(errno, name, None) if isinstance(name, str) else None
        if not isinstance(number, int):
            raise ConfigError(f"errors.toml: {path}: expected the name of an errno, as 'EIO', got {name!r}")
        found[os.path.normpath(path)] = number
    return found


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
