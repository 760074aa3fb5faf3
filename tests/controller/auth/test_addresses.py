"""Which addresses a node has, and how seldom the scheduler is asked for them."""

import asyncio
import ipaddress
from collections.abc import Mapping

import pytest

from nodetriage.controller.auth.addresses import NodeAddresses
from nodetriage.controller.slurm.output import Garbled, parse_hosts


async def test_a_node_has_the_addresses_of_all_its_names_and_slurm_is_asked_once_for_all() -> None:
    asked: list[int] = []

    async def hosts() -> Mapping[str, tuple[str, ...]]:
        asked.append(1)
        await asyncio.sleep(0)
        return {"n1": ("192.0.2.1", "localhost"), "n2": ("192.0.2.2",)}

    addresses = NodeAddresses(hosts)
    first, second, stranger = await asyncio.gather(*(addresses.of(name) for name in ("n1", "n2", "n3.invalid")))
    assert {ipaddress.ip_address("192.0.2.1"), ipaddress.ip_address("127.0.0.1")} <= first
    assert second == {ipaddress.ip_address("192.0.2.2")}
    assert stranger == frozenset()
    assert await addresses.of("n1") == first
    assert len(asked) == 1


async def test_names_that_no_resolver_takes_have_no_address() -> None:
    for name in ("x" * 300, "a..b", "\u00fc\u0000"):
        assert await NodeAddresses().of(name) == frozenset()


def test_what_sinfo_prints_is_read_whole_or_not_at_all() -> None:
    text = "n1\x1f10.0.0.1\x1fn1.example.org\x1e\nn2\x1fn2\x1fn2\x1e\n"
    assert parse_hosts(text) == {"n1": ("10.0.0.1", "n1.example.org"), "n2": ("n2",)}
    with pytest.raises(Garbled):
        parse_hosts("n1\x1f10.0.0.1\x1e\n")
