"""The past of InfiniBand and RoCE ports: whether one was ever up, since when it waits, when it lost its link. Pure."""

from dataclasses import replace

from nodetriage.checks.readers.ib_port import SATURATED, Port
from nodetriage.checks.rules.counters import rise

_FLAPS_KEPT = 255


def next_state(before: tuple[Port, ...] | None, now: tuple[Port, ...]) -> tuple[Port, ...]:
    """The newest reading of each port, with its past."""
    old = {port.name: port for port in before or ()}
    return tuple(_with_past(old.get(port.name), port, before is None) for port in now)


def _with_past(old: Port | None, port: Port, first: bool) -> Port:
    up, waiting = port.state == "ACTIVE", port.state in ("INIT", "ARMED")
    # At the first look a port that waits counts as waiting since boot.
    started_s = old.waiting_since_s if old and old.waiting_since_s is not None else 0.0 if first else port.at_s
    flaps = (*(old.flaps_at_s if old else ()), *((port.at_s,) * min(downs_since(old, port), _FLAPS_KEPT)))
    return replace(
        port,
        was_up=up or (old is not None and old.was_up),
        waiting_since_s=started_s if waiting else None,
        flaps_at_s=flaps[-_FLAPS_KEPT:],
        blind_at_first=port.downed == SATURATED and (old.blind_at_first if old else True),
    )


def downs_since(old: Port | None, port: Port) -> int:
    """How often the link was lost since the last look; 0 where the counter was reset or cannot be read."""
    return rise(old.downed if old else None, port.downed)
