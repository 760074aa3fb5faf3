"""Width (lanes) and speed (GT/s) of PCIe links, from both of their ends, and whether the lower end still answers.

current_link_width, current_link_speed, max_link_width and max_link_speed (Documentation/ABI/testing/sysfs-bus-pci). A
device that is off the bus answers with ones only: the kernel shows 63 or 255 lanes, or refuses the file (EINVAL) where
it knows, and `config` holds ones only. A device that the kernel has suspended answers likewise, which is no fault.
"""

import errno
import re
from dataclasses import dataclass, replace

from nodetriage.checks.model import Host
from nodetriage.checks.readers.pci import Hop
from nodetriage.checks.readers.sysfs import REFUSED, count, error_line, optional_text

_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s(?: PCIe)?")
_LANES = 32  # of the widest link
_HEADER = 64  # bytes of the configuration space that each device has
_NO_BYTE = "\ufffd"  # what a byte of ones is in text


@dataclass(frozen=True, slots=True)
class Link:
    """One link; 0 where the kernel does not know a value. `error` is set where a file holds no width or speed."""

    address: str  # of the lower end
    kind: str
    port: str  # the upper end
    width: int = 0
    speed_gts: float = 0
    most_width: int = 0  # that both ends support
    most_speed_gts: float = 0
    error: str = ""
    behind: tuple[str, ...] = ()  # functions whose traffic crosses it
    silent: str = ""  # how the lower end shows that it is off the bus
    slow_runs: int = 0  # the last three come from earlier runs
    widest: int = 0
    fastest_gts: float = 0


def read_link(host: Host, hop: Hop) -> Link:
    """One link. A file that cannot be read is its `error`."""
    link = Link(hop.address, hop.kind, hop.port, behind=hop.behind)
    folder = hop.folder
    try:
        own = _ends(host, folder, "max")
        width, speed_gts = now = _ends(host, folder, "current")
        if not 0 < width <= _LANES:
            silent = _silence(host, folder, width)
            if silent or width:
                return replace(link, silent=silent)
        # For a device that runs at its own maximum the other end plays no part.
        above = _ends(host, hop.port_folder, "max") if hop.port and now != own else own
    except (OSError, ValueError) as error:
        return replace(link, error=error_line(error, folder))
    return replace(
        link,
        width=width,
        speed_gts=speed_gts,
        most_width=int(least(_known(own[0]), _known(above[0]))),
        most_speed_gts=least(own[1], above[1]),
    )


def _ends(host: Host, folder: str, which: str) -> tuple[int, float]:
    """Lanes and GT/s; lanes are -1 where the file refuses. Raises OSError, ValueError."""
    try:
        width = count(host, f"{folder}/{which}_link_width")
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        width = 0 if error.errno == errno.ENOENT else -1
    text = optional_text(host, path := f"{folder}/{which}_link_speed")
    found = _SPEED.fullmatch(text)
    if not found and text and not text.startswith("Unknown"):
        raise ValueError(f"{path}: expected a speed in GT/s, got {text[:40]!r}")
    return width, (float(found[1]) if found else 0)


def _known(width: int) -> int:
    return width if 0 < width <= _LANES else 0


def _silence(host: Host, folder: str, width: int) -> str:
    """How the device shows that it is off the bus; "" where it does not, or where it sleeps. Raises OSError."""
    if optional_text(host, f"{folder}/power/runtime_status").startswith("suspend"):
        return ""
    if width > _LANES:
        return f"current_link_width is {width}"
    try:
        header = host.text(f"{folder}/config")[:_HEADER]
    except OSError as error:
        if error.errno not in (*REFUSED, errno.ENODEV, errno.EIO):
            raise
        header = ""
    if header and not header.strip(_NO_BYTE):
        return "the configuration space holds ones only"
    return "current_link_width cannot be read" if width < 0 and not header else ""


def least(*values: float) -> float:
    """The smallest value that is known; 0 where none is."""
    return min((value for value in values if value), default=0)
