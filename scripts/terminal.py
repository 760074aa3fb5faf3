"""Runs a command on a terminal of a given width, for pages and tests that show what a person sees."""

import contextlib
import os
import pty
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

ROWS = 50


def on_a_terminal(argv: Sequence[str], columns: int, environ: Mapping[str, str], cwd: Path | None = None) -> str:
    """What the command writes to stdout and stderr."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, columns))
    written = b""
    try:
        with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(environ), cwd=cwd):
            os.close(theirs)
            with contextlib.suppress(OSError):  # EIO: the command has ended
                while data := os.read(ours, 65536):
                    written += data
    finally:
        os.close(ours)
    return written.decode("utf-8", "replace").replace("\r\n", "\n")
