"""Kernel records between the log and the checks: none twice, none missed, none for ever."""

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.core.record_queue import PENDING_LIMIT, TRIES, Position, RecordQueue
from nodetriage.checks.model import Check, KernelRecord


def check(name: str, pattern: str | None) -> Check[Any, Any]:
    return Check(
        name=name, read=lambda h: None, judge=lambda n, b, p: (), policy=None, faults=(), kernel_pattern=pattern
    )


XID, EXT4 = check("gpu_xid", r"NVRM: Xid \(PCI:0000"), check("fs", r"(?i)ext4-fs error \(device")
CHECKS = (XID, EXT4, check("quiet", None))


def record(seq: int, text: str = "NVRM: Xid (PCI:0000:01:00): 79") -> KernelRecord:
    return KernelRecord(seq, seq, 3, text)


def seqs(records: tuple[KernelRecord, ...]) -> list[int]:
    return [r.seq for r in records]


def test_a_record_wakes_the_checks_whose_pattern_it_matches() -> None:
    record_queue = RecordQueue(CHECKS, Position("b"))
    assert record_queue.offer(record(1)) == ("gpu_xid",)
    assert record_queue.offer(record(2, "EXT4-FS ERROR (DEVICE sda1)")) == ("fs",)
    assert record_queue.offer(record(3, "usb 1-1: new device")) == ()
    assert seqs(record_queue.take("gpu_xid")) == [1]
    assert record_queue.take("quiet") == ()


def test_a_record_that_only_wakes_a_check_is_not_its_to_judge_and_wakes_it_once() -> None:
    woken = dataclasses.replace(check("gpu_lost", None), kernel_wakes=r"NVRM: Xid \(PCI:0000:01:00\): 79")
    record_queue = RecordQueue((*CHECKS, woken), Position("b"))
    assert record_queue.offer(record(1)) == ("gpu_lost", "gpu_xid")
    assert record_queue.take("gpu_lost") == ()
    assert not record_queue.waiting("gpu_lost")
    after = RecordQueue((*CHECKS, woken), record_queue.position)
    assert after.offer(record(1)) == ("gpu_xid",)  # which has not judged it yet


def test_a_check_is_waiting_from_the_record_until_it_is_judged() -> None:
    record_queue = RecordQueue(CHECKS, Position("b"))
    assert not record_queue.waiting("gpu_xid")
    record_queue.offer(record(1))
    assert record_queue.waiting("gpu_xid")
    assert not record_queue.waiting("fs")
    assert not record_queue.waiting("quiet")
    record_queue.take("gpu_xid")
    assert record_queue.waiting("gpu_xid")
    record_queue.judged("gpu_xid")
    assert not record_queue.waiting("gpu_xid")


def test_after_a_restart_only_what_was_not_judged_comes_again() -> None:
    record_queue = RecordQueue(CHECKS, Position("b"))
    record_queue.offer(record(1))
    record_queue.take("gpu_xid")
    record_queue.judged("gpu_xid")
    record_queue.offer(record(2, "EXT4-fs error (device sda1)"))
    record_queue.offer(record(3))
    record_queue.take("fs")  # killed while these are being judged
    after = RecordQueue(CHECKS, record_queue.position)
    assert after.read_after == 1
    for old in (record(1), record(2, "EXT4-fs error (device sda1)"), record(3)):
        after.offer(old)
    assert seqs(after.take("gpu_xid")) == [3]
    assert seqs(after.take("fs")) == [2]


def test_a_check_that_is_new_reads_the_boot_from_its_beginning() -> None:
    record_queue = RecordQueue((XID,), Position("b", scanned=50, checks=("gpu_xid",)))
    assert record_queue.read_after == 50
    grown = RecordQueue(CHECKS, record_queue.position)
    assert grown.read_after is None
    grown.offer(record(3, "EXT4-fs error (device sda1)"))
    grown.offer(record(4))
    assert seqs(grown.take("fs")) == [3]
    assert grown.take("gpu_xid") == ()


def test_records_of_a_run_that_hung_come_again_before_the_newer_ones() -> None:
    record_queue = RecordQueue(CHECKS, Position("b"))
    record_queue.offer(record(1))
    record_queue.take("gpu_xid")
    record_queue.offer(record(2))
    for _ in range(10):
        record_queue.not_judged("gpu_xid", blame=False)
        assert seqs(record_queue.take("gpu_xid")) == [1, 2]


def test_records_that_break_their_check_are_given_up_and_counted() -> None:
    record_queue = RecordQueue(CHECKS, Position("b"))
    record_queue.offer(record(1))
    for _ in range(TRIES):
        assert seqs(record_queue.take("gpu_xid")) == [1]
        record_queue.not_judged("gpu_xid", blame=True)
    assert record_queue.take("gpu_xid") == ()
    assert record_queue.take_lost() == {"gpu_xid": 1}
    assert record_queue.take_lost() == {}


def test_a_storm_under_a_hung_check_is_bounded_and_counted() -> None:
    record_queue = RecordQueue(CHECKS, Position("b"))
    for seq in range(PENDING_LIMIT + 7):
        record_queue.offer(record(seq))
    assert len(record_queue.take("gpu_xid")) == PENDING_LIMIT
    assert record_queue.take_lost() == {"gpu_xid": 7}


@given(st.lists(st.sampled_from(("xid", "fs", "noise", "run", "hang", "restart")), max_size=60))
def test_every_record_is_judged_exactly_once_whatever_happens(steps: list[str]) -> None:
    texts = {"xid": "NVRM: Xid (PCI:0000:01:00): 79", "fs": "EXT4-fs error (device sda1)", "noise": "hello"}
    log: list[KernelRecord] = []
    record_queue, saved = RecordQueue(CHECKS, Position("b")), Position("b")
    judged: dict[str, list[int]] = {"gpu_xid": [], "fs": []}
    for step in [*steps, "run"]:
        if step in texts:
            log.append(record(len(log), texts[step]))
            record_queue.offer(log[-1])
        elif step == "restart":
            record_queue = RecordQueue(CHECKS, saved)
            after = -1 if record_queue.read_after is None else record_queue.read_after
            for old in log[after + 1 :]:
                record_queue.offer(old)
        for name in judged if step in ("run", "hang") else ():
            taken = record_queue.take(name)
            if step == "hang":
                record_queue.not_judged(name, blame=False)
                continue
            judged[name] += seqs(taken)
            record_queue.judged(name)
            saved = record_queue.position  # committed with what was judged
    assert judged["gpu_xid"] == [r.seq for r in log if "Xid" in r.text]
    assert judged["fs"] == [r.seq for r in log if "EXT4" in r.text]
