"""How peers must show who they are, as the settings say it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """[identity]"""

    kind: Literal["none", "tls", "munge"] = "none"  # how nodes show who they are; none: plaintext, on this machine
    ca: Path = Path("/etc/nodetriage/ca.crt")  # tls: who signs; several authorities may follow each other
    certificate: Path = Path("/etc/nodetriage/controller.crt")  # tls: with the addresses that agents call
    key: Path = Path("/etc/nodetriage/controller.key")  # tls: mode 0600
    node_domain: str = ""  # tls: certificates say NODE.DOMAIN; empty: the node's name alone
    deny: tuple[
        str, ...
    ] = ()  # names and certificates' serial numbers that are no longer believed; taken over on reload
    munge_socket: str = ""  # munge: of munged; empty: libmunge's own default
    agent_uid: int = 0  # munge: as whom agents run
    munge_max_age_s: int = 60  # munge: of a credential; the clocks of nodes and controller count

    def __post_init__(self) -> None:
        if not 1 <= self.munge_max_age_s <= 3600:
            raise ValueError(f"munge_max_age_s: expected 1 to 3600, got {self.munge_max_age_s}")
