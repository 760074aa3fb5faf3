"""The kernel's messages about network interfaces whose carrier comes or goes: rtnetlink(7), group RTNLGRP_LINK.

A lost carrier gives no uevent, so udev does not tell it. An InfiniBand port gives a message where IP over InfiniBand
has an interface for it.
"""

import errno
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

RECEIVE_BUFFER_BYTES = 1 << 20  # each container that starts gives some messages
BATCH = 64  # datagrams of one read
_DATAGRAM_BYTES = 64 << 10
_GROUP_LINK = 1  # RTMGRP_LINK
_NEW_LINK = 16  # RTM_NEWLINK
_NAME = 3  # IFLA_IFNAME
_LOWER_UP = 0x10000  # IFF_LOWER_UP: the driver signals a carrier
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
_LINK = struct.Struct("=BxHiII")  # struct ifinfomsg: family, type, index, flags, change
_ATTRIBUTE = struct.Struct("=HH")  # struct rtattr: length, type


@dataclass(frozen=True, slots=True)
class LinkState:
    """What one message says of an interface."""

    index: int
    name: str
    carrier: bool


class LinkEvents:
    """Poll `fd` and call `read()` when it is ready."""

    def __init__(self) -> None:
        """Follows the interfaces of this network namespace. Raises OSError where there is no netlink."""
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            self._socket.bind((0, _GROUP_LINK))
        except OSError:
            self._socket.close()
            raise

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def read(self) -> list[LinkState]:
        """New messages, oldest first, of at most BATCH datagrams. Never blocks.

        Raises OSError (ENOBUFS) where some were lost.
        """
        found: list[LinkState] = []
        for _ in range(BATCH):
            try:
                data, (sender, _groups) = self._socket.recvfrom(_DATAGRAM_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EINTR:
                    continue
                raise
            if sender == 0:  # the kernel; any process may send to a netlink socket
                found += link_states(data)
        return found


def link_states(data: bytes) -> Iterator[LinkState]:
    """The interfaces that a datagram describes; what is cut off or of another kind is left out. Pure."""
    while len(data) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(data)
        if not _HEADER.size <= length <= len(data):
            return
        body = data[_HEADER.size : length]
        if kind == _NEW_LINK and len(body) >= _LINK.size:
            _, _, index, flags, _ = _LINK.unpack_from(body)
            yield LinkState(index, _name(body[_LINK.size :]), bool(flags & _LOWER_UP))
        data = data[_aligned(length) :]


def _name(attributes: bytes) -> str:
    """ "" where there is none."""
    while len(attributes) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(attributes)
        if not _ATTRIBUTE.size <= length <= len(attributes):
            return ""
        if kind == _NAME:
            return attributes[_ATTRIBUTE.size : length].split(b"\0")[0][:32].decode("ascii", "replace")
        attributes = attributes[_aligned(length) :]
    return ""


def _aligned(length: int) -> int:
    return (length + 3) & ~3
