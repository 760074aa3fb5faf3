"""What a process that will live long does once it has imported all it needs."""

import contextlib
import ctypes
import gc


def settle() -> None:
    """Gives back what importing has freed, some MB (malloc_trim(3), glibc), and takes the rest out of the collector's
    sight: it is never garbage, and in a fork the first collection would copy every page of it."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    gc.freeze()
