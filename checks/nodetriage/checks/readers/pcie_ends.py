"""PCIe links as both of their ends tell them (Documentation/ABI/testing/sysfs-bus-pci)."""

import re
from dataclasses import dataclass, replace

from nodetriage.checks.model import Host
from nodetriage.checks.readers.pci import PciPart
from nodetriage.checks.readers.sysfs import count_if_told, text_if_told, told

_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s(?: PCIe)?")
_LANES = 32  # the widest link there is; 63 and 255 are what a device that does not answer shows


@dataclass(frozen=True, slots=True)
class Link:
    """Speeds in GT/s; 0 where the kernel does not know. `error` is set where the device's files make no sense."""

    address: str
    kind: str
    port: str
    width: int = 0
    speed_gts: float = 0
    most_width: int = 0  # what both ends can
    most_speed_gts: float = 0
    error: str = ""
    slow_runs: int = 0  # the last two are the memory's
    widest: int = 0


def read_link(host: Host, component: PciPart) -> Link:
    """What cannot be read is the link's `error`."""
    link = Link(component.address, component.kind, component.port)
    folder = component.folder
    try:
        own = _ends(host, folder, "max")
        width, speed_gts = now = _ends(host, folder, "current")
        # A device at its own best needs no look at the other end.
        above = _ends(host, component.port_folder, "max") if component.port and now != own else own
    except (OSError, ValueError) as error:
        return replace(link, error=told(error, folder))
    return replace(
        link,
        width=width,
        speed_gts=speed_gts,
        most_width=int(least(own[0], above[0])),
        most_speed_gts=least(own[1], above[1]),
    )


def _ends(host: Host, folder: str, which: str) -> tuple[int, float]:
    """Lanes and GT/s. Raises OSError, ValueError."""
    width = count_if_told(host, f"{folder}/{which}_link_width") or 0
    text = text_if_told(host, path := f"{folder}/{which}_link_speed")
    found = _SPEED.fullmatch(text)
    if not found and text and not text.startswith("Unknown"):
        raise ValueError(f"{path}: expected a speed in GT/s, got {text[:40]!r}")
    return (width if width <= _LANES else 0), (float(found[1]) if found else 0)


def least(*values: float) -> float:
    """Of those that are known, the smallest; 0 where none is."""
    return min((value for value in values if value), default=0)
