"""Addresses in gRPC's form: HOST:PORT, [V6]:PORT, unix:PATH; peers as ipv4:HOST:PORT or ipv6:[HOST]:PORT."""

import ipaddress
from urllib.parse import unquote


def is_unix(address: str) -> bool:
    return address.startswith(("unix:", "unix-abstract:"))


def is_address(address: str) -> bool:
    """Whether it has the form that a client can connect to."""
    if is_unix(address):
        return bool(address.partition(":")[2])
    host, _, port = address.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal() and 0 < int(port) < 65536


def is_local(address: str) -> bool:
    """Whether only this machine can be at the other end: a Unix socket or a loopback address."""
    if is_unix(address):
        return True
    host = host_of(address)
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(address: str) -> str:
    """The host of HOST:PORT, without brackets."""
    return address.rpartition(":")[0].strip("[]")


def peer_host(peer: str) -> str:
    """The address of a peer without its port ("10.0.0.7"); "unix" for a Unix socket."""
    if not peer.startswith(("ipv4:", "ipv6:")):
        return "unix" if is_unix(peer) else peer
    host = unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    # A listener on [::] sees IPv4 peers as ::ffff:10.0.0.7.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
