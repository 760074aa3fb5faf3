"""structlog set up for a daemon: JSON on stderr unless it is a terminal, with journald's priority prefix."""

import logging
import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

_PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}  # sd-daemon(3)


def set_up(level: str = "info", environ: Mapping[str, str] = os.environ) -> None:
    """Configures structlog for the process."""
    for_people = sys.stderr.isatty()
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.dev.ConsoleRenderer() if for_people else _Line(prefix="JOURNAL_STREAM" in environ),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


class _Line:
    """One JSON object a line, behind "<N>" where journald reads it."""

    def __init__(self, prefix: bool) -> None:
        self._prefix = prefix
        self._json = structlog.processors.JSONRenderer()

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        line = self._json(logger, method, event)
        text = line.decode() if isinstance(line, bytes) else line
        return f"<{_PRIORITY.get(method, 6)}>{text}" if self._prefix else text
