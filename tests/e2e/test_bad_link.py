"""A slow, lossy network that breaks now and then, between two namespaces: everything arrives, once, in order."""

import contextlib
import datetime
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from crashes import LogFile
from machines import CONTROLLER, Machines, by_tls, missing, says
from programs import Program
from secure import Site
from slurm_cluster import wait_until

from nodetriage.controller.certificate import Role

LINES = 300
LATENCY_S, LOSS = 0.05, 0.05
XID_31 = "NVRM: Xid (PCI:{part}): 31, pid={number}, name=job, Ch 00000008, MMU Fault"
LINK = Path(__file__).with_name("link.py")


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


def arrived(machines: Machines) -> list[str]:
    file = f"file:{machines.folder}/c/history.sqlite?mode=ro"
    with contextlib.closing(sqlite3.connect(file, uri=True, timeout=10)) as database:
        query = "SELECT part FROM events WHERE check_name = 'gpu_xid' AND kind = 1 ORDER BY id"
        return [part for (part,) in database.execute(query)]


def start_link(machines: Machines, number: int) -> Program:
    argv = (sys.executable, str(LINK), "127.0.0.1:7443", f"{CONTROLLER}:7443", str(LATENCY_S), str(LOSS))
    link = machines.run(machines.node, f"link-{number}", *argv)
    says(link, "up")
    return link


def test_everything_arrives_once_and_in_order_over_a_link_that_breaks_twice(machines: Machines) -> None:
    site = Site(machines.folder / "pki")
    site.pki.issue(Role.CONTROLLER, "ctl", ("ctl",), 30, datetime.datetime.now(datetime.UTC), force=True)
    log = LogFile(machines.folder / "kmsg")
    says(machines.start_controller(site.toml), '"listening"')
    link = start_link(machines, 0)
    agent = machines.start_agent("n1", "n1", by_tls(site, "n1"), log="kmsg")
    says(agent, '"controller connected"')
    parts = [f"{number:04x}:fe:00" for number in range(LINES)]
    for number, part in enumerate(parts):
        log.write(XID_31.format(part=part, number=number))
        time.sleep(0.005)  # a load that goes on while the link breaks
        if number in (LINES // 3, 2 * LINES // 3):
            link.send(signal.SIGKILL)
            link.wait()
            link = start_link(machines, number)
    log.close()

    took_s = wait_until(lambda: len(set(arrived(machines))) >= LINES, 60, "all lines have arrived")

    print(f"the last of {LINES} events arrived {took_s:.1f} s after it happened")
    assert arrived(machines) == [f"{part}.0" for part in parts]
    assert agent.said().count('"controller connected"') >= 2
