"""Which PCI devices are there, and which of them still answer, as witnesses for what a kernel line says of one.

Source: /sys/bus/pci/devices and `current_link_width` (Documentation/ABI/testing/sysfs-bus-pci), which the kernel reads
from the device's own configuration space: a device that is off the bus answers with ones only, which is width 63.
"""

from collections.abc import Collection
from dataclasses import dataclass

from nodetriage.checks.model import Host

_LANES = 32  # the widest link there is


@dataclass(frozen=True, slots=True)
class Presence:
    """PCI addresses. What is neither `silent` nor `answering` was not asked, or has no such file."""

    on_bus: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()  # on the bus, and its configuration space cannot be read
    answering: tuple[str, ...] = ()


NOT_LOOKED = Presence()


def read_presence(host: Host, suspects: Collection[str]) -> Presence:
    """`suspects` are the addresses that are asked; all others are only looked for."""
    devices = host.pci_devices()
    widths = {d.address: _width(host, d.folder) for d in devices if d.address in suspects}
    return Presence(
        tuple(d.address for d in devices),
        tuple(address for address, width in widths.items() if width is not None and not 0 <= width <= _LANES),
        tuple(address for address, width in widths.items() if width is not None and 0 < width <= _LANES),
    )


def driver_devices(host: Host) -> Presence:
    """The devices to which NVIDIA's drivers are bound, cheaply; all on the bus where none of the drivers is listed."""
    bound = host.glob("/sys/bus/pci/drivers/nvidia*/[0-9a-f]*:*")
    return Presence(tuple(sorted({path.name.lower() for path in bound or host.glob("/sys/bus/pci/devices/*")})))


def _width(host: Host, folder: str) -> int | None:
    """-1 where the kernel cannot read it from the device; None where it is not known."""
    try:
        text = host.text(f"{folder}/current_link_width")
    except FileNotFoundError:
        return None
    except OSError:
        return -1
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None
