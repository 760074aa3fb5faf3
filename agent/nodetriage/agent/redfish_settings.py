"""Where the BMC's Redfish service is: [redfish]. Its own module, so that reading settings loads no HTTP and no TLS."""

import re
from dataclasses import dataclass
from pathlib import Path

_ADDRESS = re.compile(r"[A-Za-z0-9.-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+(%\w+)?\](:\d{1,5})?")
_FINGERPRINT = re.compile(r"(?:[0-9a-fA-F]{2}:?){31}[0-9a-fA-F]{2}")


@dataclass(frozen=True, slots=True)
class RedfishSettings:
    """[redfish]: a second source about the BMC, beside ipmitool; empty address: not asked"""

    address: str = ""  # of the BMC: a name or an IP address, with :PORT where it is not 443
    credentials: Path = Path("/etc/nodetriage/redfish")  # two lines, a user who may read and the password; mode 0600
    ca_file: str = ""  # PEM: who signed the BMC's certificate; empty: one that the system trusts
    fingerprint: str = ""  # SHA-256 of the BMC's own certificate, in hex; instead of ca_file
    timeout_s: float = 20.0  # for one answer

    def __post_init__(self) -> None:
        if self.fingerprint and not _FINGERPRINT.fullmatch(self.fingerprint):
            raise ValueError(f"fingerprint: expected 64 hex digits, got {self.fingerprint!r}")
        if self.fingerprint and self.ca_file:
            raise ValueError("fingerprint: expected either it or ca_file, got both")
        if not 1 <= self.timeout_s <= 60:
            raise ValueError(f"timeout_s: expected 1 to 60, got {self.timeout_s:g}")
        if self.address and not _ADDRESS.fullmatch(self.address):
            raise ValueError(f"address: expected HOST or HOST:PORT, an IPv6 address in brackets, got {self.address!r}")
