"""For tests only: makes this process die, as by `kill -9`, at one named step.

`NODETRIAGE_DIE_AT=NAME` (or `NAME:N`, at the Nth time) is read once, when this module is imported;
`NODETRIAGE_DIE_WHEN=FILE` spares it until that file exists, because most steps are also passed at start. Nothing sets
either outside the tests.
"""

import os
import signal

_name, _, _times = os.environ.get("NODETRIAGE_DIE_AT", "").partition(":")
_left = int(_times) if _times.isdecimal() else 1
_DIE_WHEN = os.environ.get("NODETRIAGE_DIE_WHEN", "/")


def passing(name: str) -> None:
    """Says that the step `name` is reached."""
    global _left
    if name != _name or not os.access(_DIE_WHEN, os.F_OK):
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
