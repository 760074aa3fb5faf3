"""Nodes that have an identity and mean harm: what each sends, message after message, for as long as it is let."""

import asyncio
import contextlib
import itertools
import os
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc
from fleet_client import BOOT, agent
from programs import NODETRIAGECTL, Program
from slurm_wait import wait_until

from nodetriage.service.version import VERSION
from nodetriage.v1 import health_pb2 as pb

Messages = Iterator[pb.AgentMessage]
RECONNECTS_S = 0.5  # [admission] streams_per_min_per_host, from which this machine itself is exempt
PORT = r"\bport\W+(\d+)"


def event(seq: int, **more: object) -> pb.Event:
    given = {
        "boot_id": BOOT,
        "check": "gpu_xid",
        "component": "GPU-1",
        "fault": "gpu_xid_notice",
        "kind": 1,
        "severity": 1,
    }
    return pb.Event(seq=seq, at_unix_us=1_000_000, **{**given, **more})  # type: ignore[arg-type]


def batch(first: int, count: int, **more: object) -> pb.AgentMessage:
    return pb.AgentMessage(events=pb.EventBatch(events=[event(first + i, **more) for i in range(count)]))


def new_check_names() -> Messages:
    for n in itertools.count():
        checks = [pb.CheckState(check=f"c{n}_{i}", outcome=1, age_ms=1) for i in range(45_000)]
        yield pb.AgentMessage(heartbeat=pb.Heartbeat(boot_id=BOOT, partial=True, checks=checks))


def a_few_new_check_names() -> Messages:
    for n in itertools.count():
        checks = [pb.CheckState(check=f"c{n}_{i}", outcome=1, age_ms=1) for i in range(500)]
        ports = [pb.PortTraffic(port=f"p{n}_{i}") for i in range(500)]
        yield pb.AgentMessage(heartbeat=pb.Heartbeat(boot_id=BOOT, partial=True, checks=checks, ports=ports))


def endless_heartbeats() -> Messages:
    while True:
        yield pb.AgentMessage(heartbeat=pb.Heartbeat(boot_id=BOOT))


def long_components() -> Messages:
    for n in itertools.count(1):
        yield batch(n, 1, component="p" * 900_000 + str(n))


def components_without_end() -> Messages:
    for n in itertools.count():
        events = [event(n * 500 + i + 1, component=f"{n * 500 + i:0255}", severity=4) for i in range(500)]
        yield pb.AgentMessage(events=pb.EventBatch(events=events))


def long_evidence() -> Messages:
    text = {"x": pb.Value(text=os.urandom(30_000).hex())}
    for n in itertools.count():
        yield batch(n * 10 + 1, 10, evidence=text)


def much_evidence() -> Messages:
    full = {f"k{i}": pb.Value(text="x" * 200) for i in range(64)}
    for n in itertools.count():
        yield batch(n * 50 + 1, 50, evidence=full)


def long_faults() -> Messages:
    for n in itertools.count(1):
        yield batch(n, 1, fault="".join(random.choices("abcdefgh", k=6000)))


def new_faults() -> Messages:
    for n in itertools.count():
        events = [event(n * 500 + i + 1, fault=f"f{n}_{i}", check=f"c{n}_{i}", severity=4) for i in range(500)]
        yield pb.AgentMessage(events=pb.EventBatch(events=events))


def new_boots() -> Messages:
    for n in itertools.count():
        events = [event(i + 1, boot_id=f"{n}-{i}") for i in range(500)]
        yield pb.AgentMessage(events=pb.EventBatch(events=events))


def long_results() -> Messages:
    while True:
        yield pb.AgentMessage(result=pb.CommandResult(id="i" * 900_000, message="m"))


def full_batches() -> Messages:
    for n in itertools.count():
        yield batch(n * 1000 + 1, 1000, kind=3)


def unknown_bodies() -> Messages:
    while True:
        yield pb.AgentMessage.FromString(b"\xfa\x07" + b"\x80\x80\x3c" + b"x" * 983_040)  # field 127


def long_versions() -> Messages:
    while True:
        yield pb.AgentMessage()


ATTACKS: dict[str, Callable[[], Messages]] = {
    f.__name__: f
    for f in (
        new_check_names, a_few_new_check_names, endless_heartbeats, long_components, components_without_end,
        long_evidence, much_evidence, long_faults, new_faults, new_boots, long_results, full_batches, unknown_bodies,
        long_versions,
    )
}  # fmt: skip


async def attack(target: str, what: str) -> AsyncIterator[None]:
    """Sends without end, and connects again when it is sent away; yields after each message."""
    messages = ATTACKS[what]()
    for n in itertools.count():
        version = f"{VERSION}+{'x' * 800_000}{n}" if what == "long_versions" else f"{VERSION}+x{n}"
        async with agent(target) as stream:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, AssertionError):
                hello = pb.Hello(protocol=1, node="evil", boot_id=BOOT, agent_version=version, profile=f"p{n}")
                await stream.send(pb.AgentMessage(hello=hello))
                await stream.next()
                reading = asyncio.ensure_future(stream.status())
                try:
                    while not reading.done():
                        await stream.send(next(messages))
                        yield
                finally:
                    reading.cancel()
        await asyncio.sleep(RECONNECTS_S)
        yield


class HostileTarget:
    """A controller as a process, so that its memory can be measured."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        settings = folder / "controller.toml"
        settings.write_text(
            f'[controller]\nlisten = "127.0.0.1:0"\nstate_dir = "{folder}/state"\n[scheduler]\nkind = "none"\n'
        )
        self.program = Program(folder / "log", NODETRIAGECTL, "controller", "--config", str(settings))
        wait_until(lambda: re.search(PORT, self.program.said()) or self.program.status is not None, 60, "it listens")
        found = re.search(PORT, self.program.said())
        assert found, self.program.said()
        self.target = f"127.0.0.1:{found[1]}"

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.program.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def disk_mib(self) -> float:
        return sum(file.stat().st_size for file in (self._folder / "state").iterdir() if file.is_file()) / 2**20
