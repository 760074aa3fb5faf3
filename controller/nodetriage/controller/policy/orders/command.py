"""The commands of operators, as the policy takes them."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class OperatorCommand:
    """`undrain`: this node is to come back; only a drain of ours is lifted. `node` is "" for close_breaker."""

    verb: Literal["undrain", "maintenance_on", "maintenance_off", "close_breaker", "close_incident"]
    node: str
    actor: str
    reason: str = ""
    incident: str = ""  # of the fleet
