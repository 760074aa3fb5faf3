"""Sets structlog up for a daemon: JSON with journald's priority prefix on stderr; on a terminal text for people."""

import collections
import logging
import os
import sys
import threading
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog

_PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}  # sd-daemon(3)
QUEUE_LINES = 1000


def set_up(level: str = "info", out: TextIO | None = None, environ: Mapping[str, str] = os.environ) -> "Lines":
    """Configures structlog for the process. A thread writes the lines: a stuck journal must not stop the agent."""
    out = out or sys.stderr
    for_people = out.isatty()
    lines = Lines(out)
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    if for_people:
        processors.append(structlog.dev.ConsoleRenderer())
    else:
        processors.append(structlog.processors.JSONRenderer())
        if "JOURNAL_STREAM" in environ:
            processors.insert(0, _remember_priority)
            processors.append(_prefix)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=lines),  # type: ignore[arg-type] # it only writes
        cache_logger_on_first_use=True,
    )
    return lines


_last = threading.local()


def _remember_priority(_logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    _last.priority = _PRIORITY.get(method, 6)
    return event


def _prefix(_logger: Any, _method: str, line: str) -> str:
    return f"<{_last.priority}>{line}"


class Lines:
    """A file that takes lines at once and writes them in a thread. Counts lines that do not fit; never waits."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._queue: collections.deque[str] = collections.deque()
        self._lost = 0
        self._wake = threading.Condition()
        self._busy = False
        threading.Thread(target=self._work, name="log", daemon=True).start()

    def write(self, text: str) -> None:
        with self._wake:
            if len(self._queue) >= QUEUE_LINES:
                self._lost += 1
            else:
                self._queue.append(text)
            self._wake.notify_all()

    def flush(self) -> None:
        """structlog calls this after each line; it does nothing."""

    def drain(self, limit_s: float) -> None:
        """At the end of the process: waits up to `limit_s` until the thread has written all lines."""
        with self._wake:
            self._wake.wait_for(lambda: not self._queue and not self._busy, limit_s)

    def _work(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                self._wake.wait_for(lambda: bool(self._queue))
                text, lost = "".join(self._queue), self._lost
                self._queue.clear()
                self._lost, self._busy = 0, True
            try:
                self._out.write(text + (f"{lost} log lines lost\n" if lost else ""))
                self._out.flush()
            except (OSError, ValueError):
                continue
