"""What a long-lived process does to keep its memory small."""

import contextlib
import ctypes
import gc


def freeze() -> None:
    """Call once, after all imports: returns freed memory, some MB, and excludes the rest from garbage collection.

    What is imported never becomes garbage, and after a fork the first collection would copy each of its pages.
    """
    gc.collect()
    give_back()
    gc.freeze()


def give_back() -> None:
    """Returns whole free pages to the kernel (malloc_trim(3), glibc).

    Call it from time to time: Python builds its table of interned strings, 1 MB, anew whenever enough strings came and
    went (each part of a path is one), and the C library would keep the memory of the old table.
    """
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
