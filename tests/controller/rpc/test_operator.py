"""What an operator asks for: through a real socket, recorded with who asked, refused in words where it cannot be."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from fake_slurm import FakeSlurm
from fleet_client import agent, event, serving
from reported import all_ok
from sqlalchemy import select

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.cli.main import main
from nodetriage.controller.engine.reconciler import Reconciler
from nodetriage.controller.policy.state import NodeState
from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc import operator
from nodetriage.controller.rpc.operator import OperatorListener, OperatorService
from nodetriage.controller.rpc.server import NodeHealthServer
from nodetriage.controller.settings.rules import DrainLimits, Mode, Policy
from nodetriage.controller.store import schema
from nodetriage.controller.store.store import Store
from nodetriage.v1 import health_pb2 as pb

OLGA = pb.Actor(name="olga", uid=1000)
ROOMY = Policy(mode=Mode.ENFORCE, drain_limits=DrainLimits(100, 100, 100, 100, 100))


class Fleet:
    def __init__(
        self, folder: Path, server: NodeHealthServer, store: Store, target: str, reconciler: Reconciler
    ) -> None:
        self.socket = folder / operator.SOCKET
        self.server, self.store, self.target, self.reconciler = server, store, target, reconciler

    async def ask(self, method: str, request: Any) -> pb.OperatorReply:
        return await asyncio.to_thread(operator.ask, self.socket, method, request, 60)

    async def ctl(self, *argv: str) -> int:
        return await asyncio.to_thread(main, [*argv, "--socket", str(self.socket)])

    async def log(self) -> list[tuple[Any, ...]]:
        told = schema.operator_log.c
        columns = select(told.actor, told.verb, told.node, told.reason, told.done, told.answer).order_by(told.id)
        return [tuple(row) for row in await self.store.read(lambda c: c.execute(columns).all())]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 it is another task's state that changes
                await asyncio.sleep(0.01)


@asynccontextmanager
async def fleet(folder: Path, **options: Any) -> AsyncIterator[Fleet]:
    run_dir = folder / ("deep" * 20) / "run"  # longer than a Unix socket's name may be
    async with serving(folder) as (server, store, target):
        reconciler = Reconciler(store, FakeSlurm("n1", "n2"), ROOMY, tick_s=0.05, scan_s=0.1)
        store.on_events(lambda _: reconciler.notify())
        listener = OperatorListener(run_dir, OperatorService(reconciler, server.command, store, **options))
        await listener.start()
        thinking = asyncio.create_task(reconciler.run())
        try:
            yield Fleet(run_dir, server, store, target, reconciler)
        finally:
            await listener.stop()
            thinking.cancel()
            await asyncio.gather(thinking, return_exceptions=True)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 100))


async def test_the_socket_is_its_owners_alone_and_is_gone_after_the_end(tmp_path: Path) -> None:
    async with fleet(tmp_path) as there:
        assert stat.S_IMODE(there.socket.stat().st_mode) == 0o600
    assert not there.socket.exists()


async def test_a_repaired_node_is_brought_back_and_one_that_is_not_is_refused(tmp_path: Path) -> None:
    async with fleet(tmp_path) as there, agent(there.target) as stream:
        await stream.hello("n1")
        await stream.send(pb.AgentMessage(events=pb.EventBatch(events=[event(1, fault="gpu_off_bus")])))
        await there.until(lambda: (n := there.reconciler.state.nodes.get("n1")) and n.state is NodeState.DRAINED)
        refused = await there.ask("Undrain", pb.NodesRequest(actor=OLGA, nodes="n1"))
        assert (refused.done, refused.message) == (False, "undrain n1 is refused: still there: gpu_off_bus")
        cleared = event(2, fault="gpu_off_bus", kind=pb.EVENT_KIND_CLEARED)
        await stream.send(pb.AgentMessage(events=pb.EventBatch(events=[cleared])))
        await there.until(lambda: not there.reconciler.state.nodes["n1"].open_findings)
        await there.reconciler.post(all_ok(there.reconciler.state.nodes["n1"], there.reconciler.now()))
        assert (await there.ask("Undrain", pb.NodesRequest(actor=OLGA, nodes="n1"))).done
        await there.until(lambda: there.reconciler.state.nodes["n1"].state is NodeState.HEALTHY)
        nobody = await there.ask("Undrain", pb.NodesRequest(actor=OLGA, nodes="n9"))
        assert "never heard of this node" in nobody.message
        assert [(row[0], row[1], row[2], row[4]) for row in await there.log()] == [
            ("olga", "undrain", "n1", 0),
            ("olga", "undrain", "n1", 1),
            ("olga", "undrain", "n9", 0),
        ]


async def test_the_agent_is_told_and_its_answer_comes_back(tmp_path: Path) -> None:
    async def answer(stream: Any) -> pb.Command:
        command: pb.Command = (await stream.next()).command
        result = pb.CommandResult(id=command.id, done=True, message="cleared")
        await stream.send(pb.AgentMessage(result=result))
        return command

    async with fleet(tmp_path) as there, agent(there.target) as stream:
        await stream.hello("n1")
        asked = asyncio.ensure_future(there.ctl("clear", "n1", "gpu_xid", "GPU-1", "gpu_off_bus"))
        command = await answer(stream)
        assert (command.clear.component, command.clear.fault) == ("GPU-1", "gpu_off_bus")
        assert command.clear.actor
        assert await asked == 0
        asked = asyncio.ensure_future(there.ctl("run-checks", "n1", "gpu_lost"))
        assert list((await answer(stream)).run.checks) == ["gpu_lost"]
        assert await asked == 0
        assert await there.ctl("run-checks", "n2") == 1
        *_, last = await there.log()
        assert last[1:] == ("run-checks", "n2", "", 0, "n2: its agent is not connected")


async def test_an_answer_of_a_hostile_agent_is_printed_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with fleet(tmp_path) as there, agent(there.target) as stream:
        await stream.hello("n1")
        for done in (True, False):
            asked = asyncio.ensure_future(there.ctl("run-checks", "n1"))
            result = pb.CommandResult(id=(await stream.next()).command.id, done=done, message="\x1b[2J\r\nforged")
            await stream.send(pb.AgentMessage(result=result))
            assert await asked == (0 if done else 1)
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    for stream_text in (printed.out, printed.err):
        assert "\\x1b[2J\\r\\nforged" in stream_text.splitlines()


async def test_maintenance_and_the_breaker_go_through_the_same_door(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with fleet(tmp_path) as there, agent(there.target) as stream:
        await stream.hello("n1")
        await stream.send(pb.AgentMessage(events=pb.EventBatch(events=[event(1, severity=pb.SEVERITY_INFO)])))
        await there.until(lambda: "n1" in there.reconciler.state.nodes)
        assert await there.ctl("maintenance", "n1", "on") == 78
        assert await there.ctl("maintenance", "n1", "on", "--reason", "new fan") == 0
        fact = there.reconciler.state.nodes["n1"].maintenance
        assert fact is not None
        assert (fact.reason, fact.source) == ("new fan", "operator")
        kept = await there.store.read(lambda c: c.execute(select(schema.maintenance)).one())
        assert (kept.node, kept.until_us, kept.reason) == ("n1", None, "new fan")
        assert await there.ctl("maintenance", "n1", "off") == 0
        kept = await there.store.read(lambda c: c.execute(select(schema.maintenance)).one())
        assert kept.until_us > kept.since_us
        assert await there.ctl("breaker", "close") == 78
        assert await there.ctl("breaker", "close", "--reason", "all is well") == 1
    assert "the breaker is not open" in capsys.readouterr().err


async def test_who_may_not_is_sent_away_and_nothing_is_done(tmp_path: Path) -> None:
    async def nobody(context: Any, actor: pb.Actor) -> str:
        raise Refused(grpc.StatusCode.PERMISSION_DENIED, f"{actor.name} is no operator")

    async with fleet(tmp_path, require=nobody) as there:
        with pytest.raises(ConnectionError, match="olga is no operator"):
            await there.ask("CloseBreaker", pb.FleetRequest(actor=OLGA, reason="x"))
        assert await there.log() == []


def test_where_no_controller_runs_the_answer_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["undrain", "n1", "--socket", str(tmp_path / "none" / "operator.sock")]) == 3
    assert main(["undrain", "n1", "--socket", str(tmp_path / "operator.sock")]) == 3
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all("does a controller run here" in line for line in said)


async def test_a_file_in_the_sockets_place_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / operator.SOCKET).write_text("mine")

    async with serving(tmp_path) as (server, store, _):
        reconciler = Reconciler(store, FakeSlurm(), ROOMY)
        listener = OperatorListener(tmp_path, OperatorService(reconciler, server.command, store))
        with pytest.raises(ConfigError, match="is no socket"):
            await listener.start()
    assert (tmp_path / operator.SOCKET).read_text() == "mine"


def test_a_name_that_is_none_is_put_on_record_as_a_number() -> None:
    named = asyncio.run(operator.trust_socket(None, pb.Actor(name="ol\x1b[ga\n" + "x" * 100, uid=7)))  # type: ignore[arg-type]
    unnamed = asyncio.run(operator.trust_socket(None, pb.Actor(uid=7)))  # type: ignore[arg-type]
    assert named.isprintable()
    assert len(named) <= 64
    assert unnamed == "uid 7"


async def test_an_order_for_a_node_set_reaches_each_node_and_says_of_each_what_came_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with fleet(tmp_path) as there, agent(there.target) as one, agent(there.target) as two:
        await hello(there, one, two)
        assert await there.ctl("drain", "n[1-3]", "--now", "--reason", "new firmware", "--json") == 1
        lines = capsys.readouterr().out.splitlines()
        told = json.loads(next(line for line in lines if line.startswith("{")))
        assert [(n["node"], n["done"]) for n in told["nodes"]] == [("n1", True), ("n2", True), ("n3", False)]
        assert "2 of 3 nodes" in told["message"]
        assert "never heard of this node" in told["message"]
        await there.until(lambda: all(n.state is NodeState.DRAINED for n in there.reconciler.state.nodes.values()))
        assert await there.ctl("ticket", "n1,n2", "RMA 4711") == 0
        assert there.reconciler.state.nodes["n2"].upkeep.ticket == "RMA 4711"
        assert await there.ctl("release", "n[1-2]", "--reason", "flashed") == 0
        await there.until(lambda: all(n.state is NodeState.HEALTHY for n in there.reconciler.state.nodes.values()))
        verbs = [(row[1], row[2], row[3], row[4]) for row in await there.log()]
    assert verbs == [
        ("drain --now", "n[1-3]", "new firmware", 0),
        ("ticket", "n1,n2", "RMA 4711", 1),
        ("release", "n[1-2]", "flashed", 1),
    ]


async def test_the_fleets_verbs_pause_open_and_close_and_each_names_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with fleet(tmp_path) as there, agent(there.target) as one, agent(there.target) as two:
        await hello(there, one, two)
        assert await there.ctl("pause", "--until", "2h", "--reason", "upgrade of Slurm") == 0
        assert await there.ctl("drain", "n1", "--reason", "fan") == 0
        node = there.reconciler.state.nodes["n1"]
        assert node.drain is not None
        assert "paused drains until" in node.drain.queued_reason
        assert await there.ctl("pause", "--off") == 0
        await there.until(lambda: there.reconciler.state.nodes["n1"].state is NodeState.DRAINED)
        assert await there.ctl("breaker", "open", "--reason", "the chillers are off") == 0
        assert there.reconciler.state.breaker.is_open
        assert await there.ctl("breaker", "close", "--reason", "they run") == 0
        assert await there.ctl("maintenance", "n2", "--until", "3h", "--reason", "cable") == 0
        there_until = there.reconciler.state.nodes["n2"].maintenance
        assert there_until is not None
        assert there_until.until is not None
        assert 3 * 3600 - 60 < (there_until.until - datetime.now(UTC)).total_seconds() <= 3 * 3600
        assert await there.ctl("maintenance", "n2", "off") == 0
        assert await there.ctl("lemon", "set", "n2", "--reason", "four jobs died there") == 0
        await there.until(lambda: there.reconciler.state.nodes["n2"].state is NodeState.LEMON)
        assert await there.ctl("retire", "n1", "--reason", "sold") == 0
        assert there.reconciler.state.nodes["n1"].state is NodeState.RETIRED
    capsys.readouterr()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("drain", "n[1-", "--reason", "x"), "expected a node set such as n[1-8],login1"),
        (("drain", "n[1-30000]", "--reason", "x"), "at most 20000 at once"),
        (("drain", "n1", "--reason", " "), "give a reason with --reason"),
        (("release", "n1", "--reason", "x"), "only Lemon, Repair, BurnIn and Retired are released"),
        (("undrain", "n1"), "it is not drained by us"),
        (("ticket", "n1", ""), "it has no ticket; give its text"),
        (("accept", "gpu_off_bus", "--node", "n1", "--reason", "x"), "no open finding of gpu_off_bus"),
        (("lemon", "lift", "n1", "--reason", "x"), "it is no lemon: it is Healthy"),
        (("incident", "close", "261130-1", "--reason", "x"), "no fleet incident 261130-1 is open"),
        (("pause", "--until", "2026-01-01", "--reason", "x"), "give an end that lies ahead"),
        (("pause", "--until", "30d", "--reason", "x"), "more than 7 days ahead"),
        (("pause", "--until", "2h"), "give a reason with --reason"),
        (("pause", "--off"), "drains are not paused"),
        (("maintenance", "n1", "--until", "90d", "--reason", "x"), "more than 30 days ahead"),
        (("maintenance", "n1", "off"), "it is not in maintenance"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
async def test_what_is_refused_says_why_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], said: str
) -> None:
    async with fleet(tmp_path) as there, agent(there.target) as one, agent(there.target) as two:
        await hello(there, one, two)
        assert await there.ctl(*argv) == 1
        nodes = there.reconciler.state.nodes.values()
        assert {(n.state, n.drain, n.maintenance, n.upkeep.ticket) for n in nodes} == {("Healthy", None, None, "")}
        assert (await there.log())[-1][4] == 0
    assert said in capsys.readouterr().err


async def test_a_fault_that_an_operator_accepts_drains_nothing_until_it_changes(tmp_path: Path) -> None:
    async with fleet(tmp_path) as there, agent(there.target) as one, agent(there.target) as two:
        await hello(there, one, two)
        assert await there.ctl("pause", "--until", "1h", "--reason", "first look") == 0
        await one.send(pb.AgentMessage(events=pb.EventBatch(events=[event(2, fault="gpu_off_bus")])))
        await there.until(lambda: there.reconciler.state.nodes["n1"].drain)
        assert await there.ctl("accept", "gpu_off_bus", "--node", "n1", "--reason", "seven GPUs do") == 0
        await there.until(lambda: there.reconciler.state.nodes["n1"].drain is None)
        assert await there.ctl("pause", "--off") == 0
        assert there.reconciler.state.nodes["n1"].state is NodeState.HEALTHY
        again = event(3, fault="gpu_off_bus", kind=pb.EVENT_KIND_REPEATED)
        await one.send(pb.AgentMessage(events=pb.EventBatch(events=[again])))
        await there.until(lambda: there.reconciler.state.nodes["n1"].state is NodeState.DRAINED)


async def hello(there: Fleet, one: Any, two: Any) -> None:
    """Both agents, and an event of each, so that the controller knows their nodes."""
    for name, stream in (("n1", one), ("n2", two)):
        await stream.hello(name)
        started = event(1, kind=pb.EVENT_KIND_AGENT_STARTED)
        await stream.send(pb.AgentMessage(events=pb.EventBatch(events=[started])))
    await there.until(lambda: {"n1", "n2"} <= there.reconciler.state.nodes.keys())
