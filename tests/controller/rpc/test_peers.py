"""What one host can take, and how refusals are logged without end to the disk."""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc import peers, refusals
from nodetriage.controller.rpc.peers import Peers
from nodetriage.controller.rpc.refusals import HOSTS, PER_HOST_PER_MIN, PER_MIN, Refusals


def test_a_host_has_as_many_streams_as_allowed_and_others_do_not_count() -> None:
    counted = Peers(max_streams=2, tries_per_min=100)
    with counted.stream("a", 0.0):
        with counted.stream("a", 0.0):
            with pytest.raises(Refused, match="a has 2 streams already"), counted.stream("a", 0.0):
                pass
            with counted.stream("b", 0.0):
                pass
        with counted.stream("a", 0.0):
            pass


def test_a_host_that_tries_too_often_is_refused_until_it_has_waited() -> None:
    counted = Peers(max_streams=10, tries_per_min=60)

    def tries(count: int, now_s: float) -> int:
        served = 0
        for _ in range(count):
            with contextlib.suppress(Refused), counted.stream("a", now_s):
                served += 1
        return served

    assert tries(100, 0.0) == 60
    assert tries(100, 10.0) == 10  # refused tries cost nothing: who waits is served
    assert tries(100, 1000.0) == 60


@given(st.lists(st.tuples(st.integers(0, 400), st.floats(0, 1)), max_size=300))
def test_never_more_tries_than_the_rate_allows(steps: Iterable[tuple[int, float]]) -> None:
    counted, now_s, served = Peers(max_streams=1000, tries_per_min=60), 0.0, 0
    for tries, idle_s in steps:
        now_s += idle_s
        for _ in range(tries):
            with contextlib.suppress(Refused), counted.stream("a", now_s):
                served += 1
        assert served <= 60 + now_s + 1e-6


def test_hosts_without_streams_are_forgotten_and_busy_ones_are_not() -> None:
    counted = Peers(max_streams=1, tries_per_min=1)
    with counted.stream("busy", 0.0):
        for number in range(peers.REMEMBERED + 10):
            with counted.stream(f"h{number}", 0.0):
                pass
        assert len(counted._hosts) <= peers.REMEMBERED + 1
        with pytest.raises(Refused), counted.stream("busy", 0.0):
            pass
        with counted.stream("h0", 0.0):  # forgotten
            pass


def told(calls: list[tuple[str, str]]) -> list[Any]:
    """What is logged of refusals told within one moment."""

    async def main() -> None:
        log = Refusals()
        for peer, reason in calls:
            log.tell(peer, "UNAUTHENTICATED", reason)
        assert log.total == len(calls)
        log.sum_up()

    with capture_logs() as lines, pytest.MonkeyPatch.context() as patch:
        patch.setattr(refusals, "monotonic", lambda: 0.0)
        asyncio.run(main())
    return lines


def test_each_refusal_is_logged_with_peer_and_reason() -> None:
    assert told([("ipv4:10.0.0.7:1", "no certificate")]) == [
        {
            "event": "peer sent away",
            "peer": "ipv4:10.0.0.7:1",
            "code": "UNAUTHENTICATED",
            "reason": "no certificate",
            "log_level": "warning",
        }
    ]


def test_a_host_that_is_refused_without_end_does_not_fill_the_log_and_is_counted() -> None:
    lines = told([(f"ipv4:10.0.0.7:{port}", "no") for port in range(5000)] + [("ipv4:10.0.0.8:1", "no")])
    logged = [line for line in lines if line["event"] == "peer sent away"]
    assert PER_HOST_PER_MIN <= len(logged) - 1 <= PER_HOST_PER_MIN + 2
    assert logged[-1]["peer"] == "ipv4:10.0.0.8:1"  # another host's is seen all the same
    assert lines[-1]["event"] == "more peers sent away"
    assert lines[-1]["count"] == 5001 - len(logged)
    assert lines[-1]["most"] == {"10.0.0.7": 5001 - len(logged)}


def test_many_hosts_at_once_do_not_fill_the_log_either() -> None:
    lines = told([(f"ipv4:10.{n >> 8}.{n & 255}.1:1", "no") for n in range(HOSTS + 4000)])
    assert PER_MIN <= len(lines) - 1 <= PER_MIN + 20
    assert lines[-1]["count"] == HOSTS + 4000 - (len(lines) - 1)
    assert lines[-1]["hosts"] <= HOSTS + 1
    assert len(lines[-1]["most"]) == 10


def test_what_was_not_logged_is_summed_up_later_by_itself() -> None:
    async def main() -> None:
        log = Refusals(sum_up_s=0.05)
        for _ in range(PER_HOST_PER_MIN + 5):
            log.tell("ipv4:10.0.0.7:1", "X", "no")
        limit_s = time.monotonic() + 60
        while lines[-1]["event"] != "more peers sent away":
            assert time.monotonic() < limit_s
            await asyncio.sleep(0.01)

    with capture_logs() as lines:
        asyncio.run(main())
