"""What is read from the history: open findings, outcomes, events by what they are, when a node was last seen."""

from typing import Any

from opened_store import BOOT, event, opened, run

from nodetriage.controller.store import history
from nodetriage.controller.store.fleet import NEVER_RAN, CheckView, check_views
from nodetriage.controller.store.history import EventFilter
from nodetriage.controller.store.mappers import Hello, Seen
from nodetriage.v1 import health_pb2 as pb


async def test_open_findings_and_outcomes_are_the_last_word_of_the_present_boot(database_url: str) -> None:
    def outcome(seq: int, check: str, outcome: pb.Outcome) -> pb.Event:
        return pb.Event(boot_id=BOOT, seq=seq, kind=pb.EVENT_KIND_OUTCOME, check=check, outcome=outcome)

    async with opened(database_url, "n1", "n2") as store:
        await store.record("n1", [event(9, boot="an older boot", component="GPU-9")], received_us=1)
        # The live edge (5) is stored before the backlog (1-4).
        await store.record("n1", [event(5, component="GPU-2", kind=pb.EVENT_KIND_CLEARED)], received_us=2)
        backlog = [event(1), event(2, component="GPU-2"), outcome(3, "gpu_lost", pb.OUTCOME_FINDINGS)]
        backlog.append(event(4, severity=pb.SEVERITY_MAJOR, kind=pb.EVENT_KIND_CHANGED))
        await store.record("n1", [*backlog, outcome(6, "gpu_lost", pb.OUTCOME_HUNG)], received_us=3)
        await store.record("n2", [event(1)], received_us=4)
        [found] = await store.read(lambda c: history.open_findings(c, ["n1"]))
        assert (found.event.component, found.event.severity) == ("GPU-1", pb.SEVERITY_MAJOR)
        [last] = await store.read(history.check_outcomes)
        assert (last.node, last.event.outcome) == ("n1", pb.OUTCOME_HUNG)
        assert {s.node for s in await store.read(history.open_findings)} == {"n1", "n2"}


def test_events_are_found_by_node_fault_severity_time_and_cursor(database_url: str) -> None:
    async def main() -> None:
        async with opened(database_url, "n1", "n2") as store:
            await store.record("n1", [event(1), event(2, fault="ib_link_down", severity=pb.SEVERITY_MAJOR)], 5)
            await store.record("n2", [event(3)], received_us=5)
            everything = await store.read(lambda c: history.events_after(c, EventFilter(), 10))

            async def found(**wanted: Any) -> list[int]:
                by = EventFilter(**wanted)
                return [s.event.seq for s in await store.read(lambda c: history.events_after(c, by, 10))]

            assert await found(nodes=("n1",)) == [1, 2]
            assert await found(faults=("ib_link_down",)) == [2]
            assert await found(min_severity=pb.SEVERITY_CRITICAL) == [1, 3]
            assert await found(since_us=1_000_002) == [2, 3]
            assert await found(after=everything[0].cursor, upto=everything[1].cursor) == [2]
            newest = await store.read(lambda c: history.newest_events(c, EventFilter(), 2))
            assert [s.event.seq for s in newest] == [2, 3]

    run(main)


async def test_last_seen_only_moves_forward_and_the_last_heartbeat_is_kept(database_url: str) -> None:
    async with opened(database_url, "n1", "n2") as store:
        beat = pb.Heartbeat(boot_id=BOOT, spooled_events=7)
        await store.record_seen([Seen("n1", 0.0, 50, beat, 45), Seen("n2", 0.0, 60)])
        await store.record_seen([Seen("n1", 0.0, 40, pb.Heartbeat(), 40)])
        await store.record_seen([Seen("n1", 0.0, 55)])
        n1, n2 = await store.read(history.all_nodes)
        assert (n1.last_seen_us, n2.last_seen_us) == (55, 60)
        assert (n1.heartbeat, n1.heartbeat_us) == (beat.SerializeToString(), 45)
        assert (n2.heartbeat, n2.heartbeat_us) == (None, None)


async def test_a_check_that_was_not_looked_at_is_told_with_its_age(sqlite_url: str) -> None:
    def state(check: str, outcome: pb.Outcome, age_ms: int) -> pb.CheckState:
        return pb.CheckState(check=check, outcome=outcome, age_ms=age_ms)

    async with opened(sqlite_url, "n1") as store:
        changed = event(1, kind=pb.EVENT_KIND_OUTCOME, check="fs_mounts", outcome=pb.OUTCOME_HUNG)
        await store.record("n1", [changed], received_us=2)
        told = [state("gpu_lost", pb.OUTCOME_SKIPPED, 3), state("ib_link", pb.OUTCOME_UNSPECIFIED, NEVER_RAN)]
        beat = pb.Heartbeat(boot_id=BOOT, checks=[*told, state("fs_mounts", pb.OUTCOME_HUNG, 9)])
        await store.record_seen([Seen("n1", 0.0, 10_000, beat, 10_000)])
        [row] = await store.read(history.all_nodes)
        outcomes = await store.read(history.check_outcomes)
        assert check_views(row, outcomes) == [
            CheckView("fs_mounts", pb.OUTCOME_HUNG, 1_000, 1_000_001),
            CheckView("gpu_lost", pb.OUTCOME_SKIPPED, 7_000, None),
            CheckView("ib_link", pb.OUTCOME_UNSPECIFIED, None, None),
        ]
        # After a reboot the old heartbeat says nothing any more.
        await store.record_hello(Hello("n1", "another boot", "0.1.0", "h100"), 20_000)
        [row] = await store.read(history.all_nodes)
        assert check_views(row, []) == []
