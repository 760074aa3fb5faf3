"""Any bytes and any well-formed messages: the controller lives on, serves the others, and stores what it was told."""

import asyncio
import contextlib
import re
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc
import pytest
from fleet_client import BOOT, acked, agent, batch, channel, ended, hello
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from programs import NODETRIAGECTL, Program
from slurm_cluster import wait_until

from nodetriage.controller.refused import Refused
from nodetriage.controller.rpc.admission import admit_watch
from nodetriage.v1 import health_pb2 as pb

pytestmark = pytest.mark.timeout(300)  # a stream that ends well takes half a second, and there are many
VERSION = metadata.version("nodetriage")
BOOT_IDS = re.compile(r"[A-Za-z0-9-]{1,64}")  # that are taken; the other tests here tell of any
CONNECT, WATCH = "/nodetriage.v1.NodeHealth/Connect", "/nodetriage.v1.NodeHealth/Watch"

_WHOLE = {
    FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1) | st.integers(0, 20),
    FieldDescriptor.TYPE_FIXED64: st.integers(0, 2**64 - 1),
    FieldDescriptor.TYPE_SFIXED64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SINT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_ENUM: st.integers(0, 9) | st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_STRING: st.sampled_from([BOOT, "gpu_lost", "gpu_xid", "GPU-1", ""]) | st.text(max_size=40),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=40),
}


