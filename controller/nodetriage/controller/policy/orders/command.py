"""The commands of operators, as the policy takes them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Verb = Literal[
    "drain",
    "undrain",
    "release",
    "retire",
    "ticket",
    "accept",
    "lemon_set",
    "lemon_lift",
    "maintenance_on",
    "maintenance_off",
    "close_breaker",
    "open_breaker",
    "close_incident",
    "pause",
    "unpause",
]


@dataclass(frozen=True, slots=True)
class OperatorCommand:
    """What one operator orders for one node, or with `node` "" for the fleet.

    `undrain`: this node comes back; only a drain of ours is lifted. `ticket`: `reason` is its text, "" removes it.
    """

    verb: Verb
    node: str
    actor: str
    reason: str = ""
    incident: str = ""  # close_incident
    fault: str = ""  # accept
    until: datetime | None = None  # maintenance_on, pause
    at_once: bool = False  # drain: past the limits, the breaker and a pause
