"""Who a peer is, and what it may do. tls.py and munge.py prove it; decision 40."""

import datetime
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import grpc

from nodetriage.controller.auth.certificate import Role
from nodetriage.controller.refused import Refused

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


PLAINTEXT = (
    "plaintext proves nobody's identity: expected a loopback address or a Unix socket. "
    "For other addresses set [identity] kind to tls (certificates from nodetriagectl pki) or munge (the cluster's "
    "munge key): docs/identity.md"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A peer that proved to be `name`. Without a role it is on this machine and proved nothing."""

    name: str
    how: str  # what proved it: "certificate", "munge", "this machine"
    role: Role | None = None
    serial: str = ""  # of its certificate, hexadecimal
    ends: datetime.datetime | None = None  # UTC: when the proof is no longer good
    answer: tuple[tuple[str, str], ...] = ()  # the proof of who we are, in the first metadata


class Authenticator(Protocol):
    """One way to prove who a peer is."""

    ends: datetime.datetime | None  # of the controller's own certificate; None: it has none that is to be renewed

    @property
    def knows_all(self) -> bool:
        """Whether each peer that gets a connection has proved who it is."""
        ...

    def credentials(self) -> grpc.ServerCredentials | None:
        """What secures the listener; None is plaintext."""
        ...

    async def identify(self, context: Context) -> Identity:
        """Raises Refused."""
        ...


class ThisMachine:
    """Believes each peer: who can reach the listener is on this machine."""

    ends: datetime.datetime | None = None
    knows_all = True

    def credentials(self) -> grpc.ServerCredentials | None:
        return None

    async def identify(self, _: Context) -> Identity:
        return Identity("", "this machine")


def speaks_for(identity: Identity, node: str) -> None:
    """Raises Refused unless the peer is that node. Its events carry no name: the store files them under this one."""
    if identity.role is None or (identity.role is Role.NODE and identity.name == node):
        return
    raise _denied(f"{_described(identity)} may not speak for node {node[:80]!r}")


def may_watch(identity: Identity) -> None:
    """Raises Refused for nodes: none may read what happens on another."""
    if identity.role not in (None, Role.READER, Role.OPERATOR):
        raise _denied(f"{_described(identity)} may not watch: expected a reader's or an operator's certificate")


def may_operate(identity: Identity) -> None:
    """Raises Refused. Loopback is no proof: any user of this machine can connect to it."""
    if identity.role is not Role.OPERATOR:
        raise _denied(f"{_described(identity)} may give no orders: expected an operator's certificate")


def not_denied(identity: Identity, deny: Collection[str]) -> None:
    """Raises Refused where the name or the certificate's serial number is on the list."""
    for entry in (identity.name, identity.serial):
        if entry and entry in deny:
            raise unauthenticated(f"{_described(identity)} is on the list identity.deny")


def _described(identity: Identity) -> str:
    kind = identity.role.value if identity.role else "a peer"
    return f"{kind} {identity.name or 'without a name'} (by {identity.how})"


def _denied(reason: str) -> Refused:
    return Refused(grpc.StatusCode.PERMISSION_DENIED, reason)


def unauthenticated(reason: str) -> Refused:
    """For a peer that proved no identity."""
    return Refused(grpc.StatusCode.UNAUTHENTICATED, reason)
