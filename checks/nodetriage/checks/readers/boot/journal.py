"""The last lines of the previous boot's journal (journalctl(1); systemd.journal-fields(7)).

A field that begins with "_" is set by journald itself, so a user cannot pretend to be the kernel or systemd.
"""

import json
from dataclasses import dataclass
from typing import Any

from nodetriage.checks.model import Host, Unavailable

LINES = 400
TEXT_LIMIT = 300  # characters of a message
_ASK = (
    "journalctl", "--boot=-1", f"--lines={LINES}", "--output=json", "--no-pager", "--quiet",
    "--output-fields=MESSAGE,_TRANSPORT,_UID,_PID,_COMM",
)  # fmt: skip
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class JournalLine:
    """`source` is kernel, init (process 1), system (another program of root) or user."""

    source: str
    comm: str
    text: str


def last_lines(host: Host) -> tuple[JournalLine, ...]:
    """The oldest first. Raises Unavailable where no journal of that boot was kept, ValueError, TimeoutError."""
    program = host.run(_ASK, _TIMEOUT_S)
    found = tuple(_line(line) for line in program.stdout.splitlines() if line.strip())
    if not found:
        raise Unavailable("there is no journal of the boot before this one")
    return found


def _line(text: str) -> JournalLine:
    try:
        fields: dict[str, Any] = json.loads(text)
        message, comm = (fields.get(name) for name in ("MESSAGE", "_COMM"))
    except (ValueError, AttributeError):
        raise ValueError(f"journalctl: expected one JSON object a line, got {text[:80]!r}") from None
    root = "init" if fields.get("_PID") == "1" else "system"
    source = "kernel" if fields.get("_TRANSPORT") == "kernel" else root if fields.get("_UID") == "0" else "user"
    return JournalLine(
        source, comm[:15] if isinstance(comm, str) else "", message[:TEXT_LIMIT] if isinstance(message, str) else ""
    )
