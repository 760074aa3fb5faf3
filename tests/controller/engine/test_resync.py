"""What an agent states as open, and what the controller has: they agree after one heartbeat, whoever lost what."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select
from waiting import eventually

from nodetriage.checks.model import Confidence, Severity
from nodetriage.controller.engine.reconciler import Reconciler
from nodetriage.controller.engine.resync import MOST_FINDINGS, Resync
from nodetriage.controller.scheduler import NoScheduler
from nodetriage.controller.settings.rules import Mode, Policy
from nodetriage.controller.store import schema
from nodetriage.controller.store.database import open_database
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store
from nodetriage.service import open_set
from nodetriage.v1 import health_pb2 as pb

OBSERVING = Policy(mode=Mode.OBSERVE)


@dataclass
class There:
    store: Store
    reconciler: Reconciler
    resync: Resync
    asked: list[str] = field(default_factory=list)
    now_s: float = 0.0

    async def say(self, seq: int, kind: str, **more: Any) -> None:
        event = finding(**more) if kind != "AGENT_STARTED" else pb.Event(at_unix_us=1)
        event.boot_id, event.seq, event.kind = "b", seq, pb.EventKind.Value(f"EVENT_KIND_{kind}")
        await self.store.record("n1", [event], received_us=2)
        newest = self.store.newest_id
        await eventually(lambda: self.reconciler.state.cursor >= newest)

    async def beat(self, *found: pb.Event, seq: int, whole: bool = True, looked: bool = True, **more: Any) -> None:
        """A heartbeat comes, and the next comparison is made; a while later, so that no pause holds it back."""
        beat = pb.Heartbeat(boot_id="b", partial=not whole, **more)
        beat.checks.add(check="gpu_xid", outcome=pb.OUTCOME_FINDINGS if looked else pb.OUTCOME_UNSPECIFIED)
        beat.open.digest, beat.open.as_of_seq, beat.open.stated = digest(found), seq, whole
        if whole:
            beat.open.findings.extend(found)
        self.resync.hear("n1", beat)
        self.now_s += 15.0
        await self.resync.settle(self.now_s)
        newest = self.store.newest_id
        await eventually(lambda: self.reconciler.state.cursor >= newest)

    @property
    def open(self) -> set[tuple[str, str, Severity]]:
        node = self.reconciler.state.nodes["n1"]
        return {(f.component, f.fault, f.severity) for f in node.open_findings}

    async def own(self) -> list[pb.Event]:
        """What the controller added to the history."""
        e = schema.events.c
        query = select(e.message).where(e.boot_id == "controller").order_by(e.id)
        rows = await self.store.read(lambda c: c.execute(query).scalars().all())
        return [pb.Event.FromString(row) for row in rows]


def finding(component: str = "GPU-1", fault: str = "gpu_off_bus", severity: str = "CRITICAL", **more: Any) -> pb.Event:
    grave = pb.Severity.Value(f"SEVERITY_{severity}")
    given = {"check": "gpu_xid", "at_unix_us": 1, "confidence": int(Confidence.STATE), **more}
    return pb.Event(component=component, fault=fault, severity=grave, **given)


def digest(found: Sequence[pb.Event]) -> bytes:
    entries = (open_set.Entry(f.check, f.component, f.fault, f.severity, f.confidence) for f in found)
    return open_set.digest(entries)


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[There]:
    store = Store(open_database(f"sqlite:///{path}/h.sqlite"))
    await store.open()
    reconciler = Reconciler(store, NoScheduler(), OBSERVING, tick_s=0.02)
    store.on_events(lambda _: reconciler.notify())
    task = asyncio.create_task(reconciler.run())
    there = There(store, reconciler, Resync(reconciler, lambda node: there.asked.append(node), lambda: store.newest_id))
    try:
        await store.record_hello(Hello("n1", "b", "1.0", "h100"), at_us=1)
        await there.say(1, "AGENT_STARTED")
        yield there
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()


async def test_a_fault_that_an_agent_forgot_ends_with_an_event_that_says_why(tmp_path: Path) -> None:
    async with running(tmp_path) as there:
        await there.say(2, "RAISED")
        await there.say(3, "AGENT_STARTED")  # its state directory was lost

        await there.beat(seq=3)

        assert there.open == set()
        (cleared,) = await there.own()
        assert (cleared.kind, cleared.fault, cleared.of_boot) == (pb.EVENT_KIND_CLEARED, "gpu_off_bus", "b")
        assert "does not have it open" in cleared.evidence["resync"].text


async def test_a_check_that_has_not_run_since_ends_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as there:
        await there.say(2, "RAISED")

        await there.beat(seq=3, looked=False)
        assert len(there.open) == 1

        await there.beat(seq=3)
        assert there.open == set()


async def test_what_the_database_lost_is_learned_with_its_evidence_and_its_time(tmp_path: Path) -> None:
    lost = finding(at_unix_us=77, evidence={"xid": pb.Value(whole=79)})

    async with running(tmp_path) as there:
        await there.beat(lost, seq=9)

        assert there.open == {("GPU-1", "gpu_off_bus", Severity.CRITICAL)}
        (raised,) = await there.own()
        assert (raised.kind, raised.at_unix_us, raised.evidence["xid"].whole) == (pb.EVENT_KIND_RAISED, 77, 79)


async def test_an_event_of_the_backlog_that_the_set_overtook_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as there:
        await there.beat(finding(), seq=9)
        await there.say(8, "CLEARED")
        assert len(there.open) == 1

        await there.say(10, "CLEARED")
        assert there.open == set()


async def test_another_severity_is_taken_over(tmp_path: Path) -> None:
    async with running(tmp_path) as there:
        await there.say(2, "RAISED", severity="WARNING")
        await there.beat(finding(severity="MAJOR"), seq=3)
        assert there.open == {("GPU-1", "gpu_off_bus", Severity.MAJOR)}


async def test_sameness_asks_for_nothing_and_stores_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as there:
        await there.say(2, "RAISED")
        for _ in range(3):
            await there.beat(finding(), seq=2, whole=False)
        assert (there.asked, await there.own()) == ([], [])


async def test_a_digest_that_differs_asks_for_the_set_once_in_a_while(tmp_path: Path) -> None:
    async with running(tmp_path) as there:
        await there.say(2, "RAISED")
        await there.beat(seq=2, whole=False)
        assert there.asked == ["n1"]
        await there.beat(seq=2)
        assert there.open == set()


async def test_a_difference_that_may_be_on_its_way_is_left_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as there:
        await there.beat(finding(), seq=2, spooled_events=1)
        assert (there.open, await there.own()) == (set(), [])
        await there.say(2, "RAISED")
        await there.beat(finding(), seq=2)
        assert (len(there.open), await there.own()) == (1, [])


async def test_events_that_an_agent_had_to_drop_lead_to_the_same_truth(tmp_path: Path) -> None:
    """Its spool was full: it raised one fault and cleared another, and neither event came."""
    async with running(tmp_path) as there:
        await there.say(2, "RAISED")
        await there.say(5, "LOST", component="", fault="", severity="WARNING")
        await there.beat(finding("GPU-2"), seq=5, whole=False)
        assert there.asked == ["n1"]
        await there.beat(finding("GPU-2"), seq=5)
        assert {component for component, _, _ in there.open} == {"GPU-2"}


async def test_a_new_boot_of_which_nothing_is_stored_ends_what_the_old_one_found(tmp_path: Path) -> None:
    async with running(tmp_path) as there:
        await there.say(2, "RAISED")
        await there.store.record_hello(Hello("n1", "c", "1.0", "h100"), at_us=3)
        beat = pb.Heartbeat(boot_id="c")
        beat.open.digest, beat.open.as_of_seq, beat.open.stated = open_set.EMPTY, 7, True
        there.resync.hear("n1", beat)
        await there.resync.settle(99.0)
        await eventually(lambda: there.reconciler.state.nodes["n1"].boot_id == "c")
        assert there.open == set()


async def test_a_set_with_more_than_can_be_kept_ends_nothing_and_is_bounded(tmp_path: Path) -> None:
    many = [finding(f"GPU-{i}", severity="WARNING") for i in range(MOST_FINDINGS + 50)]
    async with running(tmp_path) as there:
        await there.say(2, "RAISED", component="GPU-x")
        await there.beat(*many, seq=2)
        assert ("GPU-x", "gpu_off_bus", Severity.CRITICAL) in there.open
        assert len(there.open) <= MOST_FINDINGS
        await there.beat(*many, seq=2)
        assert len(await there.own()) <= 2 * MOST_FINDINGS


async def test_an_agent_that_states_no_set_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as there:
        await there.say(2, "RAISED")
        there.resync.hear("n1", pb.Heartbeat(boot_id="b"))
        await there.resync.settle(99.0)
        assert (len(there.open), there.asked) == (1, [])
