"""For tests only: kills this process, as `kill -9` does, or stops it, at one named step.

The import of this module reads `NODETRIAGE_DIE_AT=NAME` (or `NAME:N`, for the Nth time). `NODETRIAGE_DIE_WHEN=FILE`
spares the process until that file exists, because a start passes most steps too. `NODETRIAGE_DIE_BY=SIGSTOP` stops it
instead. Only tests set these variables.
"""

import os
import signal

_name, _, _times = os.environ.get("NODETRIAGE_DIE_AT", "").partition(":")
_left = int(_times) if _times.isdecimal() else 1
_BY = signal.Signals[os.environ.get("NODETRIAGE_DIE_BY", "SIGKILL")]
_DIE_WHEN = os.environ.get("NODETRIAGE_DIE_WHEN", "/")


def passing(name: str) -> None:
    """Marks that the step `name` is reached."""
    global _left
    if name != _name or not os.access(_DIE_WHEN, os.F_OK):
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), _BY)
