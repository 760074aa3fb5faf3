"""Which boot this is, and how long ago it began."""

import time
from pathlib import Path


def boot_id() -> str:
    """From random(4): the kernel makes a new one at each boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def boottime_s() -> float:
    """CLOCK_BOOTTIME, seconds: also runs during suspend, never steps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
