"""Who is at the other end. Plaintext, which proves nothing, is for loopback and Unix sockets alone."""

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from nodetriage.checks.settings import ConfigError
from nodetriage.v1 import health_pb2


@dataclass(frozen=True, slots=True)
class Identity:
    """A peer that has proved to be `name`; `how` says by what."""

    name: str
    how: str


# Given the call and the hello (None for Watch), says who it is. Raises admission.Refused.
Authorize = Callable[["grpc.aio.ServicerContext[Any, Any]", "health_pb2.Hello | None"], Awaitable[Identity]]


async def trust_loopback(context: "grpc.aio.ServicerContext[Any, Any]", hello: health_pb2.Hello | None) -> Identity:
    """Takes the peer's word. Only for listeners that `credentials_for` lets be plaintext."""
    return Identity(hello.node if hello else "local", "loopback")


def credentials_for(listen: str) -> grpc.ServerCredentials | None:
    """What secures a listener; None is plaintext. Raises ConfigError where plaintext would be open to others."""
    if is_local(listen):
        return None
    raise ConfigError(
        f"controller.listen: {listen} would hear anyone without proof of identity; plaintext is only for loopback "
        "(127.0.0.1:7443) and unix:PATH, and this version has nothing else"
    )


def is_local(listen: str) -> bool:
    """Whether only this machine can reach the address, as gRPC writes it (HOST:PORT, [V6]:PORT, unix:PATH)."""
    if listen.startswith(("unix:", "unix-abstract:")):
        return True
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
