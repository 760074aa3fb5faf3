"""The reconciler's loop over a real store: events in, actions done, nothing claimed that was not."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fake_slurm import FakeSlurm
from reported import all_ok
from sqlalchemy import select

from nodetriage.controller.engine.reconciler import Reconciler
from nodetriage.controller.policy.state import DrainStatus, NodeState, OperatorCommand, Tick
from nodetriage.controller.scheduler import NodeView, NoScheduler, ReservationView, Scheduler, SchedulerUnavailable
from nodetriage.controller.settings.limits import CommonMode
from nodetriage.controller.settings.rules import DrainLimits, Mode, Policy, Rule
from nodetriage.controller.store import schema, state_store
from nodetriage.controller.store.database import open_database
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2 as pb

ROOMY = Policy(mode=Mode.ENFORCE, drain_limits=DrainLimits(100, 100, 100, 100, 100))


@dataclass
class Controller:
    store: Store
    reconciler: Reconciler
    seq: int = 0

    async def tell(
        self, node: str, kind: str = "RAISED", severity: str = "CRITICAL", fault: str = "gpu_off_bus"
    ) -> None:
        await self.store.record_hello(Hello(node, "b", "1", "h100"), at_us=1)
        self.seq += 1
        event = pb.Event(boot_id="b", seq=self.seq, at_unix_us=1, check="gpu_xid", component="GPU-1", fault=fault)
        event.kind = pb.EventKind.Value(f"EVENT_KIND_{kind}")
        event.severity = pb.Severity.Value(f"SEVERITY_{severity}")
        await self.store.record(node, [event], received_us=2)
        self.reconciler.notify()

    async def known(self, *nodes: str) -> None:
        """They report, and the scheduler is read after that: nothing is tried before."""
        for node in nodes:
            await self.tell(node, severity="WARNING", fault="gpu_xid_warning")
        await until(lambda: all((f := self.reconciler.state.nodes.get(n)) and f.partitions for n in nodes))

    async def actions(self) -> dict[str, Any]:
        rows = await self.store.read(lambda c: c.execute(select(schema.actions)).all())
        return {row.id: row for row in rows}

    async def all_actions(self, are: Callable[[Any], bool]) -> bool:
        return all(are(a) for a in (await self.actions()).values())

    async def remembers_what_is_stored(self) -> bool:
        return self.reconciler.state == await self.store.read(state_store.load)

    def status(self, node: str) -> str:
        facts = self.reconciler.state.nodes.get(node)
        return str(facts.drain.status) if facts and facts.drain else ""


@asynccontextmanager
async def running(path: Path, scheduler: Scheduler, rules: Policy = ROOMY) -> AsyncIterator[Controller]:
    store = Store(open_database(f"sqlite:///{path}/h.sqlite"))
    await store.open()
    reconciler = Reconciler(store, scheduler, rules, tick_s=0.02, scan_s=0.05)
    task = asyncio.create_task(reconciler.run())
    try:
        yield Controller(store, reconciler)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()


async def until(condition: Callable[[], object | Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while True:
            holds = condition()
            if await holds if inspect.isawaitable(holds) else holds:
                return
            await asyncio.sleep(0.005)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 100))


async def test_a_stored_fault_becomes_a_drain_and_a_requeue(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1", "n2")
    slurm.place("11", "n1")

    async with running(tmp_path, slurm) as controller:
        await controller.tell("n1")
        await until(lambda: len(slurm.said) == 2)
        await until(lambda: controller.all_actions(lambda a: a.status == "done"))
        await until(lambda: controller.reconciler.state.nodes["n1"].state is NodeState.DRAINED)
        await until(lambda: controller.reconciler.state.nodes["n1"].partitions == ("main",))
        await until(controller.remembers_what_is_stored)  # not while a step is on its way to the disk
    assert [line.split()[0] for line in slurm.said] == ["drain", "requeue"]


def test_a_restarted_reconciler_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1", "n2")

    async def first() -> None:
        async with running(tmp_path, slurm) as controller:
            await controller.tell("n1")
            await until(lambda: controller.status("n1") == "done")

    async def second() -> None:
        async with running(tmp_path, slurm) as controller:
            controller.seq = 1
            await until(lambda: controller.status("n1") == "done")
            await controller.tell("n1", "REPEATED")
            await controller.tell("n2")
            await until(lambda: controller.status("n2") == "done")

    run(first)
    run(second)
    assert [line.split()[1] for line in slurm.said] == ["n1", "n2"]


async def test_with_slurm_down_the_action_stays_and_events_go_on_being_taken(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1", "n2")

    async with running(tmp_path, slurm) as controller:
        await controller.known("n1", "n2")
        slurm.down = True
        await controller.tell("n1")
        await until(lambda: controller.status("n1") == "asked")
        await controller.tell("n2")
        await until(lambda: controller.status("n2") == "asked")
        # Soon they are tried again: looked at in one reading, between two tries.
        waits = "Unable to contact"
        await until(lambda: controller.all_actions(lambda a: a.status == "pending" and waits in a.detail))
        assert {a.outcome for a in (await controller.actions()).values()} == {""}
        slurm.down = False
        await until(lambda: controller.status("n1") == controller.status("n2") == "done")


async def test_after_an_outage_what_waited_is_tried_at_once(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1")

    async with running(tmp_path, slurm) as controller:
        await controller.known("n1")
        slurm.down = True
        await controller.tell("n1")
        await until(lambda: controller.status("n1") == "asked")
        await until(lambda: controller.all_actions(lambda a: a.status == "pending" and a.attempts > 0))
        (action,) = (await controller.actions()).values()
        later_us = state_store.to_us(datetime.now(UTC)) + 500_000_000
        later = schema.actions.update().where(schema.actions.c.id == action.id).values(next_try_us=later_us)
        await until(lambda: controller.reconciler.state.breaker.outage_since)
        await controller.store.write(lambda c: c.execute(later))
        slurm.down = False
        await until(lambda: controller.status("n1") == "done")
        assert controller.reconciler.state.breaker.outage_since is None


async def test_what_slurm_refuses_for_one_node_is_no_outage(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1")

    async with running(tmp_path, slurm) as controller:
        await until(lambda: controller.reconciler.state.sizes)
        slurm.refuses = "Invalid node name specified"
        await controller.tell("n1")
        await until(lambda: controller.status("n1") == "asked")
        await until(lambda: controller.all_actions(lambda a: a.attempts > 0 and "Invalid node" in a.detail))
        assert controller.reconciler.state.breaker.failed == ()
        slurm.refuses = ""


async def test_without_a_scheduler_everything_is_recorded_as_what_would_have_been(tmp_path: Path) -> None:
    async with running(tmp_path, NoScheduler(), Policy(mode=Mode.ENFORCE)) as controller:
        await controller.tell("n1")
        await until(lambda: "n1" in controller.reconciler.state.nodes)
        (only,) = (await controller.actions()).values()
        assert (only.kind, only.status, only.text) == ("shadow", "shadow", "drain_and_requeue")
        assert controller.reconciler.state.nodes["n1"].state is NodeState.HEALTHY


async def test_an_operator_brings_a_repaired_node_back(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1")

    async with running(tmp_path, slurm) as controller:
        await controller.tell("n1")
        await until(lambda: controller.status("n1") == "done")
        await controller.tell("n1", "CLEARED")
        await until(lambda: not controller.reconciler.state.nodes["n1"].open_findings)
        await controller.reconciler.post(all_ok(controller.reconciler.state.nodes["n1"], datetime.now(UTC)))
        await controller.reconciler.command(OperatorCommand("undrain", "n1", "olga"))
        await until(lambda: controller.reconciler.state.nodes["n1"].state is NodeState.HEALTHY)
    assert slurm.said[-1] == "undrain n1"


async def test_an_undrain_is_called_off_when_the_fault_comes_back_first(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1")

    async with running(tmp_path, slurm) as controller:
        await controller.tell("n1")
        await until(lambda: controller.status("n1") == "done")
        slurm.down = True
        await controller.tell("n1", "CLEARED")
        await until(lambda: not controller.reconciler.state.nodes["n1"].open_findings)
        await controller.reconciler.post(all_ok(controller.reconciler.state.nodes["n1"], datetime.now(UTC)))
        await controller.reconciler.command(OperatorCommand("undrain", "n1", "olga"))
        await until(lambda: controller.status("n1") == DrainStatus.RETURNING)
        await controller.tell("n1")
        await until(lambda: controller.status("n1") == "done")
        slurm.down = False
        await until(lambda: controller.all_actions(lambda a: a.status in ("done", "cancelled")))
        assert "cancelled" in {a.status for a in (await controller.actions()).values()}
    assert [line.split()[0] for line in slurm.said] == ["drain"]


async def test_a_reloaded_policy_counts_from_the_next_step_on(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1", "n2")

    async with running(tmp_path, slurm, Policy(mode=Mode.OBSERVE)) as controller:
        await controller.tell("n1")
        await until(lambda: controller.reconciler.state.cursor == 1)
        controller.reconciler.set_policy(ROOMY)
        await until(lambda: controller.status("n1") == "done")
    assert len(slurm.said) == 1


async def test_the_clock_is_given_and_stamps_what_is_stored(tmp_path: Path) -> None:
    at = datetime(2026, 11, 30, 12, tzinfo=UTC)

    store = Store(open_database(f"sqlite:///{tmp_path}/h.sqlite"))
    await store.open()
    reconciler = Reconciler(store, FakeSlurm("n1"), ROOMY, clock=lambda: at, tick_s=0.02)
    task = asyncio.create_task(reconciler.run())
    await Controller(store, reconciler).tell("n1")
    await until(lambda: reconciler.state.nodes)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    (first, *_) = await store.read(state_store.transitions_of)
    assert first.at == at
    await store.close()


class Brittle(Policy):
    """A policy with a bug that one fault brings out."""

    def rule_for(self, fault: str, *rest: Any) -> Rule:
        if fault == "gpu_missing":
            raise ZeroDivisionError
        return super().rule_for(fault, *rest)


class Moody(FakeSlurm):
    """Breaks in a way that nobody thought of, once for each node."""

    async def node(self, name: str) -> NodeView:
        if name not in self.said:
            self.said.append(name)
            raise ZeroDivisionError
        return await super().node(name)


async def test_an_event_that_breaks_the_policy_is_passed_over_and_the_next_is_weighed(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1", "n2")

    async with running(tmp_path, slurm, Brittle(mode=Mode.ENFORCE, drain_limits=ROOMY.drain_limits)) as controller:
        await controller.tell("n1", fault="gpu_missing")
        await controller.tell("n2")
        await until(lambda: controller.status("n2") == "done")
        assert controller.reconciler.state.cursor == 2


async def test_an_action_that_breaks_stays_to_be_done_and_the_next_is_tried(tmp_path: Path) -> None:
    slurm = Moody("n1", "n2")

    async with running(tmp_path, slurm) as controller:
        await controller.tell("n1")
        await controller.tell("n2")
        await until(lambda: len(slurm.said) == 2)  # both were tried
        await until(lambda: controller.all_actions(lambda a: "ZeroDivisionError" in a.detail))
        assert {a.status for a in (await controller.actions()).values()} == {"pending"}


class Late(FakeSlurm):
    """Nobody can read its nodes before `may_be_read` is set."""

    def __init__(self, *nodes: str) -> None:
        super().__init__(*nodes)
        self.may_be_read = asyncio.Event()

    async def nodes(self) -> Mapping[str, NodeView]:
        await self.may_be_read.wait()
        return await super().nodes()


async def test_nothing_is_decided_before_the_first_look_at_the_scheduler(tmp_path: Path) -> None:
    slurm = Late("n1", "n2")

    async with running(tmp_path, slurm) as controller:
        await controller.tell("n1")
        await controller.reconciler.post(Tick())
        assert controller.reconciler.state.cursor == 0
        slurm.reserved = (ReservationView("fix", ("n1",), maintenance=True),)
        slurm.may_be_read.set()
        await until(lambda: controller.reconciler.state.cursor > 0)
        await until(lambda: controller.all_actions(lambda a: a.status == "cancelled"))
    assert slurm.said == []


async def test_a_node_that_is_new_is_compared_with_the_scheduler_before_it_is_drained(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1", "n2")
    slurm.reserved = (ReservationView("fix", ("n1",), maintenance=True),)

    async with running(tmp_path, slurm) as controller:
        await until(lambda: controller.reconciler.state.sizes)
        await controller.tell("n1")
        await controller.tell("n2")
        await until(lambda: controller.status("n2") == "done")
        await until(lambda: controller.all_actions(lambda a: a.node == "n2" or a.status == "cancelled"))
    assert [said for said in slurm.said if "n1" in said] == []


async def test_a_topology_that_cannot_be_read_keeps_no_node_from_being_drained(tmp_path: Path) -> None:
    class Nonsense(FakeSlurm):
        async def topology(self) -> Mapping[str, tuple[str, ...]]:
            raise SchedulerUnavailable("scontrol show topology: expected SwitchName=")

    slurm = Nonsense("n1", "n2")

    async with running(tmp_path, slurm) as controller:
        await controller.tell("n1")
        await until(lambda: controller.status("n1") == "done")
    assert len(slurm.said) == 1


async def test_the_state_is_settled_only_when_it_has_what_is_on_disk(tmp_path: Path) -> None:
    """An action that the executor reads must find the step that decided it."""
    store, gate, begun = Store(open_database(f"sqlite:///{tmp_path}/h.sqlite")), asyncio.Event(), asyncio.Event()
    await store.open()

    class SlowToReturn:
        async def read(self, work: Callable[[Any], Any]) -> Any:
            return await store.read(work)

        async def write(self, work: Callable[[Any], Any]) -> Any:
            written = await store.write(work)
            begun.set()
            await gate.wait()  # on disk, and the reconciler does not know it yet
            return written

        async def record(self, node: str, batch: Any, received_us: int) -> Any:
            return await store.record(node, batch, received_us)

    reconciler = Reconciler(SlowToReturn(), NoScheduler(), ROOMY, tick_s=60)
    command = OperatorCommand("close_breaker", "", "olga")
    task = asyncio.create_task(reconciler.run())
    gate.set()
    await reconciler.post(command)
    gate.clear()
    begun.clear()
    posted = asyncio.create_task(reconciler.post(command))
    settled = asyncio.create_task(reconciler.settled())
    await begun.wait()
    waits = asyncio.create_task(reconciler.settled())
    await asyncio.sleep(0)
    assert settled.done()
    assert not waits.done()
    gate.set()
    await waits
    assert not (await posted).reply.accepted  # type: ignore[union-attr]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()


async def test_a_broken_invariant_is_logged_and_counted_and_the_loop_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path, FakeSlurm("n1")) as controller:
        await controller.known("n1")
        assert controller.reconciler.broken_invariants == 0
        await until(controller.reconciler._settled.is_set)  # no step is under way that would replace the state
        broken = replace(controller.reconciler.state, showing={})  # as a fault of the policy would leave it
        controller.reconciler._state = broken
        await controller.tell("n1")
        await until(lambda: controller.reconciler.broken_invariants > 0)
        await until(lambda: controller.status("n1") == "done")
    assert "invariant broken" in capsys.readouterr().out


async def test_a_drain_waits_for_its_agents_word_and_is_called_off_where_the_fault_was_gone(tmp_path: Path) -> None:
    """After a start the database may be yesterday's: what it says of a node counts once its agent has said the same."""
    slurm, vouched = FakeSlurm("n1", "n2"), set[str]()

    async with running(tmp_path, slurm) as controller:
        poller = controller.reconciler.poller
        poller.vouched, poller.began_at = lambda node: node in vouched, datetime.now(UTC) + timedelta(hours=1)
        await controller.known("n1", "n2")
        await controller.tell("n1")
        await controller.tell("n2")
        waits = "what is open"
        await until(lambda: controller.all_actions(lambda a: a.status == "pending" and waits in a.detail))
        await controller.tell("n2", "CLEARED")
        vouched |= {"n1", "n2"}
        await until(lambda: controller.status("n1") == "done" and controller.status("n2") == "")
        assert [said for said in slurm.said if said.startswith("drain")] == [
            said for said in slurm.said if said.startswith("drain n1")
        ]


async def test_a_drain_that_the_controller_itself_saw_the_reason_for_waits_for_no_agent(tmp_path: Path) -> None:
    slurm, at_once = FakeSlurm("n1"), replace(ROOMY, common_mode=CommonMode(enabled=False))

    async with running(tmp_path, slurm, at_once) as controller:
        poller = controller.reconciler.poller
        poller.vouched, poller.began_at = lambda node: False, datetime.now(UTC) + timedelta(hours=1)
        await controller.known("n1")
        await controller.tell("n1", fault="node_lost")
        await until(lambda: controller.status("n1") == "done")


async def test_a_drain_for_a_fault_of_after_the_start_waits_for_nothing(tmp_path: Path) -> None:
    slurm = FakeSlurm("n1")

    async with running(tmp_path, slurm) as controller:
        controller.reconciler.poller.vouched = lambda node: False
        await controller.known("n1")
        await controller.tell("n1")
        await until(lambda: controller.status("n1") == "done")
