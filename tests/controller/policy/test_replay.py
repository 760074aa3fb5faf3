"""A replay with the policy that was in force comes to what was done, to the second; another policy to other figures."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_slurm import FakeSlurm
from hypothesis import given
from hypothesis import strategies as st
from simulated import START, Month
from sqlalchemy import Connection, Engine, create_engine, select

from nodetriage.controller.engine import inputs
from nodetriage.controller.engine.reconciler import Reconciler
from nodetriage.controller.policy.state import ActionKind, FleetState, NodeEvent, SchedulerSeen
from nodetriage.controller.policy.verify import replay
from nodetriage.controller.policy.verify.replay import PolicyLoaded, ReplayInput
from nodetriage.controller.scheduler import NodeView, ReservationView
from nodetriage.controller.settings.limits import DrainLimits
from nodetriage.controller.settings.rules import Mode, Policy, Response
from nodetriage.controller.store import schema, state_store
from nodetriage.controller.store.database import create_tables, open_database
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2 as pb

RULES = Policy(
    mode=Mode.ENFORCE, drain_limits=DrainLimits(max_drains_per_hour=2, max_percent=20, partition_max_percent=20)
)


@pytest.fixture(scope="module")
def month() -> Month:
    return Month(RULES).run(days=30)


@pytest.fixture(scope="module")
def week() -> Month:
    return Month(RULES, seed=2).run(days=7)


def test_the_same_policy_over_a_month_comes_to_exactly_the_actions_taken(month: Month) -> None:
    outcome = replay.run(month.history)

    assert outcome.actions == month.decided
    assert outcome.state == month.state
    assert outcome.broken == []
    assert replay.run(month.history, RULES).actions == month.decided
    counts = outcome.counts()
    assert counts["drains"] > 30
    assert counts["held"] > 0
    assert counts["requeues"] > 5
    assert counts["drained_node_hours"] > 100


def test_a_stricter_brake_drains_less_and_holds_more(week: Month) -> None:
    then = replay.run(week.history).counts()
    strict = replace(RULES, drain_limits=DrainLimits(max_drains_per_hour=1, max_nodes=1, repair_max_nodes=0))
    stricter = replay.run(week.history, strict)
    other = stricter.counts()
    assert stricter.broken == []

    assert other["drains"] < then["drains"]
    assert other["held_node_hours"] > then["held_node_hours"]
    assert other["drained_node_hours"] < then["drained_node_hours"]


def test_a_policy_that_only_observes_does_nothing_and_says_what_it_would(week: Month) -> None:
    other = replay.run(week.history, replace(RULES, mode=Mode.OBSERVE))

    assert [other.counts()[n] for n in ("drains", "requeues", "undrains", "drained_node_hours")] == [0, 0, 0, 0]
    assert other.counts()["shadow"] > 10
    assert other.broken == []


def test_a_policy_that_records_only_low_faults_keeps_their_nodes_at_work(week: Month) -> None:
    milder = replace(RULES, severity={**RULES.severity, "major": Response.RECORD})
    drained = {d.action.fault for d in replay.run(week.history, milder).of(ActionKind.DRAIN)}

    assert drained
    assert drained <= {"gpu_off_bus", "mount_hung"}


def test_only_what_came_since_the_given_moment_is_counted(month: Month) -> None:
    since = START + timedelta(days=20)
    outcome = replay.run(month.history, since=since)

    assert outcome.actions == [d for d in month.decided if d.at >= since]
    assert outcome.counts()["drained_node_hours"] < replay.run(month.history).counts()["drained_node_hours"]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_database(database_url)
    create_tables(opened)
    yield opened
    opened.dispose()


def test_what_the_database_keeps_is_enough_for_that(engine: Engine) -> None:
    """All but agents' events, which have their own table, on both databases."""
    month = Month(RULES, nodes=12, seed=3).run(days=3)
    recorder = inputs.Recorder()
    told = [e for e in month.entries if isinstance(e, ReplayInput) and not isinstance(e.events[0], NodeEvent)]
    with engine.begin() as connection:
        inputs.add(connection, [inputs.snapshot_row(FleetState(), START), inputs.policy_row(RULES, START)])
        for entry in told:
            inputs.add(connection, recorder.rows(entry.events, entry.at, True))
            recorder.kept(entry.events)
    with engine.connect() as connection:
        history = inputs.history(connection, START + timedelta(days=1))
        first, *rest = history.entries

    assert history.start == FleetState()
    assert first == PolicyLoaded(START, RULES)
    assert rest == told


def test_of_the_scheduler_only_changes_are_kept_and_the_view_comes_back_whole() -> None:
    engine = create_engine("sqlite://")
    create_tables(engine)
    one, two = NodeView("n1", "idle"), NodeView("n2", "mixed", partitions=("main",))
    reserved = (ReservationView("r", ("n1",)),)
    views = [
        SchedulerSeen(START, {"n1": one, "n2": two}, reserved, {"n1": ("rack r1",)}),
        SchedulerSeen(START + timedelta(minutes=1), {"n1": one, "n2": two}, reserved, {"n1": ("rack r1",)}),
        SchedulerSeen(START + timedelta(minutes=2), {"n1": replace(one, base="down")}, (), {"n1": ("rack r1",)}),
    ]
    recorder = inputs.Recorder()
    with engine.begin() as connection:
        inputs.add(connection, [inputs.snapshot_row(FleetState(), START)])
        for seen in views:
            inputs.add(connection, recorder.rows((seen,), seen.read_at, effect=False))
            recorder.kept((seen,))
    with engine.connect() as connection:
        kept = list(inputs.history(connection, START).entries)

    assert [entry.events[0] for entry in kept if isinstance(entry, ReplayInput)] == [views[0], views[2]]


