"""Who should report, and whether they do: every node that Slurm, an agent or the settings name has a presence. Pure."""

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nodetriage.controller.scheduler import NodeView

FORGOTTEN_AFTER = timedelta(days=90)  # a node that nobody names any more


class Presence(enum.StrEnum):
    HEARD = "heard"
    SILENT = "silent"  # its agent reported once, and does not now
    NEVER = "never"  # no agent ever reported
    REFUSED = "refused"  # its agent was sent away: another version, no right to speak for the node
    ASLEEP = "asleep"  # switched off to save power, or rebooting
    RETIRED = "retired"  # an operator said so
    DECOMMISSIONED = "decommissioned"  # the scheduler lists it no longer


MISSING = (Presence.SILENT, Presence.NEVER, Presence.REFUSED)


@dataclass(frozen=True, slots=True)
class Known:
    """A node that should report, or did. `slurm`, `reason` and `reason_by` are the scheduler's, as last read."""

    node: str
    presence: Presence
    since: datetime
    why: str = ""  # it was refused
    in_scheduler: bool = False
    slurm: str = ""
    reason: str = ""
    reason_by: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """What is there now. `views` is None or empty until the scheduler was read."""

    views: Mapping[str, NodeView] | None = None
    expected: Collection[str] = ()  # by the settings
    spoken: Collection[str] = ()  # agents that reported, now or before the start
    silent: Collection[str] = ()  # of them, those that do not now
    refused: Mapping[str, str] = field(default_factory=dict)  # node -> why
    retired: Collection[str] = ()


def survey(before: Mapping[str, Known], world: World, now: datetime) -> dict[str, Known]:
    """All known nodes as they are now. An entry that did not change is the same object as before."""
    names = {*before, *world.expected, *world.spoken, *world.refused}
    names |= {name for name, view in (world.views or {}).items() if view.exists}
    found = {}
    for name in names:
        known = _one(name, before.get(name), world, now)
        if not (known.presence is Presence.DECOMMISSIONED and now - known.since > FORGOTTEN_AFTER):
            found[name] = known
    return found


def counts(known: Mapping[str, Known]) -> dict[Presence, int]:
    """How many nodes have each presence; all presences are there."""
    found = dict.fromkeys(Presence, 0)
    for one in known.values():
        found[one.presence] += 1
    return found


def unlisted(known: Mapping[str, Known]) -> int:
    """Nodes whose agent reports and that the scheduler, where there is one, does not list."""
    if not any(one.in_scheduler for one in known.values()):
        return 0
    return sum(one.presence is Presence.HEARD and not one.in_scheduler for one in known.values())


def _one(name: str, before: Known | None, world: World, now: datetime) -> Known:
    view = (world.views or {}).get(name)
    presence = _presence(name, before, view, world)
    known = before or Known(name, presence, now)
    if presence is not known.presence:
        known = replace(known, presence=presence, since=now)
    why = world.refused.get(name, known.why) if presence is Presence.REFUSED else ""
    facts = (known.in_scheduler, known.slurm, known.reason, known.reason_by)
    if world.views:
        listed = view is not None and view.exists
        facts = (
            (listed, words(view), view.reason[:300], view.reason_by[:100]) if view is not None else (False, "", "", "")
        )
    if (known.why, known.in_scheduler, known.slurm, known.reason, known.reason_by) == (why, *facts):
        return known
    in_scheduler, slurm, reason, reason_by = facts
    return replace(known, why=why, in_scheduler=in_scheduler, slurm=slurm, reason=reason, reason_by=reason_by)


def _presence(name: str, before: Known | None, view: NodeView | None, world: World) -> Presence:
    if name in world.retired:
        return Presence.RETIRED
    if name in world.spoken and name not in world.silent:
        return Presence.HEARD
    if name in world.refused:
        return Presence.REFUSED
    is_listed = name in world.expected or (view is not None and view.exists)
    if world.views and not is_listed:
        return Presence.DECOMMISSIONED
    if view is not None and (view.power_saving or view.rebooting):
        return Presence.ASLEEP
    if before is not None and before.presence is Presence.REFUSED and name not in world.spoken:
        return Presence.REFUSED  # since before the start; it has not come again
    return Presence.SILENT if name in world.spoken else Presence.NEVER


def words(view: NodeView) -> str:
    """The scheduler's state of a node, as "idle+drain"."""
    return "+".join((view.base, *sorted(view.flags)))
