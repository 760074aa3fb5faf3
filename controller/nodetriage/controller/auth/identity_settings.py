"""The section [identity]: how peers prove who they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """[identity]"""

    kind: Literal["none", "tls", "munge"] = (
        "none"  # how nodes prove who they are; none: plaintext, on the controller's machine alone
    )
    ca: Path = Path("/etc/nodetriage/ca.crt")  # tls: the authorities that sign, one after the other
    certificate: Path = Path("/etc/nodetriage/controller.crt")  # tls: it names the addresses that agents call
    key: Path = Path("/etc/nodetriage/controller.key")  # tls: mode 0600
    node_domain: str = ""  # tls: certificates name NODE.DOMAIN; empty: the node alone
    deny: tuple[str, ...] = ()  # names and certificates' serial numbers that are refused; a reload takes the list over
    munge_socket: str = ""  # munge: munged's socket; empty: libmunge's default
    agent_uid: int = 0  # munge: the user id of the agents
    munge_max_age_s: int = 60  # munge: how old a credential may be, by the clocks of node and controller

    def __post_init__(self) -> None:
        if not 1 <= self.munge_max_age_s <= 3600:
            raise ValueError(f"munge_max_age_s: expected 1 to 3600, got {self.munge_max_age_s}")
