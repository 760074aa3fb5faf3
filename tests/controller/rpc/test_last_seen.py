"""Heartbeats add up: a partial one tells what is new, the ages of the rest go on, and little of it is written."""

from nodetriage.controller.rpc.last_seen import NEVER_MS, SAVE_EVERY_S, Freshness
from nodetriage.v1 import health_pb2 as pb

S_US = 1_000_000


def beat(*checks: tuple[str, pb.Outcome, int], partial: bool = False, **more: object) -> pb.Heartbeat:
    states = [pb.CheckState(check=name, outcome=outcome, age_ms=age_ms) for name, outcome, age_ms in checks]
    return pb.Heartbeat(boot_id="b", checks=states, partial=partial, **more)  # type: ignore[arg-type]


def told(freshness: Freshness) -> dict[str, tuple[int, int]]:
    heard = freshness.of("n1")
    assert heard
    assert heard.heartbeat
    return {check.check: (check.outcome, check.age_ms) for check in heard.heartbeat.checks}


def test_a_partial_heartbeat_leaves_the_others_as_they_were_only_older() -> None:
    freshness = Freshness(0.0)
    freshness.hear("n1", 10.0, 10 * S_US, beat(("a", pb.OUTCOME_OK, 1000), ("b", pb.OUTCOME_UNSPECIFIED, NEVER_MS)))

    freshness.hear("n1", 15.0, 15 * S_US, beat(("b", pb.OUTCOME_HUNG, 200), partial=True, spooled_events=3))

    assert told(freshness) == {"a": (pb.OUTCOME_OK, 6000), "b": (pb.OUTCOME_HUNG, 200)}
    heard = freshness.of("n1")
    assert heard
    assert heard.heartbeat
    assert (heard.heartbeat.spooled_events, heard.heartbeat.partial) == (3, False)


def test_a_whole_heartbeat_forgets_checks_that_it_does_not_name() -> None:
    freshness = Freshness(0.0)
    freshness.hear("n1", 10.0, 10 * S_US, beat(("a", pb.OUTCOME_OK, 0), ("b", pb.OUTCOME_OK, 0)))

    freshness.hear("n1", 15.0, 15 * S_US, beat(("a", pb.OUTCOME_OK, 0)))

    assert list(told(freshness)) == ["a"]


def test_the_bytes_of_ports_are_kept_with_their_age() -> None:
    freshness = Freshness(0.0)
    ports = [pb.PortTraffic(port="mlx5_0/1", rx_bytes=1, tx_bytes=2, age_ms=500)]
    freshness.hear("n1", 10.0, 10 * S_US, beat(ports=ports))

    freshness.hear("n1", 15.0, 15 * S_US, beat(partial=True))

    heard = freshness.of("n1")
    assert heard
    assert heard.heartbeat
    assert list(heard.heartbeat.ports) == [pb.PortTraffic(port="mlx5_0/1", rx_bytes=1, tx_bytes=2, age_ms=5500)]


def test_a_heartbeat_without_news_is_written_only_from_time_to_time() -> None:
    freshness = Freshness(0.0)
    freshness.hear("n1", 0.0, 0, beat(("a", pb.OUTCOME_OK, 0)))
    assert [h.node for h in freshness.take_unsaved(0.0)] == ["n1"]

    freshness.hear("n1", 5.0, 5 * S_US, beat(("a", pb.OUTCOME_OK, 0), partial=True))
    assert freshness.take_unsaved(5.0) == []
    assert [h.at_us for h in freshness.take_unsaved(SAVE_EVERY_S)] == [5 * S_US]

    freshness.hear("n1", 40.0, 40 * S_US, beat(("a", pb.OUTCOME_FINDINGS, 0), partial=True))
    assert [h.at_us for h in freshness.take_unsaved(40.0)] == [40 * S_US]
    assert freshness.take_unsaved(99.0) == []


def test_after_a_restart_the_rows_are_written_a_few_at_a_time() -> None:
    freshness = Freshness(0.0)
    for i in range(5):
        freshness.hear(f"n{i}", 0.0, 0, beat(("a", pb.OUTCOME_OK, 0)))

    taken = [[h.node for h in freshness.take_unsaved(0.0, 2)] for _ in range(4)]

    assert [len(nodes) for nodes in taken] == [2, 2, 1, 0]
    assert {node for nodes in taken for node in nodes} == {f"n{i}" for i in range(5)}
