"""What the reconciler needs of the store."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from nodetriage.v1 import health_pb2

T = TypeVar("T")


class Writes(Protocol):
    """Reads and writes of the database, each in a transaction of its own."""

    async def write(self, work: Callable[[Connection], T]) -> T: ...

    async def read(self, work: Callable[[Connection], T]) -> T: ...

    async def record(self, node: str, batch: Sequence[health_pb2.Event], received_us: int) -> Any: ...
