"""Heartbeats: whole where a stream begins, then only what is new."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodetriage.agent.core.result import Result
from nodetriage.agent.core.verdict import CheckVerdict, Verdict
from nodetriage.agent.delivery.spool import Spool
from nodetriage.agent.heartbeat import NEVER_MS, Heartbeats
from nodetriage.agent.machine.port_bytes import PortBytes
from nodetriage.agent.traffic import Traffic
from nodetriage.agent.workers.pool import WorkerPool
from nodetriage.agent.workers.worker import Setup
from nodetriage.checks.model import Outcome
from nodetriage.v1 import health_pb2 as pb


@dataclass
class Looked:
    """What a heartbeat asks of the rounds: which checks there are, and what is known through each."""

    checks: dict[str, None] = field(default_factory=lambda: dict.fromkeys(("a", "b")))
    verdict: Verdict = field(default_factory=lambda: Verdict("boot"))

    def ran(self, name: str, outcome: Outcome, at_s: float) -> None:
        known = {**self.verdict.checks, name: CheckVerdict(outcome, at_s=at_s)}
        self.verdict = Verdict("boot", known)


async def _no_worker(_: object) -> Result:
    raise AssertionError("nobody may be asked")


@pytest.fixture
def traffic() -> Traffic:
    return Traffic(_no_worker)


@pytest.fixture
def heartbeats(tmp_path: Path, traffic: Traffic) -> Heartbeats:
    async def made() -> Heartbeats:
        spool = Spool(tmp_path, "boot", 1 << 20)
        return Heartbeats(spool, WorkerPool(Setup("/", {}), "", lambda _: None), traffic, "boot")

    return asyncio.run(made())


def told(beat: pb.Heartbeat) -> list[tuple[str, int, int]]:
    return [(check.check, check.outcome, check.age_ms) for check in beat.checks]


def test_the_first_names_every_check_even_one_that_never_ran(heartbeats: Heartbeats) -> None:
    scheduler: Any = Looked()
    scheduler.ran("a", Outcome.OK, at_s=98.0)

    beat = heartbeats.make(scheduler, whole=True, now_s=100.0)

    assert told(beat) == [("a", pb.OUTCOME_OK, 2000), ("b", pb.OUTCOME_UNSPECIFIED, NEVER_MS)]
    assert not beat.partial


def test_a_later_one_names_only_checks_that_ran_since(heartbeats: Heartbeats) -> None:
    scheduler: Any = Looked()
    scheduler.ran("a", Outcome.OK, at_s=98.0)
    heartbeats.make(scheduler, whole=True, now_s=100.0)

    scheduler.ran("b", Outcome.HUNG, at_s=103.0)

    beat = heartbeats.make(scheduler, whole=False, now_s=105.0)
    assert (told(beat), beat.partial) == ([("b", pb.OUTCOME_HUNG, 2000)], True)
    assert told(heartbeats.make(scheduler, whole=False, now_s=110.0)) == []


def test_after_new_settings_it_is_whole_by_itself(heartbeats: Heartbeats) -> None:
    scheduler: Any = Looked()
    heartbeats.make(scheduler, whole=True, now_s=100.0)

    scheduler.checks = {"a": None}

    beat = heartbeats.make(scheduler, whole=False, now_s=105.0)
    assert ([name for name, _, _ in told(beat)], beat.partial) == (["a"], False)


def test_the_bytes_of_ports_are_told_when_they_were_read_anew(heartbeats: Heartbeats, traffic: Traffic) -> None:
    scheduler: Any = Looked()
    heartbeats.make(scheduler, whole=True, now_s=100.0)
    reading = b'[{"port":"mlx5_0/1","rx_bytes":4,"tx_bytes":8}]'
    traffic.take(Result("traffic", Outcome.OK, memory=reading), now_s=0.0)

    assert [(p.port, p.rx_bytes, p.tx_bytes) for p in heartbeats.make(scheduler, False, 105.0).ports] == [
        ("mlx5_0/1", 4, 8)
    ]
    assert not heartbeats.make(scheduler, False, 110.0).ports
    assert PortBytes("mlx5_0/1", 4, 8) == traffic.ports(whole=True, now_s=1.0)[0][0]
