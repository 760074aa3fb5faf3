"""The kernel's own view of its clock, from adjtimex(2). Reads it and never sets it."""

import ctypes
import os

from nodetriage.checks.model import ClockState, Unavailable

_STA_UNSYNC = 0x0040
_STA_NANO = 0x2000  # offset is in nanoseconds


class _Timex(ctypes.Structure):
    """struct timex of <sys/timex.h>; the padding at its end is larger than any libc's."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 512),
    )


def state() -> ClockState:
    """Raises OSError from the kernel, Unavailable where the C library has no such call."""
    try:
        ask = ctypes.CDLL(None, use_errno=True).adjtimex
    except AttributeError:
        raise Unavailable("the C library has no adjtimex") from None
    timex = _Timex()  # modes 0: sets nothing
    if ask(ctypes.byref(timex)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "adjtimex")
    nano = 1000 if timex.status & _STA_NANO else 1
    return ClockState(
        not timex.status & _STA_UNSYNC, int(timex.maxerror), int(timex.esterror), int(timex.offset) // nano
    )
