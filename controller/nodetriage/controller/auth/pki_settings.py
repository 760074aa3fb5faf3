"""The section [pki]: apart from the authority itself, so that reading settings loads no cryptography."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nodetriage.controller.auth.certificate import Role


@dataclass(frozen=True, slots=True)
class PkiSettings:
    """[pki]"""

    directory: Path = Path("/etc/nodetriage/pki")  # of ca.crt, ca.key and what was issued; keep it off the nodes
    ca_days: int = 3650  # lifetimes of new certificates
    controller_days: int = 365
    node_days: int = 90
    operator_days: int = 30  # readers' too

    def __post_init__(self) -> None:
        for name in ("ca_days", "controller_days", "node_days", "operator_days"):
            if not 1 <= getattr(self, name) <= 36500:
                raise ValueError(f"{name}: expected 1 to 36500, got {getattr(self, name)}")

    def days(self, role: "Role") -> int:
        """The lifetime of a new certificate of this role."""
        days = {"authority": self.ca_days, "controller": self.controller_days, "node": self.node_days}
        return days.get(role.value, self.operator_days)
