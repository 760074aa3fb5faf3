"""The past of InfiniBand and RoCE ports: whether one was ever up, since when it waits, when it lost its link. Pure."""

from dataclasses import replace

from nodetriage.checks.readers.ib_port import SATURATED, Port
from nodetriage.checks.rules.counters import rise

FLAPS_KEPT = 255


def next_state(before: tuple[Port, ...] | None, now: tuple[Port, ...]) -> tuple[Port, ...]:
    """The newest reading of each port, with its past, and ports that are gone."""
    old = {port.name: port for port in before or ()}
    names = {port.name for port in now}
    gone = (replace(port, gone=True) for port in before or () if port.name not in names and port.was_up)
    return (*(_with_past(old.get(port.name), port, before is None) for port in now), *gone)


def _with_past(old: Port | None, port: Port, first: bool) -> Port:
    up, waiting = port.state == "ACTIVE", port.state in ("INIT", "ARMED")
    # At the first look a port that waits counts as waiting since boot.
    started_s = old.waiting_since_s if old and old.waiting_since_s is not None else 0.0 if first else port.at_s
    lost = _lost(old, port)
    flaps = (*(old.flaps_at_s if old else ()), *((port.at_s,) * min(lost, FLAPS_KEPT)))
    return replace(
        port,
        was_up=up or (old is not None and old.was_up),
        waiting_since_s=started_s if waiting else None,
        flaps_at_s=flaps[-FLAPS_KEPT:],
        owed=still_owed(old.owed if old else 0, lost, up),
        blind_at_first=port.downed == SATURATED and (old.blind_at_first if old else True),
        best_gbps=max(old.best_gbps if old else 0, port.rate_gbps if up else 0),
    )


def flaps_of(old: Port | None, port: Port) -> int:
    """How often the link was lost and came back since a finding last reported it."""
    return to_report(old.owed if old else 0, _lost(old, port), port.state == "ACTIVE")


def _lost(old: Port | None, port: Port) -> int:
    """How often the link was lost since the last look: at least once where it was up then and is down now."""
    if old is None:
        return 0
    fell = old.state == "ACTIVE" and port.state == "DOWN"
    counted = rise(old.downed, port.downed)
    return max(counted, 1) if fell else counted


def to_report(owed: int, lost: int, up: bool) -> int:
    """Flaps that a finding should report now. A link that is down has lost its link once more than it came back."""
    return owed + lost if up else max(owed + lost - 1, 0)


def still_owed(owed: int, lost: int, up: bool) -> int:
    """What remains to be reported when the link is up again."""
    return 0 if up else min(owed + lost, 1)
