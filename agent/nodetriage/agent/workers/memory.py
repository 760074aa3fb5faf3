"""What a process that lives long does about its memory."""

import contextlib
import ctypes
import gc


def settle() -> None:
    """Once all is imported: gives back what that has freed, some MB, and takes the rest out of the collector's sight.

    It is never garbage, and in a fork the first collection would copy every page of it.
    """
    gc.collect()
    give_back()
    gc.freeze()


def give_back() -> None:
    """Whole pages that nothing is in any more go back to the kernel (malloc_trim(3), glibc).

    From time to time: Python makes its table of interned strings, 1 MB, anew whenever enough strings came and went
    (each part of a path is one), and the C library would keep the room of the old one.
    """
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
