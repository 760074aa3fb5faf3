"""A node with an identity that means harm fills neither memory nor disk, and an honest node is served meanwhile."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from fleet_client import agent
from hostile import ATTACKS, HostileTarget, attack, batch

from nodetriage.service.version import VERSION

SECONDS = 2.0
MOST_GROWTH_MIB, MOST_DISK_MIB = 50, 40


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileTarget]:
    running = HostileTarget(tmp_path_factory.mktemp("hostile"))
    try:
        yield running
        assert running.program.stop(60) == 0, running.program.said()[-5000:]
    finally:
        if running.program.status is None:
            running.program.kill()


async def under_attack(target: str, what: str) -> int:
    """Attacks for SECONDS; returns how many messages were sent."""
    sent = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            async for _ in attack(target, what):
                sent += 1
    return sent


@pytest.mark.parametrize("what", ATTACKS)
async def test_a_hostile_node_fills_neither_memory_nor_disk_and_an_honest_one_is_served(
    controller: HostileTarget, what: str
) -> None:
    async with agent(controller.target) as honest:
        welcome = await honest.hello("good", agent_version=VERSION)
        seq = max((r.last_seq for r in welcome.stored), default=0)
        rss_mib, disk_mib = controller.rss_mib(), controller.disk_mib()
        attacking = asyncio.ensure_future(under_attack(controller.target, what))
        served = 0
        while not attacking.done() or not served:
            seq += 1
            await honest.send(batch(seq, 1))
            await honest.next()
            served += 1
            await asyncio.sleep(0.02)
        assert await attacking > 0
        assert controller.rss_mib() - rss_mib <= MOST_GROWTH_MIB
        assert controller.disk_mib() - disk_mib <= MOST_DISK_MIB
