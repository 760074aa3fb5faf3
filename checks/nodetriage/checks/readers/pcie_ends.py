"""Width (lanes) and speed (GT/s) of PCIe links, from the device and from the port above it.

current_link_width, current_link_speed, max_link_width and max_link_speed (Documentation/ABI/testing/sysfs-bus-pci).
"""

import re
from dataclasses import dataclass, replace

from nodetriage.checks.model import Host
from nodetriage.checks.readers.pci import PciPart
from nodetriage.checks.readers.sysfs import error_line, optional_count, optional_text

_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s(?: PCIe)?")
_LANES = 32  # of the widest link; a device that does not answer shows 63 or 255


@dataclass(frozen=True, slots=True)
class Link:
    """One link; 0 where the kernel does not know a value. `error` is set where a file holds no width or speed."""

    address: str
    kind: str
    port: str
    width: int = 0
    speed_gts: float = 0
    most_width: int = 0  # that both ends support
    most_speed_gts: float = 0
    error: str = ""
    slow_runs: int = 0  # the last two come from earlier runs
    widest: int = 0


def read_link(host: Host, component: PciPart) -> Link:
    """The link of a device. A file that cannot be read is its `error`."""
    link = Link(component.address, component.kind, component.port)
    folder = component.folder
    try:
        own = _ends(host, folder, "max")
        width, speed_gts = now = _ends(host, folder, "current")
        # For a device that runs at its own maximum the other end plays no part.
        above = _ends(host, component.port_folder, "max") if component.port and now != own else own
    except (OSError, ValueError) as error:
        return replace(link, error=error_line(error, folder))
    return replace(
        link,
        width=width,
        speed_gts=speed_gts,
        most_width=int(least(own[0], above[0])),
        most_speed_gts=least(own[1], above[1]),
    )


def _ends(host: Host, folder: str, which: str) -> tuple[int, float]:
    """Lanes and GT/s. Raises OSError, ValueError."""
    width = optional_count(host, f"{folder}/{which}_link_width") or 0
    text = optional_text(host, path := f"{folder}/{which}_link_speed")
    found = _SPEED.fullmatch(text)
    if not found and text and not text.startswith("Unknown"):
        raise ValueError(f"{path}: expected a speed in GT/s, got {text[:40]!r}")
    return (width if width <= _LANES else 0), (float(found[1]) if found else 0)


def least(*values: float) -> float:
    """The smallest value that is known; 0 where none is."""
    return min((value for value in values if value), default=0)
