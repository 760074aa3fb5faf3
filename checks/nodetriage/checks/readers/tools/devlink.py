"""What the drivers of network adapters say of their health: `devlink -j health show` (devlink-health(8)).

{"health": {"pci/0000:08:00.0": [{"reporter": "fw_fatal", "state": "healthy", "error": 0, "recover": 0, ...}, ...]}}; a
port's reporters have the port's number behind the address.
"""

import re
from dataclasses import dataclass

from nodetriage.checks.model import Host
from nodetriage.checks.readers.tools.answer import json_object, number, rows, table, word

TIMEOUT_S = 3.0
_HANDLE = re.compile(r"pci/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?:/\d{1,10})?")


@dataclass(frozen=True, slots=True)
class Reporter:
    """One part of an adapter that reports its health."""

    pci: str
    name: str  # fw, fw_fatal, tx, rx, vnic, ...
    state: str  # healthy, error
    errors: int  # that it has seen since the driver was loaded
    recovered: int


def read_health(host: Host) -> tuple[Reporter, ...]:
    """Raises Unavailable where devlink is not installed, TimeoutError, ValueError for another answer."""
    return reporters(host.run(("devlink", "-j", "health", "show"), TIMEOUT_S).stdout)


def reporters(text: str) -> tuple[Reporter, ...]:
    """Raises ValueError where the answer is no health report."""
    report = json_object(text, "devlink")
    if "health" not in report:
        raise ValueError(f"devlink: expected a health report, got {text[:80]!r}")
    found: dict[tuple[str, str], Reporter] = {}
    for handle in table(report, "health"):
        if (device := _HANDLE.fullmatch(handle)) is None:
            continue
        for row in rows(table(report, "health"), handle):
            name, counts = word(row, "reporter"), [int(number(word(row, k)) or 0) for k in ("error", "recover")]
            one = Reporter(device[1], name, word(row, "state"), counts[0], counts[1])
            before = found.get((one.pci, name))  # a port's reporter stands beside its adapter's
            worse = before is None or (one.state == "error", one.errors) > (before.state == "error", before.errors)
            found[one.pci, name] = one if worse or before is None else before
    return tuple(found.values())
