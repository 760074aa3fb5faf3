"""After a day without the controller: everything arrives once and in order, and a new fault does not wait for it."""

import asyncio

from backlogs import deliver
from fleet import Fleet
from link import Link

NODES, EVENTS = 50, 300  # what a node makes in a day


def test_a_days_backlog_arrives_once_and_in_order_while_new_faults_overtake_it(lone_fleet: Fleet) -> None:
    lone_fleet.start_controller()
    link = Link(f"unix:{lone_fleet.folder}/link.sock", lone_fleet.address, latency_s=0.002, up=False)
    try:
        outcome = asyncio.run(deliver(lone_fleet, link, NODES, EVENTS))
    finally:
        link.close()

    print(f"{NODES} nodes with {EVENTS} events each: all delivered in {outcome.delivered_s:.2f} s")
    print(f"new faults arrived after {outcome.fault_s} s, with {outcome.backlog_left} events still to come")
    assert outcome.arrived == {f"n{i}": list(range(1, EVENTS + 1)) for i in range(NODES)}
    assert max(outcome.fault_s) < 1.0
    assert outcome.backlog_left[0] > NODES * EVENTS // 2
    assert lone_fleet.gaps() == []
