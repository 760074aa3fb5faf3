"""A slow, lossy network that breaks now and then, between two namespaces: nothing is lost, doubled or mixed up."""

import contextlib
import datetime
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from crashes import LogFile
from machines import CONTROLLER, Machines, by_tls, missing, says
from programs import Program
from secure import Site
from slurm_cluster import wait_until

from nodetriage.controller.auth.certificate import Role

LINES = 300
LATENCY_S, LOSS = 0.05, 0.05
XID_31 = "NVRM: Xid (PCI:{component}): 31, pid={number}, name=job, Ch 00000008, MMU Fault"
LINK = Path(__file__).parent / "parts/link.py"


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """The node knows the controller by an address of its own, at which the bad link listens."""
    if reason := missing():
        pytest.skip(reason)
    made = Machines(tmp_path, controller_as_seen="127.0.0.1")
    try:
        yield made
    finally:
        made.close()


def arrived(machines: Machines) -> list[tuple[int, str]]:
    """(number, component) of each fault, in the order in which they reached the controller's disk."""
    file = f"file:{machines.folder}/c/history.sqlite?mode=ro"
    with contextlib.closing(sqlite3.connect(file, uri=True, timeout=90)) as database:
        query = "SELECT seq, component FROM events WHERE check_name = 'gpu_xid' AND kind = 1 ORDER BY id"
        return database.execute(query).fetchall()


def connections_for(numbers: Sequence[int]) -> int:
    """How many connections it takes, at the least, for numbers to come in this order.

    Within one, what was made before it began comes in order, and what was made since comes in order, among the former.
    """
    connections, began = 0, 0
    for end in range(1, len(numbers) + 1):
        if not connections or not _one_connection(numbers[began:end]):
            connections, began = connections + 1, end - 1
    return connections


def _one_connection(numbers: Sequence[int]) -> bool:
    """Whether every number that a lower one follows is of the live edge, and every one that follows a higher is not."""
    overtaken = [n for i, n in enumerate(numbers) if n < max(numbers[:i], default=0)]
    overtaking = [n for i, n in enumerate(numbers) if n > min(numbers[i:])]
    return max(overtaken, default=0) < min(overtaking, default=1)


@pytest.mark.parametrize(
    ("numbers", "connections"),
    [
        ([], 0),
        ([1, 2, 5, 9], 1),
        ([1, 2, 6, 3, 7, 4, 5, 8], 1),
        ([1, 2, 6, 4, 7, 3, 5, 8], 2),
        ([1, 2, 7, 3, 6, 4, 5, 8], 2),
        ([4, 1, 5, 3, 2, 6, 7], 2),
        ([3, 2, 1], 2),
        ([5, 4, 3, 2, 1], 3),
    ],
)
def test_a_wrong_order_is_noticed(numbers: list[int], connections: int) -> None:
    assert connections_for(numbers) == connections


def start_link(machines: Machines, number: int) -> Program:
    argv = (sys.executable, str(LINK), "127.0.0.1:7443", f"{CONTROLLER}:7443", str(LATENCY_S), str(LOSS))
    link = machines.run(machines.node, f"link-{number}", *argv)
    says(link, "up")
    return link


def test_over_a_link_that_breaks_twice_everything_arrives_once_and_backlog_and_live_edge_each_in_order(
    machines: Machines,
) -> None:
    """After each break what is new passes the backlog; neither is mixed up in itself."""
    site = Site(machines.folder / "pki")
    site.pki.issue(Role.CONTROLLER, "ctl", ("ctl",), 30, datetime.datetime.now(datetime.UTC), force=True)
    log = LogFile(machines.folder / "kmsg")
    says(machines.start_controller(site.toml), '"listening"')
    link = start_link(machines, 0)
    agent = machines.start_agent("n1", "n1", by_tls(site, "n1"), log="kmsg")
    says(agent, '"controller connected"')
    parts = [f"{number:04x}:fe:00" for number in range(LINES)]
    for number, component in enumerate(parts):
        log.write(XID_31.format(component=component, number=number))
        time.sleep(0.005)  # a load that goes on while the link breaks
        if number in (LINES // 3, 2 * LINES // 3):
            link.send(signal.SIGKILL)
            link.wait()
            link = start_link(machines, number)
    log.close()

    took_s = wait_until(lambda: len(arrived(machines)) >= LINES, 200, "all lines have arrived")

    print(f"the last of {LINES} events arrived {took_s:.1f} s after it happened")
    assert [component for _, component in sorted(arrived(machines))] == [f"{component}.0" for component in parts]
    taken = max(2, connections_for([number for number, _ in arrived(machines)]))
    what = f"the agent has told of {taken} connections, without which there is no such order"
    wait_until(lambda: agent.said().count('"controller connected"') >= taken, 30, what)
