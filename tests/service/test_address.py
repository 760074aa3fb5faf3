"""What counts as this machine, and who a peer is."""

import pytest

from nodetriage.service.address import host_of, is_local, peer_host


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "127.8.9.1:0", "[::1]:1", "localhost:1", "unix:/x", "unix-abstract:x"]
)
def test_loopback_and_unix_sockets_are_this_machine(address: str) -> None:
    assert is_local(address)


@pytest.mark.parametrize(
    "address", ["10.0.0.1:1", "0.0.0.0:1", "[::]:1", "ctl:1", "localhost.example.org:1", "unixx:1"]
)
def test_everything_else_is_not(address: str) -> None:
    assert not is_local(address)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:4711", "10.0.0.7"),
        ("ipv6:%5B2001:db8::7%5D:4711", "2001:db8::7"),
        ("ipv6:[2001:db8::7]:4711", "2001:db8::7"),
        ("ipv6:%5B::ffff:10.0.0.7%5D:4711", "10.0.0.7"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::1"),
        ("unix:", "unix"),
        ("unix:/run/x", "unix"),
    ],
)
def test_a_peer_is_known_by_its_address_alone(peer: str, host: str) -> None:
    assert peer_host(peer) == host


def test_a_host_has_no_brackets() -> None:
    assert host_of("[2001:db8::7]:7443") == "2001:db8::7"