@st.composite
def messages(draw: st.DrawFn, kind: type[Message]) -> Any:
    """Any message of a kind, within bounds of size: a field that is not known to this test is a failure."""
    made = kind()
    for field in kind.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        target = getattr(made, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in draw(st.lists(st.text(max_size=8), max_size=3)):
                target[key].CopyFrom(draw(messages(pb.Value)))
        elif field.message_type is not None:
            inner = getattr(pb, field.message_type.name)
            if field.is_repeated:
                target.extend(draw(st.lists(messages(inner), max_size=3)))
            else:
                target.CopyFrom(draw(messages(inner)))
        elif field.is_repeated:
            target.extend(draw(st.lists(_WHOLE[field.type], max_size=3)))
        else:
            setattr(made, field.name, draw(_WHOLE[field.type]))
    return made


def _sound_event(event: pb.Event, seq: int, at_us: int) -> pb.Event:
    """The same with a name and a time that can be stored, so that the rest of it gets as far as it can."""
    event.boot_id, event.seq, event.at_unix_us = BOOT, seq, at_us
    event.at_boot_us %= 20 * 365 * 86_400 * 1_000_000  # admission refuses what is beyond
    return event


YEAR_3000_US = 32_503_680_000_000_000
SOUND = st.builds(_sound_event, messages(pb.Event), st.integers(1, 2**63 - 1), st.integers(0, YEAR_3000_US - 1))
WELL_FORMED = (
    messages(pb.AgentMessage)
    | st.lists(SOUND, min_size=1, max_size=4).map(lambda e: pb.AgentMessage(events=pb.EventBatch(events=e)))
    | messages(pb.Heartbeat).map(lambda h: pb.AgentMessage(heartbeat=h))
)


class Controller:
    """A real one, with its reconciler and no scheduler, on a Unix socket."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.target = folder, f"unix:{folder}/c.sock"
        config = folder / "controller.toml"
        config.write_text(
            f'[controller]\nlisten = "{self.target}"\nstate_dir = "{folder}/s"\n[scheduler]\nkind = "none"\n'
        )
        self.program = Program(folder / "log", NODETRIAGECTL, "controller", "--config", str(config))
        started = '"event": "reconciler started"'
        wait_until(lambda: started in self.program.said() or self.program.status is not None, 60, "the controller runs")
        assert self.program.status is None, self.program.said()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        file = f"file:{self.folder}/s/history.sqlite?mode=ro"
        with contextlib.closing(sqlite3.connect(file, uri=True, timeout=60)) as database:
            return database.execute(query).fetchall()

    def is_well(self) -> None:
        said = self.program.said()
        assert self.program.status is None, said[-3000:]
        for symptom in ("Traceback", '"critical"', '"level": "error"'):
            assert symptom not in said, said[-3000:]


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    running = Controller(tmp_path_factory.mktemp("fuzz"))
    try:
        yield running
        for verb in (["events", "--limit", "99999"], ["events", "--json", "--limit", "99999"], ["nodes"], ["actions"]):
            read = [NODETRIAGECTL, *verb, "--database", f"sqlite:///{running.folder}/s/history.sqlite"]
            done = subprocess.run(read, capture_output=True, text=True, timeout=60)
            assert (done.returncode < 3, done.stderr) == (True, "")
        assert running.program.stop(60) == 0
    finally:
        if running.program.status is None:
            running.program.kill()


def send(controller: Controller, pieces: list[bytes]) -> None:
    """Sends them on a stream of `noisy`, after a hello; then another agent must be served."""

    async def main() -> None:
        async with channel(controller.target) as opened:
            call = opened.stream_stream(CONNECT)()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                for piece in pieces:
                    await call.write(piece)
                await call.done_writing()
            code, why = await ended(call)
            assert code not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE), (code, why)
        async with agent(controller.target) as good:
            welcome = await good.hello("good", agent_version=VERSION)
            last = max((r.last_seq for r in welcome.stored), default=0)
            await good.send(batch(last + 1))
            assert acked(await good.next())[-1][2] == last + 1

    asyncio.run(asyncio.wait_for(main(), 60))
    controller.is_well()


FUZZ = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
HELLO = hello("noisy", agent_version=VERSION).SerializeToString()


@FUZZ
@given(pieces=st.lists(st.binary(max_size=300), min_size=1, max_size=4), greeted=st.booleans())
@example(pieces=[b""], greeted=True)
@example(pieces=[b"\xff" * 50_000], greeted=True)
def test_any_bytes_are_refused_or_ignored(controller: Controller, pieces: list[bytes], greeted: bool) -> None:
    send(controller, [HELLO, *pieces] if greeted else pieces)


@FUZZ
@given(st.lists(WELL_FORMED, min_size=1, max_size=4))
def test_any_well_formed_messages_are_taken_or_refused(controller: Controller, sent: list[pb.AgentMessage]) -> None:
    send(controller, [HELLO, *(message.SerializeToString() for message in sent)])


@FUZZ
@given(messages(pb.Hello))
def test_any_hello_is_taken_or_refused(controller: Controller, first: pb.Hello) -> None:
    send(controller, [pb.AgentMessage(hello=first).SerializeToString()])


@settings(FUZZ, max_examples=30)
@given(messages(pb.WatchRequest).map(lambda r: r.SerializeToString()) | st.binary(max_size=100))
async def test_any_watch_request_is_answered_or_refused(controller: Controller, request: bytes) -> None:
    async with channel(controller.target) as opened:
        call = opened.unary_stream(WATCH)(request, timeout=0.5)  # one that follows ends by this
        code, why = await ended(call)
        assert code not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE), (code, why)
    controller.is_well()


def test_a_watch_for_more_than_a_database_can_be_asked_is_refused() -> None:
    for request in (
        pb.WatchRequest(after_cursor=2**63),
        pb.WatchRequest(nodes=[str(number) for number in range(10_001)]),
        pb.WatchRequest(faults=["\0"]),
    ):
        with pytest.raises(Refused, match="expected at most"):
            admit_watch(request)
    admit_watch(pb.WatchRequest(after_cursor=2**63 - 1, nodes=[str(number) for number in range(10_000)]))


@pytest.mark.parametrize("method", ["RunChecks", "Undrain", "SetMaintenance", "CloseBreaker", "ClearFault"])
async def test_orders_are_not_taken_where_nobody_proves_who_he_is(controller: Controller, method: str) -> None:
    async with channel(controller.target) as opened:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await opened.unary_unary(f"/nodetriage.v1.Operator/{method}")(b"")
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


def check_rows(controller: Controller, sound: Callable[[tuple[Any, ...]], bool]) -> None:
    wrong = [row for row in controller.rows("SELECT node, boot_id, seq, message, at_us FROM events") if not sound(row)]
    assert wrong == []


@FUZZ
@given(st.lists(SOUND, min_size=1, max_size=6, unique_by=lambda e: e.seq))
def test_what_is_stored_is_what_was_told_under_the_name_of_who_told_it(
    controller: Controller, events: list[pb.Event]
) -> None:
    send(controller, [HELLO, pb.AgentMessage(events=pb.EventBatch(events=events)).SerializeToString()])

    def sound(row: tuple[Any, ...]) -> bool:
        node, boot_id, seq, message, at_us = row
        event = pb.Event.FromString(message)
        own = (event.boot_id, event.seq, event.at_unix_us) == (boot_id, seq, at_us)
        return own and node in ("noisy", "good") and 1 <= seq < 2**63 and BOOT_IDS.fullmatch(boot_id) is not None

    check_rows(controller, sound)
    stored = {seq for (seq,) in controller.rows(f"SELECT seq FROM events WHERE node = 'noisy' AND boot_id = '{BOOT}'")}
    assert {event.seq for event in events} <= stored
