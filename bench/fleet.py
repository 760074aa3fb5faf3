"""Durable events/s and ack latency of one controller under many agents, over the real protocol.

    .venv/bin/python bench/fleet.py --agents 200 --seconds 10

Starts `nodetriagectl controller` in a temporary folder, then speaks for N nodes from this process: each sends a batch
of events, waits for its ack (which means: on the disk), and sends the next; heartbeats go on beside. The generator
and the controller share the machine's cores. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from nodetriage.v1 import health_pb2 as pb
from nodetriage.v1 import health_pb2_grpc

CTL = str(Path(sys.executable).parent / "nodetriagectl")
BOOT = "00000000-0000-0000-0000-000000000001"


@dataclass
class Tally:
    """What all agents together have seen."""

    acked_events: int = 0
    heartbeats: int = 0
    ack_s: list[float] = field(default_factory=list)
    refused: int = 0


@dataclass(frozen=True)
class Load:
    """What each agent does."""

    until_s: float  # of time.monotonic
    batch: int
    every_s: float  # between batches; 0: as fast as acks come
    heartbeat_s: float


def event(seq: int) -> pb.Event:
    made = pb.Event(boot_id=BOOT, seq=seq, at_unix_us=time.time_ns() // 1000, kind=pb.EVENT_KIND_REPEATED)
    made.check, made.part, made.fault = "gpu_xid", "GPU-5d5b1ba5-6bd1-4f9b-a3bf-1d0b9b2a7a11", "gpu_xid_app"
    made.severity = pb.SEVERITY_WARNING
    made.evidence["xid"].whole = 31
    made.evidence["line"].text = "NVRM: Xid (PCI:0000:3a:00): 31, pid=4242, name=python, Ch 00000008"
    return made


def heartbeat() -> pb.AgentMessage:
    checks = [pb.CheckState(check=f"check_{i}", outcome=pb.OUTCOME_OK, age_ms=1000 * i) for i in range(25)]
    ports = [pb.PortTraffic(port=f"mlx5_{i}/1", rx_bytes=1 << 40, tx_bytes=1 << 40) for i in range(8)]
    return pb.AgentMessage(heartbeat=pb.Heartbeat(boot_id=BOOT, checks=checks, ports=ports))


async def one_agent(node: str, channel: Any, load: Load, tally: Tally) -> None:
    call = health_pb2_grpc.NodeHealthStub(channel).Connect()
    hello = pb.Hello(protocol=1, node=node, boot_id=BOOT, agent_version="0.1.0", profile="bench")
    try:
        await call.write(pb.AgentMessage(hello=hello))
        await call.read()
        await talk(call, load, tally)
        await call.done_writing()
    except grpc.aio.AioRpcError:
        tally.refused += 1


async def talk(call: Any, load: Load, tally: Tally) -> None:
    seq, beat = 1, heartbeat()
    next_beat = time.monotonic() + random.uniform(0, load.heartbeat_s)
    await asyncio.sleep(min(random.uniform(0, load.every_s), load.until_s - time.monotonic()))
    while (now := time.monotonic()) < load.until_s:
        if now >= next_beat:
            await call.write(beat)
            tally.heartbeats += 1
            next_beat += load.heartbeat_s
        batch = pb.AgentMessage(events=pb.EventBatch(events=[event(s) for s in range(seq, seq + load.batch)]))
        seq += load.batch
        sent = time.monotonic()
        await call.write(batch)
        reply = await call.read()
        if reply is grpc.aio.EOF:
            tally.refused += 1
            return
        tally.ack_s.append(time.monotonic() - sent)
        tally.acked_events += sum(r.last_seq - r.first_seq + 1 for r in reply.ack.ranges)
        if load.every_s:
            await asyncio.sleep(max(0.0, min(sent + load.every_s, load.until_s) - time.monotonic()))


async def drive(target: str, agents: int, seconds: float, options: argparse.Namespace) -> Tally:
    tally = Tally()
    load = Load(time.monotonic() + seconds, options.batch, options.every, options.heartbeat)
    # A channel of its own for each agent: connections are part of what is measured.
    channels = [
        grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(agents)
    ]
    try:
        await asyncio.gather(*(one_agent(f"n{i}", c, load, tally) for i, c in enumerate(channels)))
    finally:
        await asyncio.gather(*(c.close() for c in channels))
    return tally


def start_controller(folder: Path) -> "subprocess.Popen[bytes]":
    (folder / "controller.toml").write_text(
        f'[controller]\nlisten = "unix:{folder}/c.sock"\nstate_dir = "{folder}"\n[scheduler]\nkind = "none"\n'
        "[admission]\nevents_per_s_per_node = 1000000\nburst_events_per_node = 1000000\n"
    )
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen([CTL, "controller", "--config", str(folder / "controller.toml")], stderr=log)
    deadline = time.monotonic() + 30
    while "brain started" not in (folder / "log").read_text():
        if started.poll() is not None or time.monotonic() > deadline:
            raise SystemExit((folder / "log").read_text())
        time.sleep(0.05)
    return started


def cost_of(pid: int) -> tuple[float, float]:
    """(CPU seconds, peak resident MiB) of a running process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return cpu_s, int(status["VmHWM"].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--batch", type=int, default=20, help="events in a message")
    parser.add_argument("--every", type=float, default=0.0, help="seconds between an agent's batches; 0: at once")
    parser.add_argument("--heartbeat", type=float, default=5.0, help="seconds between an agent's heartbeats")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the controller is stopped all the same
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        controller = start_controller(folder)
        try:
            before_s, _ = cost_of(controller.pid)
            tally = asyncio.run(drive(f"unix:{folder}/c.sock", options.agents, options.seconds, options))
            cpu_s, peak_mib = cost_of(controller.pid)
        finally:
            controller.send_signal(signal.SIGTERM)
            controller.wait(30)
        stored = sqlite3.connect(folder / "history.sqlite").execute("SELECT count(*) FROM events").fetchone()[0]
    report(options, tally, stored, cpu_s - before_s, peak_mib)


def report(options: argparse.Namespace, tally: Tally, stored: int, cpu_s: float, peak_mib: float) -> None:
    cuts = statistics.quantiles(tally.ack_s, n=100) if len(tally.ack_s) > 1 else [0.0] * 99
    own = resource.getrusage(resource.RUSAGE_SELF)
    result = {
        "agents": options.agents,
        "seconds": options.seconds,
        "batch": options.batch,
        "durable_events_per_s": round(tally.acked_events / options.seconds),
        "ack_p50_ms": round(cuts[49] * 1000, 2),
        "ack_p99_ms": round(cuts[98] * 1000, 2),
        "heartbeats": tally.heartbeats,
        "refused": tally.refused,
        "acked_events": tally.acked_events,
        "stored_events": stored,
        "controller_cpu_s": round(cpu_s, 2),
        "controller_peak_mib": round(peak_mib, 1),
        "generator_cpu_s": round(own.ru_utime + own.ru_stime, 2),
        "cores": os.cpu_count(),
    }
    print(
        f"{options.agents} agents: {result['durable_events_per_s']} durable events/s, ack p50 {result['ack_p50_ms']} ms"
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
