"""Heartbeats add up: a partial one tells what is new, the ages of the rest go on, and little of it is written."""

from nodetriage.controller.rpc.last_seen import NEVER_MS, SAVE_EVERY_S, LastSeen
from nodetriage.v1 import health_pb2 as pb

S_US = 1_000_000


def beat(*checks: tuple[str, pb.Outcome, int], partial: bool = False, **more: object) -> pb.Heartbeat:
    states = [pb.CheckState(check=name, outcome=outcome, age_ms=age_ms) for name, outcome, age_ms in checks]
    return pb.Heartbeat(boot_id="b", checks=states, partial=partial, **more)  # type: ignore[arg-type]


def told(last_seen: LastSeen) -> dict[str, tuple[int, int]]:
    heard = last_seen.of("n1")
    assert heard
    assert heard.heartbeat
    return {check.check: (check.outcome, check.age_ms) for check in heard.heartbeat.checks}


def test_a_partial_heartbeat_leaves_the_others_as_they_were_only_older() -> None:
    last_seen = LastSeen(0.0)
    last_seen.hear("n1", 10.0, 10 * S_US, beat(("a", pb.OUTCOME_OK, 1000), ("b", pb.OUTCOME_UNSPECIFIED, NEVER_MS)))

    last_seen.hear("n1", 15.0, 15 * S_US, beat(("b", pb.OUTCOME_HUNG, 200), partial=True, spooled_events=3))

    assert told(last_seen) == {"a": (pb.OUTCOME_OK, 6000), "b": (pb.OUTCOME_HUNG, 200)}
    heard = last_seen.of("n1")
    assert heard
    assert heard.heartbeat
    assert (heard.heartbeat.spooled_events, heard.heartbeat.partial) == (3, False)


def test_a_whole_heartbeat_forgets_checks_that_it_does_not_name() -> None:
    last_seen = LastSeen(0.0)
    last_seen.hear("n1", 10.0, 10 * S_US, beat(("a", pb.OUTCOME_OK, 0), ("b", pb.OUTCOME_OK, 0)))

    last_seen.hear("n1", 15.0, 15 * S_US, beat(("a", pb.OUTCOME_OK, 0)))

    assert list(told(last_seen)) == ["a"]


def test_the_bytes_of_ports_are_kept_with_their_age() -> None:
    last_seen = LastSeen(0.0)
    ports = [pb.PortTraffic(port="mlx5_0/1", rx_bytes=1, tx_bytes=2, age_ms=500)]
    last_seen.hear("n1", 10.0, 10 * S_US, beat(ports=ports))

    last_seen.hear("n1", 15.0, 15 * S_US, beat(partial=True))

    heard = last_seen.of("n1")
    assert heard
    assert heard.heartbeat
    assert list(heard.heartbeat.ports) == [pb.PortTraffic(port="mlx5_0/1", rx_bytes=1, tx_bytes=2, age_ms=5500)]


def test_a_heartbeat_without_news_is_written_only_from_time_to_time() -> None:
    last_seen = LastSeen(0.0)
    last_seen.hear("n1", 0.0, 0, beat(("a", pb.OUTCOME_OK, 0)))
    assert [h.node for h in last_seen.take_unsaved(0.0)] == ["n1"]

    last_seen.hear("n1", 5.0, 5 * S_US, beat(("a", pb.OUTCOME_OK, 0), partial=True))
    assert last_seen.take_unsaved(5.0) == []
    assert [h.at_us for h in last_seen.take_unsaved(SAVE_EVERY_S)] == [5 * S_US]

    last_seen.hear("n1", 40.0, 40 * S_US, beat(("a", pb.OUTCOME_FINDINGS, 0), partial=True))
    assert [h.at_us for h in last_seen.take_unsaved(40.0)] == [40 * S_US]
    assert last_seen.take_unsaved(99.0) == []


def test_after_a_restart_the_rows_are_written_a_few_at_a_time() -> None:
    last_seen = LastSeen(0.0)
    for i in range(5):
        last_seen.hear(f"n{i}", 0.0, 0, beat(("a", pb.OUTCOME_OK, 0)))

    taken = [[h.node for h in last_seen.take_unsaved(0.0, 2)] for _ in range(4)]

    assert [len(nodes) for nodes in taken] == [2, 2, 1, 0]
    assert {node for nodes in taken for node in nodes} == {f"n{i}" for i in range(5)}


def test_a_node_without_a_job_is_silent_after_two_and_a_half_of_its_own_intervals() -> None:
    last_seen = LastSeen(0.0)
    last_seen.hear("idle", 100.0, 0, beat(next_within_ms=20_000))
    last_seen.hear("busy", 100.0, 0, beat(next_within_ms=5000))
    last_seen.hear("of-old", 100.0, 0, beat())

    def silent(now_s: float) -> list[str]:
        return list(last_seen.silent(now_s, 30.0, 20.0))

    assert silent(129.0) == []
    assert silent(131.0) == ["busy", "of-old"]  # the bound that nodes with a job always had
    assert silent(149.0) == ["busy", "of-old"]
    assert silent(151.0) == ["idle", "busy", "of-old"]


def test_an_agent_cannot_announce_itself_away() -> None:
    last_seen = LastSeen(0.0)
    last_seen.hear("n1", 100.0, 0, beat(next_within_ms=0xFFFFFFFF))

    assert list(last_seen.silent(151.0, 30.0, 20.0)) == ["n1"]


def test_what_counts_is_the_interval_of_the_last_heartbeat() -> None:
    last_seen = LastSeen(0.0)
    last_seen.hear("n1", 100.0, 0, beat(next_within_ms=20_000))
    last_seen.hear("n1", 110.0, 0, beat(next_within_ms=5000, partial=True))

    assert list(last_seen.silent(141.0, 30.0, 20.0)) == ["n1"]
