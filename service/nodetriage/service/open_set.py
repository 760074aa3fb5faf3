"""The digest by which agent and controller see that they hold the same open findings of a node."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

DIGEST_BYTES = 8  # two different sets have the same one by chance in 1 of 10^19 cases, and the next change ends that


class Entry(NamedTuple):
    """One open finding, as far as the two must agree on it."""

    check: str
    component: str
    fault: str
    severity: int
    confidence: int


def digest(entries: Iterable[Entry]) -> bytes:
    """Of a set: the order of the entries does not matter."""
    hashed = hashlib.sha256()
    for entry in sorted(entries):
        hashed.update("\x1f".join(map(str, entry)).encode("utf-8", "replace") + b"\x1e")
    return hashed.digest()[:DIGEST_BYTES]


EMPTY = digest(())
