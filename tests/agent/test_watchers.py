"""The kernel's log as an event source: who is woken, what is lost, what cannot be read."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from nodetriage.agent.core.record_queue import Position, RecordQueue
from nodetriage.agent.machine.kmsg import KernelLog
from nodetriage.agent.watchers import KernelLogWatcher, Watchers
from nodetriage.checks.host import cpu_mce
from nodetriage.checks.model import Check

XID: Check[Any, Any] = Check(
    name="gpu_xid",
    read=lambda h: None,
    judge=lambda n, b, p: (),
    policy=None,
    faults=(),
    kernel_pattern=r"NVRM: Xid \(PCI:0000",
)


class Heard:
    """What a source told."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.losses = 0

    def wake(self, names: Any) -> None:
        self.woken += names

    def lost(self) -> None:
        self.losses += 1


def follow(path: Path, body: Callable[[KernelLogWatcher, Heard, RecordQueue], Awaitable[None]], **fields: Any) -> None:
    async def main() -> None:
        heard, record_queue = Heard(), RecordQueue((XID,), Position("b"))
        user = fields.pop("accept_user_records", False)
        source = KernelLogWatcher(path, user, record_queue, heard.wake, heard.lost, **fields)
        source.start()
        try:
            await body(source, heard, record_queue)
        finally:
            source.stop()

    asyncio.run(main())


def test_old_and_new_records_wake_their_check_and_user_space_is_not_believed(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    os.mkfifo(log)
    writer = os.open(log, os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"3,1,10,-;NVRM: Xid (PCI:0000:01:00): 79\n")

    async def body(source: KernelLogWatcher, heard: Heard, record_queue: RecordQueue) -> None:
        assert heard.woken == ["gpu_xid"]  # what was there before the start
        os.write(
            writer, b"11,2,20,-;NVRM: Xid (PCI:0000:01:00): 79, says a user\n6,3,30,-;usb 1-1\n\xff\xfe\x00garbage\n"
        )
        os.write(writer, b"3,9,40,-;NVRM: Xid (PCI:0000:01:00): 48\n")
        await eventually(lambda: len(heard.woken) == 2)
        assert [r.text for r in record_queue.take("gpu_xid")] == [
            "NVRM: Xid (PCI:0000:01:00): 79",
            "NVRM: Xid (PCI:0000:01:00): 48",
        ]
        assert source.trouble == ""

    try:
        follow(log, body)
    finally:
        os.close(writer)


def test_a_check_that_joins_the_records_of_a_report_is_woken_when_they_have_come(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    os.mkfifo(log)
    writer = os.open(log, os.O_RDWR | os.O_NONBLOCK)
    said = b"{1}[Hardware Error]: "

    async def main() -> None:
        heard, record_queue = Heard(), RecordQueue((cpu_mce.CHECK,), Position("b"))
        source = KernelLogWatcher(log, False, record_queue, heard.wake, heard.lost)
        source.start()
        try:
            os.write(writer, b"3,1,10,-;" + said + b"event severity: fatal\n")
            await eventually(lambda: record_queue.waiting("cpu_mce"))
            assert heard.woken == []
            os.write(writer, b"3,2,20,-;" + said + b"  section_type: PCIe error\n")
            await eventually(lambda: "cpu_mce" in heard.woken)
            assert len(record_queue.take("cpu_mce")) == 2
        finally:
            source.stop()

    try:
        asyncio.run(main())
    finally:
        os.close(writer)


def test_an_overrun_is_told_at_once_and_counted_once(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    os.mkfifo(log)
    answers: list[bytes | OSError] = [
        b"3,1,10,-;NVRM: Xid (PCI:0000:01:00): 79\n",
        OSError(errno.EINVAL, "too long"),
        b"3,9,10,-;NVRM: Xid (PCI:0000:01:00): 48\n",
    ]

    def read(fd: int, size: int) -> bytes:
        if not answers:
            raise BlockingIOError
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def body(source: KernelLogWatcher, heard: Heard, record_queue: RecordQueue) -> None:
        assert heard.losses == 1
        assert source.take_losses() == (1, 1)
        assert source.take_losses() == (0, 0)
        assert len(record_queue.take("gpu_xid")) == 2

    follow(log, body, open_log=lambda path, after: KernelLog(path, after, read=read))


def test_a_log_that_fails_later_is_a_trouble_that_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    os.mkfifo(log)

    def read(fd: int, size: int) -> bytes:
        raise OSError(errno.EPERM, "Operation not permitted")

    async def body(source: KernelLogWatcher, heard: Heard, record_queue: RecordQueue) -> None:
        assert "kmsg: Operation not permitted" in source.trouble

    follow(log, body, open_log=lambda path, after: KernelLog(path, after, read=read))


DEVICES: Check[Any, Any] = Check(
    name="devices", read=lambda h: None, judge=lambda n, b, p: (), policy=None, faults=(), wakes_on=("udev:mem",)
)
MEM = Path("/sys/class/mem")


@pytest.mark.skipif(not os.access(MEM / "null/uevent", os.W_OK), reason="device events need root")
def test_devices_that_come_together_wake_once_and_a_changed_one_does_not() -> None:
    async def main() -> list[str]:
        woken: list[str] = []
        source = Watchers((XID, DEVICES), woken.append)
        source.start()
        try:
            (MEM / "zero/uevent").write_text("change")
            for name in ("null", "zero", "full"):
                (MEM / name / "uevent").write_text("add")
            await eventually(lambda: "udev:mem" in woken)
            (MEM / "zero/uevent").write_text("change")
            (MEM / "null/uevent").write_text("online")
            await eventually(lambda: woken.count("udev:mem") == 2)
        finally:
            source.stop()
        return [source for source in woken if source != "mounts"]

    assert asyncio.run(main()) == ["udev:mem", "udev:mem"]
