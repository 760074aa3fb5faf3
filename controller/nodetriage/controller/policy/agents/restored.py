"""Notices that the database is older than the world: it was restored from a backup. Pure.

What it lost comes back by itself: agents state what is open (resync.py), Slurm shows our drains (drains/adoption.py).
Ids that were given since the backup are not given again.
"""

from nodetriage.controller.policy.agents import epoch
from nodetriage.controller.policy.fleet_state import AgentAhead
from nodetriage.controller.policy.notices import NoticeKind
from nodetriage.controller.policy.reason import parse_reason
from nodetriage.controller.policy.state import SchedulerSeen
from nodetriage.controller.policy.unit_of_work import UnitOfWork


def compare(work: UnitOfWork, seen: SchedulerSeen) -> None:
    """Slurm shows a drain of ours whose id this database has not given yet."""
    fleet, shown = work.fleet, dict[str, int]()
    for view in seen.nodes.values():
        if view.reason and (ours := parse_reason(view.reason)) is not None:
            ahead = epoch.is_ahead(ours.incident, fleet.epoch, fleet.incidents)
            if ahead is not None:
                shown[f"{ours.incident} on {view.name}"] = ahead
    if shown:
        _begin(work, max(shown.values()), f"Slurm shows incident {min(shown)}, which it does not have")


def agent_ahead(work: UnitOfWork, event: AgentAhead) -> None:
    """An agent has acks for more than is stored. Once is enough until an incident is opened."""
    if work.fleet.epoch.since != work.fleet.incidents:
        text = f"{event.node} has acks for its events up to {event.acked_seq}, and it ends at {event.stored_seq}"
        _begin(work, 0, text)


def _begin(work: UnitOfWork, shown: int, why: str) -> None:
    began = work.fleet.epoch.next(work.now, work.fleet.incidents, shown)
    work.set_fleet(epoch=began)
    text = f"the database is older than the fleet: {why}; ids of new incidents have e{began.number} in them"
    work.notify(NoticeKind.DATABASE_OLDER, f"e{began.number}", text)
