"""The only importer of pyudev: the kernel's events about devices that come, go or change.

Source: libudev's udev_monitor, netlink group "kernel", which works without udevd.
"""

from collections.abc import Collection
from dataclasses import dataclass

import pyudev

RECEIVE_BUFFER_BYTES = 4 << 20  # room for a storm of events, as when an NVSwitch resets
BATCH = 256


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """One uevent. `name` is the device's name in its subsystem: a PCI address, mlx5_0, nvme0n1."""

    action: str  # add, remove, change, bind, unbind, move, online, offline
    subsystem: str
    name: str
    path: str  # under /sys


class DeviceEvents:
    """Poll `fd` and call `read()` when it is ready."""

    def __init__(self, subsystems: Collection[str]) -> None:
        """Follows these subsystems only; the kernel filters. Raises OSError where there is no netlink."""
        self._monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        for subsystem in subsystems:
            self._monitor.filter_by(subsystem)
        self._monitor.set_receive_buffer_size(RECEIVE_BUFFER_BYTES)
        self._monitor.start()

    @property
    def fd(self) -> int:
        return int(self._monitor.fileno())

    def read(self) -> list[DeviceEvent]:
        """New events, oldest first, at most BATCH. Never blocks."""
        found: list[DeviceEvent] = []
        while len(found) < BATCH:
            device = self._monitor.poll(timeout=0)
            if device is None:
                break
            found.append(
                DeviceEvent(device.action or "", device.subsystem or "", device.sys_name or "", device.sys_path)
            )
        return found
