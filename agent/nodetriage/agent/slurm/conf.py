"""slurm.conf as slurm.conf(5) has it: keys without regard to case, comments, continued lines, included files."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

INCLUDES_LIMIT = 20  # deep
_PAIR = re.compile(r"""([A-Za-z0-9_]+)\s*=\s*("[^"]*"|[^\s"]*)""")
_SEVERAL = ("nodename", "partitionname", "downnodes", "nodeset", "frontendname", "switchname")

Read = Callable[[Path], str]


@dataclass(frozen=True, slots=True)
class SlurmConf:
    """`values` by key in lower case, the last one of each; lines that begin with NodeName and the like are left out.

    `troubles` are what could not be read or understood, one line each.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    troubles: tuple[str, ...] = ()

    def get(self, key: str, default: str = "") -> str:
        return self.values.get(key.lower(), default)

    def words(self, key: str) -> frozenset[str]:
        """A list of words, in lower case, without what follows a "=" in them."""
        return frozenset(w.partition("=")[0].strip().lower() for w in self.get(key).split(",") if w.strip())

    def seconds(self, key: str, default: int) -> int | None:
        """None where the value is no number; Slurm reads INFINITE and UNLIMITED as none at all."""
        value = self.get(key, str(default)).lower()
        if value in ("infinite", "unlimited"):
            return 0
        return int(value) if value.isdecimal() else None


def load(path: Path) -> SlurmConf:
    """The file with all that it includes. Raises OSError for the file itself; what it includes may fail."""
    return parse(path, lambda file: file.read_text(encoding="utf-8", errors="replace"))


def parse(path: Path, read: Read) -> SlurmConf:
    """Like load, but `read` gives the text of a file, and raises OSError."""
    values: dict[str, str] = {}
    files: list[Path] = []
    troubles: list[str] = []

    def take(file: Path, depth: int) -> None:
        text = read(file)
        files.append(file)
        for line in lines(text):
            if included := re.match(r"include\s+(\S+)", line, re.IGNORECASE):
                name = included[1].strip('"').replace("%c", values.get("clustername", "%c"))
                include(path.parent / name, file, depth + 1)
                continue
            pairs = _PAIR.findall(line)
            if not pairs:
                troubles.append(f"{file}: not understood: {line[:80]}")
            elif pairs[0][0].lower() not in _SEVERAL:
                values.update((key.lower(), value.strip('"')) for key, value in pairs)

    def include(file: Path, by: Path, depth: int) -> None:
        if depth > INCLUDES_LIMIT:
            troubles.append(f"{by}: includes itself: {file}")
            return
        try:
            take(file, depth)
        except OSError as error:
            troubles.append(f"{by}: include {file}: {error.strerror or error}")

    take(path, 0)
    return SlurmConf(values, tuple(files), tuple(troubles))


def lines(text: str) -> Iterator[str]:
    """Without comments and empty lines; those that end with a backslash are joined with the next."""
    whole = ""
    for line in text.splitlines():
        code = re.split(r"(?<!\\)#", line, maxsplit=1)[0].replace("\\#", "#").rstrip()
        if code.endswith("\\"):
            whole += code[:-1]
            continue
        whole += code
        if whole.strip():
            yield whole.strip()
        whole = ""
    if whole.strip():
        yield whole.strip()
