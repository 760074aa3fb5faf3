"""What agent and controller claim inside munge credentials: a few lines of text.

A claim names the TLS certificate of its connection, so it is worthless on any other connection.
"""

import re
from dataclasses import dataclass

METADATA_KEY = "nodetriage-munge"
SERVER_NAME = "nodetriage-controller"  # in the certificate of a controller that uses munge
TTL_S = 60
AGENT, CONTROLLER = "agent", "controller"

_FORM = re.compile(rb"nodetriage 1\n(agent|controller)\n([A-Za-z0-9._-]{1,253})\n([0-9a-f]{64})\n([0-9a-f]{32})\n")


@dataclass(frozen=True, slots=True)
class Claim:
    """`certificate` is the SHA-256 of the server's certificate (DER), `nonce` the agent's; both hexadecimal."""

    side: str
    node: str
    certificate: str
    nonce: str

    def encoded(self) -> bytes:
        return f"nodetriage 1\n{self.side}\n{self.node}\n{self.certificate}\n{self.nonce}\n".encode()


def parse(payload: bytes) -> Claim | None:
    """None for anything else, such as a credential for another program."""
    if not (match := _FORM.fullmatch(payload)):
        return None
    side, node, certificate, nonce = (part.decode() for part in match.groups())
    return Claim(side, node, certificate, nonce)
