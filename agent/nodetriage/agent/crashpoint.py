"""For tests only: makes the agent die, as by `kill -9`, at one named step.

`NODETRIAGE_DIE_AT=name` is read once, when this module is imported; `NODETRIAGE_DIE_WHEN=FILE` spares the agent until
that file exists, because every step is also passed at start. Nothing sets either outside the tests.
"""

import os
import signal

_DIE_AT = os.environ.get("NODETRIAGE_DIE_AT", "")
_DIE_WHEN = os.environ.get("NODETRIAGE_DIE_WHEN", "/")


def passing(name: str) -> None:
    """Says that the step `name` is reached."""
    if name == _DIE_AT and os.access(_DIE_WHEN, os.F_OK):
        os.kill(os.getpid(), signal.SIGKILL)
