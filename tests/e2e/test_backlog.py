"""After days without the controller: everything arrives once and in order, and a new fault does not wait for it."""

import asyncio

from backlogs import deliver
from fleet import Fleet
from link import Link

NODES, EVENTS = 25, 600  # several batches a node, so that there is something to overtake


def test_a_backlog_arrives_once_and_in_order_while_new_faults_overtake_it(lone_fleet: Fleet) -> None:
    lone_fleet.start_controller()
    link = Link(f"unix:{lone_fleet.folder}/link.sock", lone_fleet.address, latency_s=0.002, up=False)
    try:
        outcome = asyncio.run(deliver(lone_fleet, link, NODES, EVENTS, held=True))
    finally:
        link.close()

    print(f"{NODES} nodes with {EVENTS} events each: all delivered in {outcome.delivered_s:.2f} s")
    print(f"new faults came before {outcome.overtaken} events of their own nodes' backlogs")
    assert outcome.arrived == {f"n{i}": list(range(1, EVENTS + 1)) for i in range(NODES)}
    assert outcome.overtaken
    assert min(outcome.overtaken) > 0
    assert lone_fleet.gaps() == []
