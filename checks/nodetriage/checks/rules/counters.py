"""How much a counter grew between two looks, and which readings stay known. Pure."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

HOUR_S = 3600.0


class Named(Protocol):
    """A reading of one GPU. The UUID survives a new order of the GPUs; a counter belongs to it, never to an index."""

    @property
    def uuid(self) -> str: ...


N = TypeVar("N", bound=Named)


def increase(before: int | None, now: int | None) -> int:
    """Growth of a counter that starts at 0 after a reset of its device: one that fell shows what happened since then.

    0 where one of the values is not known.
    """
    if before is None or now is None:
        return 0
    return now - before if now >= before else now


def rise(before: int | None, now: int | None) -> int:
    """Growth of a counter that anybody may clear: one that fell says nothing, and the answer is 0.

    0 where one of the values is not known.
    """
    if before is None or now is None:
        return 0
    return max(now - before, 0)


def per_hour(errors: int, waited_s: float) -> float:
    """Errors an hour; 0 where no time went by."""
    return errors * HOUR_S / waited_s if waited_s > 0 else 0.0


def keep(before: Iterable[N] | None, now: Iterable[N]) -> tuple[N, ...]:
    """The newest reading of each GPU that answered in this boot: one that does not answer now keeps its counts."""
    return tuple({gpu.uuid: gpu for gpu in (*(before or ()), *now)}.values())
