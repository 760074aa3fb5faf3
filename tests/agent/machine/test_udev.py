"""Devices that change: real events of the kernel, asked for through a device that does not mind."""

import os
import select
import time
from pathlib import Path

import pytest

from nodetriage.agent.machine.udev import DeviceEvent, DeviceEvents

NULL = Path("/sys/class/mem/null/uevent")
ZERO = Path("/sys/class/mem/zero/uevent")

pytestmark = pytest.mark.skipif(
    not os.access(NULL, os.W_OK), reason="/sys/class/mem/null/uevent cannot be written: needs root"
)


def read_until(events: DeviceEvents, name: str) -> list[DeviceEvent]:
    deadline = time.monotonic() + 60
    found: list[DeviceEvent] = []
    while not any(event.name == name for event in found):
        assert time.monotonic() < deadline, f"only {found} came"
        select.select([events.fd], [], [], 0.1)
        found += events.read()
    return found


def test_a_change_of_a_device_is_told_with_its_name() -> None:
    events = DeviceEvents(("mem",))
    assert events.read() == []

    NULL.write_text("change")

    assert DeviceEvent("change", "mem", "null", "/sys/devices/virtual/mem/null") in read_until(events, "null")


def test_other_subsystems_are_not_heard() -> None:
    events, others = DeviceEvents(("mem",)), DeviceEvents(("infiniband", "nvme"))

    ZERO.write_text("change")
    read_until(events, "zero")

    assert others.read() == []


def test_many_events_at_once_all_arrive() -> None:
    events = DeviceEvents(("mem",))

    for _ in range(600):
        NULL.write_text("change")
    ZERO.write_text("change")

    assert sum(event.name == "null" for event in read_until(events, "zero")) >= 600
