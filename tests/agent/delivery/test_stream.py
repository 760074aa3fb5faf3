"""The stream against a real gRPC server in the same loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from waiting import eventually

from nodetriage.agent.core.verdict import Change, Kind
from nodetriage.agent.delivery import stream
from nodetriage.agent.delivery.connection import Identity, Refused, connect
from nodetriage.agent.delivery.event import Moment, make
from nodetriage.agent.delivery.spool import Spool
from nodetriage.agent.delivery.stream import Node, Stream, next_wait_s
from nodetriage.checks.model import Outcome, Severity
from nodetriage.v1 import health_pb2 as pb

BOOT = "boot-1"
NODE = Node("n1", BOOT, "0.1.0", "dgx-h100")


def event(component: str) -> Any:
    change = Change(
        Kind.RAISED, "ib_link", Outcome.FINDINGS, component, "ib_link_down", Severity.MAJOR, {"rate_gbps": 400}
    )
    return make(change, BOOT, Moment(1, 2))


class Bench:
    """A spool, a stream to a trial controller, and the task that runs it."""

    def __init__(self, folder: Path, controller: Any, **fields: Any) -> None:
        self.controller = controller
        self.spool = Spool(folder, BOOT, 8 << 20)
        self.spool.open()
        self.commands: list[pb.Command] = []
        fields.setdefault("addresses", [controller.address])
        self.stream = Stream(
            fields.pop("addresses"),
            NODE,
            self.spool,
            heartbeat=lambda whole, every_s: pb.Heartbeat(
                boot_id=BOOT,
                spooled_events=self.spool.depth,
                partial=not whole,
                next_within_ms=round(every_s * 1000),
            ),
            heartbeat_s=fields.pop("heartbeat_s", 0.1),
            command=self._command,
            back_off_s=fields.pop("back_off_s", (0.02, 0.1)),
            **fields,
        )
        self.task = asyncio.create_task(self.stream.run())

    async def _command(self, command: pb.Command) -> pb.CommandResult:
        self.commands.append(command)
        return pb.CommandResult(id=command.id, done=True, message="did it")

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.spool.close(60)
        await asyncio.sleep(0)


@pytest.fixture
def with_bench(trial: Path, tmp_path: Path) -> Callable[..., None]:
    from trial_controller import TrialController

    def run(
        body: Callable[[Bench], Awaitable[None]], prepare: Callable[[Any], None] | None = None, **fields: Any
    ) -> None:
        async def main() -> None:
            controller = TrialController()
            await controller.start()
            if prepare:
                prepare(controller)
            bench = Bench(tmp_path, controller, **fields)
            try:
                await body(bench)
            finally:
                await bench.stop()
                await controller.stop()

        asyncio.run(main())

    return run


def parts(controller: Any) -> list[str]:
    return [e.component for e in controller.events]


def test_hello_names_the_node_and_events_arrive_numbered_and_are_forgotten_after_the_ack(with_bench: Any) -> None:
    async def body(bench: Bench) -> None:
        bench.spool.append([event("a"), event("b")])
        await eventually(lambda: len(bench.controller.events) == 2)
        (hello,) = bench.controller.hellos
        assert (hello.node, hello.boot_id, hello.agent_version, hello.profile) == ("n1", BOOT, "0.1.0", "dgx-h100")
        first = bench.controller.events[0]
        assert (first.seq, first.component, first.severity, first.kind) == (
            1,
            "a",
            pb.SEVERITY_MAJOR,
            pb.EVENT_KIND_RAISED,
        )
        assert first.evidence["rate_gbps"].whole == 400
        await eventually(lambda: bench.spool.depth == 0)
        assert bench.stream.connected

    with_bench(body)


def test_nothing_is_sent_twice_on_one_connection_and_all_again_on_the_next_until_acked(with_bench: Any) -> None:
    async def body(bench: Bench) -> None:
        bench.controller.acking = False
        bench.spool.append([event(str(i)) for i in range(5)])
        await eventually(lambda: len(bench.controller.events) == 5)
        await eventually(lambda: len(bench.controller.heartbeats) >= 3)
        assert len(bench.controller.events) == 5
        address = bench.controller.address
        await bench.controller.stop()
        await eventually(lambda: not bench.stream.connected)
        bench.controller.acking = True
        await bench.controller.start(address)
        await eventually(lambda: bench.spool.depth == 0)
        assert parts(bench.controller) == [*"01234", *"01234"]

    with_bench(body)


def test_what_the_controller_has_already_is_not_sent_again(with_bench: Any) -> None:
    def prepare(controller: Any) -> None:
        controller.stored = [pb.SeqRange(boot_id=BOOT, first_seq=1, last_seq=2)]

    async def body(bench: Bench) -> None:
        await eventually(lambda: bench.spool.depth == 0 and bool(bench.controller.hellos))
        bench.spool.append([event("c")])
        await eventually(lambda: parts(bench.controller) == ["c"])

    async def before(bench: Bench) -> None:
        bench.spool.agree([])
        bench.spool.append([event("a"), event("b")])

    with_bench(before, addresses=[])
    with_bench(body, prepare)


def test_a_new_event_overtakes_the_backlog(with_bench: Any) -> None:
    async def before(bench: Bench) -> None:
        bench.spool.append([event(f"old{i}") for i in range(3000)])

    async def body(bench: Bench) -> None:
        await eventually(lambda: bool(bench.controller.events))
        started = time.monotonic()
        bench.spool.append([event("new")])
        await eventually(lambda: "new" in parts(bench.controller))
        print(f"live event beside a backlog of 3000: {(time.monotonic() - started) * 1000:.0f} ms")
        assert len(bench.controller.events) == stream.BATCH_EVENTS + 1
        assert parts(bench.controller)[:3] == ["old0", "old1", "old2"]
        bench.controller.acking = True
        bench.task.cancel()

    def no_acks(controller: Any) -> None:
        controller.acking = False

    with_bench(before, addresses=[])
    with_bench(body, no_acks)


def test_a_backlog_comes_whole_and_in_order(with_bench: Any) -> None:
    async def before(bench: Bench) -> None:
        bench.spool.append([event(f"{i}") for i in range(2500)])

    async def body(bench: Bench) -> None:
        await eventually(lambda: bench.spool.depth == 0)
        assert [e.seq for e in bench.controller.events] == list(range(1, 2501))
        assert max(bench.controller.batches) <= stream.BATCH_EVENTS
        assert len(bench.controller.batches) <= 30

    with_bench(before, addresses=[])
    with_bench(body)


def test_heartbeats_keep_their_beat_and_the_controller_may_set_it(with_bench: Any) -> None:
    def prepare(controller: Any) -> None:
        controller.heartbeat_every_ms = 30

    async def body(bench: Bench) -> None:
        await eventually(lambda: len(bench.controller.heartbeats) >= 5)

    with_bench(body, prepare, heartbeat_s=3600.0)


def test_a_node_without_a_job_beats_seldom_and_says_so_and_a_job_that_begins_is_told_at_once(with_bench: Any) -> None:
    job: list[bool] = []

    def prepare(controller: Any) -> None:
        controller.heartbeat_every_ms, controller.idle_heartbeat_every_ms = 30, 3_600_000

    async def body(bench: Bench) -> None:
        beats = bench.controller.heartbeats
        await eventually(lambda: len(beats) == 1)
        job.append(True)
        bench.stream.beat()
        await eventually(lambda: len(beats) >= 4)
        assert [beat.next_within_ms for beat in beats[:3]] == [3_600_000, 30, 30]
        job.clear()
        await eventually(lambda: beats[-1].next_within_ms == 3_600_000)

    with_bench(body, prepare, has_job=lambda: bool(job))


def test_a_job_that_begins_beside_another_brings_no_heartbeat_of_its_own(with_bench: Any) -> None:
    def prepare(controller: Any) -> None:
        controller.heartbeat_every_ms = controller.idle_heartbeat_every_ms = 3_600_000

    async def body(bench: Bench) -> None:
        await eventually(lambda: len(bench.controller.heartbeats) == 1)
        bench.stream.beat()
        bench.spool.append([event("a")])
        await eventually(lambda: len(bench.controller.events) == 1)
        assert len(bench.controller.heartbeats) == 1

    with_bench(body, prepare)


def test_a_command_is_obeyed_and_its_result_sent(with_bench: Any) -> None:
    async def body(bench: Bench) -> None:
        bench.controller.commands.put_nowait(pb.Command(id="7", run=pb.RunChecks(checks=["ib_link"])))
        await eventually(lambda: bool(bench.controller.results))
        assert (bench.controller.results[0].id, bench.controller.results[0].done) == ("7", True)
        assert list(bench.commands[0].run.checks) == ["ib_link"]

    with_bench(body)


def test_the_newest_word_to_the_hooks_is_taken_with_who_brought_it(with_bench: Any) -> None:
    taken: list[tuple[int, str]] = []

    async def body(bench: Bench) -> None:
        for version in (1, 3, 2, 3, 4):
            bench.controller.words.put_nowait(pb.HookAuthority(version=version))
        await eventually(lambda: bool(taken) and taken[-1][0] == 4)
        assert [version for version, _ in taken] == [1, 3, 4]
        assert {peer for _, peer in taken} == {f"{bench.controller.address}, on this machine"}

    with_bench(body, hook_word=lambda word, peer: taken.append((word.version, peer)))


def test_a_controller_that_is_away_is_retried_and_the_next_address_tried(with_bench: Any) -> None:
    async def body(bench: Bench) -> None:
        bench.spool.append([event("a")])
        await eventually(lambda: bench.spool.depth == 0)
        assert bench.controller.address in bench.stream.state

    def prepare(controller: Any) -> None:
        addresses[:] = ["127.0.0.1:1", controller.address]

    addresses: list[str] = []
    with_bench(body, prepare, addresses=addresses)


def test_a_server_that_pushes_back_is_left_alone_for_that_time(with_bench: Any) -> None:
    def prepare(controller: Any) -> None:
        controller.refuse = (grpc.StatusCode.UNAVAILABLE, "700")

    async def body(bench: Bench) -> None:
        await eventually(lambda: len(bench.controller.called_s) >= 2)
        assert bench.controller.called_s[1] - bench.controller.called_s[0] >= 0.7
        bench.controller.refuse = None
        await eventually(lambda: bench.stream.connected)

    with_bench(body, prepare)


def test_the_identity_is_asked_for_at_each_connection(with_bench: Any) -> None:
    asked: list[int] = []

    async def identify(_: str) -> Identity:
        asked.append(1)
        return Identity(metadata=(("authorization", f"try-{len(asked)}"),))

    async def body(bench: Bench) -> None:
        await eventually(lambda: bench.stream.connected)
        address = bench.controller.address
        await bench.controller.stop()
        await eventually(lambda: not bench.stream.connected)
        await bench.controller.start(address)
        await eventually(lambda: bench.stream.connected)
        assert bench.controller.metadata[0]["authorization"] == "try-1"
        assert bench.controller.metadata[-1]["authorization"] == f"try-{len(asked)}"

    with_bench(body, identify=identify)


def test_plaintext_leaves_the_machine_never(with_bench: Any) -> None:
    async def connected(address: str) -> None:
        async with connect(address, Identity()):
            pass

    for address in ("10.0.0.1:1", "controller:1", "[fe80::1]:1", "0.0.0.0:1", "localhost.example.org:1", "unixx:1"):
        with pytest.raises(Refused, match="plaintext is for loopback"):
            asyncio.run(connected(address))

    async def body(bench: Bench) -> None:
        await eventually(lambda: "plaintext is for loopback" in bench.stream.state)

    with_bench(body, addresses=["controller.example.org:7900"])


def test_the_wait_grows_to_its_limit_and_never_beyond() -> None:
    for failures in range(200):
        assert 0 <= next_wait_s(failures, (1.0, 30.0)) <= min(30.0, 2.0**failures)
    assert max(next_wait_s(9, (1.0, 30.0)) for _ in range(200)) > 20


def test_a_controller_that_takes_events_and_never_acks_is_left(
    with_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "ACK_LIMIT_S", 0.3)

    def no_acks(controller: Any) -> None:
        controller.acking = False

    async def body(bench: Bench) -> None:
        bench.spool.append([event("a")])
        await eventually(lambda: len(bench.controller.hellos) >= 2)

    with_bench(body, no_acks)


def test_a_controller_that_asks_for_the_open_set_gets_a_whole_heartbeat_before_the_next_is_due(with_bench: Any) -> None:
    async def body(bench: Bench) -> None:
        await eventually(lambda: len(bench.controller.heartbeats) == 1)
        bench.controller.ask_open_set()
        await eventually(lambda: len(bench.controller.heartbeats) == 2)
        assert [beat.partial for beat in bench.controller.heartbeats] == [False, False]

    with_bench(body, heartbeat_s=3600.0)


def test_hello_says_up_to_which_number_a_controller_has_acknowledged(with_bench: Any) -> None:
    async def body(bench: Bench) -> None:
        bench.spool.append([event("a"), event("b")])
        await eventually(lambda: bench.spool.depth == 0)
        assert (bench.controller.hellos[0].acked_seq, bench.spool.acked_seq) == (0, 2)

    with_bench(body)
