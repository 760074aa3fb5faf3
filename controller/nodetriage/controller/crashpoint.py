"""For tests only: makes the process die, as by `kill -9`, at one named step.

`NODETRIAGE_DIE_AT=name` is read once, when this module is imported. Nothing sets it outside the tests.
"""

import os
import signal

_DIE_AT = os.environ.get("NODETRIAGE_DIE_AT", "")


def passing(name: str) -> None:
    """Says that the step `name` is reached."""
    if name == _DIE_AT:
        os.kill(os.getpid(), signal.SIGKILL)
