"""What gRPC's core says on stderr of connections that never became a stream, made into log lines.

Core refuses them by itself: no handler of ours is called, and there is no other way to hear of it. Its tracer
"handshaker" names peer and reason in one record; it must be switched on before grpc is imported. Decision 41.
"""

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator

TRACER = {"GRPC_TRACE": "handshaker"}  # for the environment

_RECORD = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ (?P<source>[\w./]+):\d+\] ")
_CONTINUED = re.compile(r"=== Source Location|src/core/|external/| shutdown=|$")
_TRACED = ("handshaker.cc", "channel_trace.h", "trace.cc", "ssl_transport_security.cc")
_REFUSED = re.compile(
    r"CallNextHandshakerLocked: error=(?!OK )(?P<why>[^\n]*).*? shutdown=(?P<late>true|false) "
    r".*?endpoint_peer_address=(?P<peer>[^,}]+).*?server_credentials=",
    re.DOTALL,
)
_LIMIT_CHARS = 16_384  # of one record
_LAST_LINES_S = 5.0  # for what was said until the end
_TOLD = "-"  # in place of a record that was told: what still belongs to it goes nowhere


def parse(record: str) -> tuple[str, str] | None:
    """(peer, reason) of a refused connection; None for any other record."""
    if not (match := _REFUSED.search(record)):
        return None
    if match["late"] == "true":
        return match["peer"], "the handshake was not completed in time"
    why = match["why"].removesuffix(": OK")
    return match["peer"], why.rpartition("OPENSSL_internal:")[2].removesuffix(
        ": Invalid certificate verification context"
    )


class Overheard:
    """Sorts the lines of stderr: core's records about handshakes to `tell`, everything else to `out`."""

    def __init__(self, out: Callable[[str], object], tell: Callable[[str, str], object]) -> None:
        self._out, self._tell = out, tell
        self._record = ""

    def line(self, line: str) -> None:
        """`line` with its end of line."""
        if start := _RECORD.match(line):
            self._record = line if start["source"].rpartition("/")[2] in _TRACED else ""
            if not self._record:
                self._out(line)
        elif self._record and _CONTINUED.match(line) and len(self._record) < _LIMIT_CHARS:
            self._record += line
            if found := parse(self._record):
                self._record = _TOLD
                self._tell(*found)
        else:
            self._record = ""
            self._out(line)


@contextlib.contextmanager
def overhear(tell: Callable[[str, str], object]) -> Iterator[None]:
    """Reads the process's stderr from here on; what is not about handshakes goes on to where it went before.

    `tell(peer, reason)` is called from a thread. Core is never held up: what does not fit into the pipe is lost. The
    process's own log should have a descriptor of its own.
    """
    before = os.dup(2)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    os.dup2(writer, 2)
    os.close(writer)
    out = os.fdopen(os.dup(before), "w", buffering=1, errors="replace")
    thread = threading.Thread(target=_read, args=(reader, Overheard(out.write, tell)), name="stderr", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.dup2(before, 2)  # closes the pipe's last writer: the thread ends
        os.close(before)
        thread.join(_LAST_LINES_S)
        out.close()


def _read(reader: int, overheard: Overheard) -> None:
    with os.fdopen(reader, errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # RuntimeError: the loop is closed
                overheard.line(line)
