"""Input as people have it: a file, a compressed one, or a pipe; each reader gets a plain file."""

import bz2
import contextlib
import gzip
import lzma
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from nodetriage.analysis.tables import Imported, TableError

STDIN = Path("-")
MOST_BYTES = 256 << 30  # unpacked; more than this from one file is no history

_PACKED: tuple[tuple[bytes, Callable[..., Any]], ...] = (
    (b"\x1f\x8b", lambda source: gzip.GzipFile(fileobj=source)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)


def read(path: Path, reader: Callable[[Path], Imported]) -> Imported:
    """What `reader` makes of `path`, of standard input (`-`), of a pipe, or of what gzip, bzip2 or xz packed.

    Raises TableError, which names `path` as it was given.
    """
    with plain(path) as file:
        try:
            return reader(file)
        except TableError as error:
            raise TableError(str(error).replace(str(file), str(path))) from error


@contextlib.contextmanager
def plain(path: Path) -> Iterator[Path]:
    """A file with the unpacked content of `path`, which is `path` itself where it is a plain file already."""
    try:
        if path != STDIN and path.is_file():
            with path.open("rb") as source:
                packed = _unpacker(source.read(6))
            if packed is None:
                yield path
                return
        with tempfile.NamedTemporaryFile(prefix="nodetriage-") as copy:
            _copy(path, copy)
            copy.flush()
            yield Path(copy.name)
    except (EOFError, lzma.LZMAError) as error:
        raise TableError(f"{path}: cannot be unpacked: {error}") from error
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error


def _unpacker(head: bytes) -> Callable[..., Any] | None:
    return next((unpack for magic, unpack in _PACKED if head.startswith(magic)), None)


def _copy(path: Path, copy: IO[bytes]) -> None:
    with contextlib.ExitStack() as stack:
        source: BinaryIO = sys.stdin.buffer if path == STDIN else stack.enter_context(path.open("rb"))
        # A pipe cannot be read twice, so its first bytes are looked at in the copy.
        _limited(source, copy, path)
        copy.flush()
        copy.seek(0)
        unpack = _unpacker(copy.read(6))
        copy.seek(0, 2)
        if unpack is None:
            return
        whole = stack.enter_context(tempfile.TemporaryFile())
        copy.seek(0)
        with unpack(copy) as unpacked:
            _limited(unpacked, whole, path)
        whole.seek(0)
        copy.seek(0)
        copy.truncate()
        _limited(whole, copy, path)


def _limited(source: IO[bytes], target: IO[bytes], path: Path) -> None:
    left = MOST_BYTES
    while block := source.read(1 << 20):
        left -= len(block)
        if left < 0:
            raise TableError(f"{path}: more than {MOST_BYTES >> 30} GiB")
        target.write(block)