VIEWS = st.dictionaries(
    st.sampled_from(["n1", "n2", "n3"]),
    st.builds(
        NodeView,
        name=st.just("n"),
        base=st.sampled_from(["idle", "down"]),
        flags=st.frozensets(st.sampled_from(["drain", "maint"])),
        reason=st.sampled_from(["", "fan", "nodetriage: a b [incident x-1]"]),
    ),
).map(lambda views: {name: replace(view, name=name) for name, view in views.items()})


@given(st.lists(st.tuples(VIEWS, st.booleans(), st.booleans()), max_size=8))
def test_any_sequence_of_readings_comes_back_as_it_was(readings: list[tuple[dict[str, NodeView], bool, bool]]) -> None:
    recorder, view, before = inputs.Recorder(), inputs.View(), None
    for minute, (nodes, reserved, shared) in enumerate(readings):
        seen = SchedulerSeen(
            START + timedelta(minutes=minute),
            nodes,
            (ReservationView("r", ("n1",)),) if reserved else (),
            {"n1": ("rack r1",)} if shared else {},
        )
        rows = recorder.rows((seen,), seen.read_at, effect=False)
        recorder.kept((seen,))
        for row in rows:
            view = view.after(msgspec.json.decode(row["document"], type=inputs.ViewChange))
        assert view.seen(seen.read_at) == seen
        assert rows or before == replace(seen, read_at=START), "only what is as before is not kept"
        before = replace(seen, read_at=START)


class WatchedStore(Store):
    """Notes, within each transaction, when the history by then would not replay to the state at that time."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.looked = 0
        self.apart: list[tuple[FleetState, FleetState]] = []

    async def write(self, work: Callable[[Connection], Any]) -> Any:
        def watched(connection: Connection) -> Any:
            done = work(connection)
            replayed, remembered = replay_of(connection).state, state_store.load(connection)
            self.looked += 1
            if replayed != remembered:
                self.apart.append((replayed, remembered))
            return done

        return await super().write(watched)


def replay_of(connection: Connection) -> replay.Outcome:
    return replay.run(inputs.history(connection, datetime(2020, 1, 1, tzinfo=UTC)))


async def test_the_running_reconciler_leaves_a_history_that_replays_to_its_own_actions(tmp_path: Path) -> None:
    """Also through a reboot, after which the events of the boot before would no longer count, and a changed policy.

    And at every commit, for the controller may be killed after any.
    """
    slurm = FakeSlurm("n1", "n2", "n3")
    slurm.place("11", "n1")

    store = WatchedStore(open_database(f"sqlite:///{tmp_path}/h.sqlite"))
    await store.open()
    reconciler = Reconciler(
        store, slurm, replace(RULES, drain_limits=DrainLimits(100, 100, 100, 100, 100)), tick_s=0.02, scan_s=0.05
    )
    task = asyncio.create_task(reconciler.run())
    await tell(store, reconciler, "n1", "b1", 1)
    await until(lambda: "undone" not in open_drains(reconciler, 1))
    await tell(store, reconciler, "n1", "b2", 1, "AGENT_STARTED")
    reconciler.set_policy(Policy(mode=Mode.ENFORCE, drain_limits=DrainLimits(50, 100, 100, 100, 100)))
    await tell(store, reconciler, "n2", "b1", 1)
    await until(lambda: "undone" not in open_drains(reconciler, 2))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # The step that was on its way to the disk when the reconciler ended is stored all the same: before this one.
    done, again = await store.write(lambda c: (decided(c), replay_of(c)))
    assert sorted((state_store.to_us(d.at), d.action.id) for d in again.actions) == done
    assert len(again.of(ActionKind.DRAIN)) == 2
    assert again.state == await store.read(state_store.load)
    assert store.apart == []
    assert store.looked > 5
    await store.close()


def decided(connection: Connection) -> list[tuple[int, str]]:
    a = schema.actions.c
    return [(us, name) for us, name in connection.execute(select(a.decided_us, a.id).order_by(a.decided_us, a.id))]


def open_drains(reconciler: Reconciler, nodes: int) -> list[str]:
    drains = [n.drain for n in reconciler.state.nodes.values() if n.drain]
    return ["done" if d.done_at else "undone" for d in drains] + ["undone"] * (nodes - len(drains))


async def tell(store: Store, reconciler: Reconciler, node: str, boot: str, seq: int, kind: str = "RAISED") -> None:
    await store.record_hello(Hello(node, boot, "1.0", "h100"), at_us=1)
    event = pb.Event(boot_id=boot, seq=seq, at_unix_us=1, check="gpu_xid", component="GPU-1", fault="gpu_off_bus")
    event.kind = pb.EventKind.Value(f"EVENT_KIND_{kind}")
    event.severity = pb.SEVERITY_CRITICAL
    await store.record(node, [event], received_us=2)
    reconciler.notify()


async def until(condition: object) -> None:
    async with asyncio.timeout(60):
        while not condition():  # type: ignore[operator]  # noqa: ASYNC110 it is another task's state that changes
            await asyncio.sleep(0.01)
