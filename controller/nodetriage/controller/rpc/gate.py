"""The gate: who a peer is, whether it may enter, and until when. It logs each refusal."""

import asyncio
import datetime
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager

import structlog

from nodetriage.controller.auth.identity import (
    Authenticator,
    Context,
    Identity,
    may_operate,
    not_denied,
    unauthenticated,
)
from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc.peer_limits import AdmissionSettings
from nodetriage.controller.rpc.peers import Peers
from nodetriage.controller.rpc.refusals import Refusals
from nodetriage.service.address import is_local, peer_host
from nodetriage.v1 import health_pb2

_LONGEST_TIMER_S = 86_400.0
_ENDS_SOON_S = 14 * 86_400.0

_log = structlog.get_logger(__name__)


class Gate:
    """Belongs to one event loop; each listener has one."""

    def __init__(self, authenticator: Authenticator, limits: AdmissionSettings, deny: Collection[str]) -> None:
        self._proof, self._deny = authenticator, frozenset(deny)
        self._peers = Peers(limits.max_streams_per_host, limits.streams_per_min_per_host)
        self._inside: dict[object, tuple[Identity, Callable[[Refused], None]]] = {}
        self.refusals = Refusals()

    @asynccontextmanager
    async def entered(self, context: Context) -> AsyncIterator[Identity]:
        """Proves who the peer is, and counts its stream while the block runs. Raises Refused."""
        host = peer_host(context.peer())
        if host == "unix" or is_local(f"{host}:0"):
            yield await self._identified(context)
            return
        with self._peers.stream(host, time.monotonic()):
            yield await self._identified(context)

    async def operator(self, context: Context, _: health_pb2.Actor) -> str:
        """The name of who gives an order: what the peer proved, whatever the call claims. Raises Refused."""
        try:
            async with self.entered(context) as identity:
                may_operate(identity)
                return identity.name
        except Refused as error:
            self.refusals.tell(context.peer(), error.code.name, error.reason)
            raise

    @contextmanager
    def until_no_longer_good(self, identity: Identity) -> Iterator["asyncio.Future[Refused]"]:
        """A future that gets the reason when the identity is no longer good."""
        ended: asyncio.Future[Refused] = asyncio.get_running_loop().create_future()
        leave = self.guard(identity, lambda why: None if ended.done() else ended.set_result(why))
        try:
            yield ended
        finally:
            leave()

    def guard(self, identity: Identity, end: Callable[[Refused], None]) -> Callable[[], None]:
        """Calls `end` when the identity is no longer good; returns the function that stops the watch."""
        key = object()
        self._inside[key] = identity, end
        timer = _Expiry(identity, end)

        def leave() -> None:
            timer.cancel()
            del self._inside[key]

        return leave

    def deny(self, entries: Collection[str]) -> int:
        """Takes over a new list of names and serial numbers; ends their streams and returns how many it ended."""
        self._deny = frozenset(entries)
        sent_away = 0
        for identity, end in self._inside.values():
            try:
                not_denied(identity, self._deny)
            except Refused as error:
                end(error)
                sent_away += 1
        return sent_away

    def certificates_s(self, now: datetime.datetime) -> dict[str, float]:
        """Whose certificate -> seconds until the first of them ends: our own, and those of connected peers by role."""
        found = {} if self._proof.ends is None else {"controller": (self._proof.ends - now).total_seconds()}
        for identity, _ in self._inside.values():
            if identity.role is not None and identity.ends is not None:
                left_s, role = (identity.ends - now).total_seconds(), identity.role.value
                found[role] = min(left_s, found.get(role, left_s))
        return found

    async def _identified(self, context: Context) -> Identity:
        identity = await self._proof.identify(context)
        not_denied(identity, self._deny)
        return identity


class _Expiry:
    """Ends a stream when its certificate ends. Looks at least daily, because the wall clock may step."""

    def __init__(self, identity: Identity, end: Callable[[Refused], None]) -> None:
        self._identity, self._end = identity, end
        self._timer: asyncio.TimerHandle | None = None
        if identity.ends is not None:
            self._look()

    def _look(self) -> None:
        assert self._identity.ends is not None
        left_s = (self._identity.ends - datetime.datetime.now(datetime.UTC)).total_seconds()
        if left_s <= 0:
            self._end(unauthenticated(f"the certificate of {self._identity.name} has expired"))
            return
        if left_s < _ENDS_SOON_S:
            _log.warning("certificate ends soon", of=self._identity.name, in_days=round(left_s / 86_400, 1))
        self._timer = asyncio.get_running_loop().call_later(min(left_s + 0.01, _LONGEST_TIMER_S), self._look)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
