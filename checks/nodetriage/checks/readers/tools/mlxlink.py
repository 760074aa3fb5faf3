"""What an adapter of NVIDIA says of its cable: `mlxlink --json` of mstflint or MFT, with -m (module) and -c (BER).

Source: mlxlink/modules of github.com/Mellanox/mstflint: each value is a text, "N/A" where there is none, a temperature
"52 [-5..75]" with its limits. A bit error rate of 15E-255 stands for none.
"""

import re
from dataclasses import dataclass

from nodetriage.checks.model import Host
from nodetriage.checks.readers.tools.answer import json_object, number, table, word

TIMEOUT_S = 5.0
_LIMITS = re.compile(r"\[\s{0,3}-?\d{1,4}(?:\.\d{1,3})?\s{0,3}\.\.\s{0,3}(-?\d{1,4}(?:\.\d{1,3})?)\s{0,3}\]")


@dataclass(frozen=True, slots=True)
class Cable:
    """The cable of one port. None and "": the adapter does not say. `error` is set where it did not answer."""

    pci: str
    hca: str
    state: str = ""  # Active, Polling, Disable, ...
    speed: str = ""
    width: str = ""
    fec: str = ""
    raw_ber: float | None = None  # before error correction
    effective_ber: float | None = None  # after it
    temperature_c: float | None = None
    temperature_limit_c: float | None = None
    advice: str = ""  # of the adapter's firmware
    error: str = ""


def ask(host: Host, pci: str, hca: str) -> Cable:
    """Raises Unavailable where mlxlink is not installed, TimeoutError, ValueError for another answer."""
    argv = ("mlxlink", "-d", pci, "-m", "-c", "--json")
    return cable(host.run(argv, TIMEOUT_S).stdout, pci, hca)


def cable(text: str, pci: str, hca: str) -> Cable:
    """Raises ValueError where the answer has no state of a link."""
    output = table(json_object(text, "mlxlink"), "result", "output")
    link, errors = table(output, "Operational Info"), table(output, "Physical Counters and BER Info")
    if not word(link, "State"):
        raise ValueError(f"mlxlink: expected the state of a link, got {text[:80]!r}")
    heat = word(table(output, "Module Info"), "Temperature [C]")
    limits = _LIMITS.search(heat)
    return Cable(
        pci, hca, word(link, "State"), word(link, "Speed"), word(link, "Width"), word(link, "FEC"),
        number(word(errors, "Raw Physical BER")), number(word(errors, "Effective Physical BER")),
        number(heat), float(limits[1]) if limits else None,
        word(table(output, "Troubleshooting Info"), "Recommendation"),
    )  # fmt: skip
