"""Bytes through RDMA ports: read in a worker, told in heartbeats when they are new."""

import asyncio
from pathlib import Path

from nodetriage.agent.core.result import Result
from nodetriage.agent.machine.host import Host
from nodetriage.agent.machine.port_bytes import TRAFFIC, PortBytes, read
from nodetriage.agent.traffic import Traffic
from nodetriage.agent.workers.pool import WorkerPool
from nodetriage.agent.workers.worker import Setup
from nodetriage.checks.model import Outcome

COUNTERS = "sys/class/infiniband/mlx5_0/ports/1/counters"


def port(root: Path, received: str, sent: str) -> None:
    folder = root / COUNTERS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "port_rcv_data").write_text(received)
    (folder / "port_xmit_data").write_text(sent)


def test_the_counters_count_units_of_four_bytes(tmp_path: Path) -> None:
    port(tmp_path, "10\n", "18446744073709551615\n")

    assert read(Host(str(tmp_path))) == (PortBytes("mlx5_0/1", 40, (2**64 - 1) * 4),)


def test_a_port_that_keeps_its_counters_to_itself_is_left_out(tmp_path: Path) -> None:
    (tmp_path / COUNTERS).mkdir(parents=True)

    assert read(Host(str(tmp_path))) == ()


async def test_a_worker_reads_them_and_only_what_is_new_is_told(tmp_path: Path) -> None:
    port(tmp_path, "1", "2")

    workers = WorkerPool(Setup(str(tmp_path), {}), "nodetriage.agent.installed_checks:CHECKS", lambda _: None)
    traffic = Traffic(workers.run)
    try:
        result = await workers.run(TRAFFIC)
    finally:
        await workers.close()
    assert traffic.ports(whole=False, now_s=0.0) == ((), 0.0)
    traffic.take(result, now_s=10.0)
    reading = (PortBytes("mlx5_0/1", 4, 8),)
    assert traffic.ports(whole=False, now_s=10.5) == (reading, 0.5)
    assert traffic.ports(whole=False, now_s=11.0) == ((), 0.0)
    assert traffic.ports(whole=True, now_s=12.0) == (reading, 2.0)


def test_a_run_that_hung_tells_of_no_bytes(tmp_path: Path) -> None:
    async def hangs(_: object) -> Result:
        return Result("traffic", Outcome.HUNG)

    traffic = Traffic(hangs)
    traffic.take(asyncio.run(hangs(TRAFFIC)), 5.0)

    assert traffic.ports(whole=True, now_s=6.0)[0] == ()
