"""What every list of nodes begins with: does a controller run, what may it do, and whom does it hear."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from nodetriage.controller.cli import format
from nodetriage.controller.policy.agents.coverage import Presence
from nodetriage.controller.store.known_nodes import ControllerStatus
from nodetriage.controller.store.node_views import is_alive

Status = tuple[ControllerStatus, int] | None
_OTHERS = tuple(p for p in Presence if p is not Presence.HEARD)


def lines(status: Status, now_us: int) -> Sequence[str]:
    if status is None:
        return ("no controller has said anything yet: nobody looks, and no state below is known to be so",)
    said, at_us = status
    if not is_alive(status, now_us):
        ago = format.age((now_us - at_us) / 1_000_000)
        alive = f"NO CONTROLLER since {format.clock(at_us)} UTC ({ago} ago): what follows is as it was then"
    else:
        alive = f"controller {said.version} runs"
    return (f"{alive}; {_authority(said)}", _coverage(said))


def as_json(status: Status, now_us: int) -> dict[str, Any]:
    if status is None:
        return {"alive": False, "at": None}
    said, at_us = status
    whole: dict[str, Any] = {"alive": is_alive(status, now_us), "at": format.iso(at_us)}
    for name in said.__slots__:
        value = getattr(said, name)
        whole[name] = value.astimezone(UTC).isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
    return whole


def _authority(said: ControllerStatus) -> str:
    breaker = f"breaker OPEN ({said.breaker_why})" if said.breaker_open else "breaker closed"
    words = [f"mode {said.mode}", breaker]
    if said.paused_until is not None:
        words.append(f"paused until {said.paused_until:%Y-%m-%d %H:%M} UTC")
    words.append(f"{said.drains_last_hour} of {said.drains_per_hour} drains this hour")
    words.append(f"{said.nodes_out} of {said.nodes_out_limit} nodes newly out")
    named = (("queued", said.drains_queued), ("fleet incidents", said.fleet_incidents))
    words += [f"{count} {name}" for name, count in (*named, ("in maintenance", said.in_maintenance)) if count]
    return "; ".join(words)


def _coverage(said: ControllerStatus) -> str:
    """As "1,000 in Slurm, 987 heard, 13 never"."""
    counts = said.presences
    words = [f"{said.scheduler_nodes:,} in Slurm", f"{counts.get(Presence.HEARD, 0):,} heard"]
    words += [f"{counts[p]:,} {p}" for p in _OTHERS if counts.get(p)]
    return ", ".join(words)
