"""A kernel log of a test's own: a pty that behaves towards an agent as /dev/kmsg does."""

import os
import pty
import time
import tty
from pathlib import Path

LEVEL_ERR = 3  # of facility 0: what the kernel itself writes, which no one can forge on the real device


class KernelLog:
    """`path` is what the agent opens. Whoever opens it afresh reads everything from the first record on.

    A pty holds 4 KiB, so an agent must be reading before more than about thirty lines are written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: list[bytes] = []
        self._ends: tuple[int, int] | None = None
        self.rewind()

    def rewind(self) -> None:
        """A new pty with all records in it, for an agent that is about to start."""
        self._close()
        master, slave = pty.openpty()
        tty.setraw(slave)
        self._ends = master, slave
        self.path.unlink(missing_ok=True)
        self.path.symlink_to(os.ttyname(slave))
        for record in self._records:
            os.write(master, record)

    def write(self, text: str, level: int = LEVEL_ERR) -> None:
        """One record, as Documentation/ABI/testing/dev-kmsg gives it: priority, number, microseconds since boot."""
        assert self._ends
        now_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000  # older ones are history for a first look
        record = f"{level},{len(self._records) + 1},{now_us},-;{text}\n".encode()
        self._records.append(record)
        os.write(self._ends[0], record)

    def write_bytes(self, data: bytes) -> None:
        """Anything at all, as a broken driver might."""
        assert self._ends
        os.write(self._ends[0], data)

    def close(self) -> None:
        self._close()
        self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        for fd in self._ends or ():
            os.close(fd)
        self._ends = None
