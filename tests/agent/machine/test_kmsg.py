"""Bytes of /dev/kmsg to records, and the reader on each thing that can stand in for it."""

import errno
import os
import pty
import select
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.kmsg import KernelLog, Overrun, believed, parse, replay, whole_log
from nodetriage.checks.model import KernelRecord

needs_kmsg = pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="/dev/kmsg: needs root")

XID = "NVRM: Xid (PCI:0000:3a:00): 79, GPU has fallen off the bus."


def read_until(log: KernelLog, enough: Callable[[list[KernelRecord | Overrun]], bool]) -> list[KernelRecord | Overrun]:
    deadline = time.monotonic() + 60
    found: list[KernelRecord | Overrun] = []
    while not enough(found):
        assert time.monotonic() < deadline, f"only {found!r} came"
        select.select([log.fd], [], [], 0.05)
        found += log.read()
    return found


@pytest.fixture
def opened() -> Iterator[Callable[..., KernelLog]]:
    logs: list[KernelLog] = []

    def opener(path: str | Path, after_seq: int | None = None, **fakes: Any) -> KernelLog:
        logs.append(KernelLog(str(path), after_seq, **fakes))
        return logs[-1]

    yield opener
    for log in logs:
        log.close()


def test_a_record_has_priority_number_stamp_and_text() -> None:
    assert parse(b"4,1227,437812449932,-;" + XID.encode() + b"\n") == KernelRecord(1227, 437812449932, 4, XID)


def test_extra_header_fields_and_continuation_lines_do_not_reach_the_text() -> None:
    data = b"4,7,9,c,caller=T1946;pcieport 0000:00:1c.0: AER\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00:1c.0\n"

    assert parse(data) == KernelRecord(7, 9, 4, "pcieport 0000:00:1c.0: AER", continues=True)


def test_escapes_become_what_was_written() -> None:
    record = parse(b"3,1,2,-;two\\x0alines, \\xc3\\xa9, a back\\x5cx41slash, \\xff\n")

    assert record is not None
    assert record.text == "two\nlines, é, a back\\x41slash, �"


@pytest.mark.parametrize(
    "garbage", [b"", b"\n", b";", b"hello", b"4,x,3,-;a", b"4,1,2,-", b"\x00\xff", b"4" * 40, b"-1,2,3,-;a"]
)
def test_garbage_is_no_record(garbage: bytes) -> None:
    assert parse(garbage) is None


@given(st.binary(max_size=300))
def test_no_bytes_make_the_parser_raise(data: bytes) -> None:
    parse(data)
    list(replay(data))


@given(
    st.integers(0, 191),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**63),
    st.sampled_from(["-", "c", "-,caller=C12", "+,caller=T1,x=y"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
)
def test_what_the_kernel_wrote_is_read_back(priority: int, seq: int, at_us: int, flags: str, text: str) -> None:
    escaped = "".join(chr(b) if 32 <= b < 127 and b != ord("\\") else f"\\x{b:02x}" for b in text.encode())

    record = parse(f"{priority},{seq},{at_us},{flags};{escaped}\n DEVICE=c1:1\n".encode())

    assert record == KernelRecord(seq, at_us, priority, text.rstrip(), continues=flags[0] in "c+")


@given(st.lists(st.binary(max_size=60).map(lambda b: b.replace(b"\n", b"")), max_size=8))
def test_garbage_lines_lose_none_of_the_records_around_them(lines: list[bytes]) -> None:
    log = b"".join(line + b"\n4,%d,5,-;%s\n" % (i, XID.encode()) for i, line in enumerate(lines, 1000))

    assert [r.seq for r in replay(log) if r.text == XID and r.at_us == 5] == list(range(1000, 1000 + len(lines)))


def test_only_the_kernel_is_believed_unless_told() -> None:
    forged = KernelRecord(1, 2, 11, XID)

    assert not believed(forged)
    assert believed(forged, accept_user_records=True)
    assert believed(KernelRecord(1, 2, 7, XID))


def test_a_ten_kilobyte_line_and_binary_bytes_do_not_hide_the_next_record(
    tmp_path: Path, opened: Callable[..., KernelLog]
) -> None:
    (tmp_path / "kmsg").write_bytes(b"4,1,1,-;" + b"x" * 10240 + b"\n\x00\xff\xfe\n4,3,1,-;" + XID.encode() + b"\n")

    records = opened(tmp_path / "kmsg").read()

    assert [len(r.text) for r in records if isinstance(r, KernelRecord)] == [10240, 3, len(XID)]


def test_a_line_without_end_is_cut_and_not_kept_in_memory(tmp_path: Path, opened: Callable[..., KernelLog]) -> None:
    (tmp_path / "kmsg").write_bytes(b"y" * 200_000 + b"\n4,9,1,-;" + XID.encode() + b"\n")

    records = opened(tmp_path / "kmsg").read()

    assert isinstance(records[-1], KernelRecord)
    assert records[-1].text == XID


def test_a_saved_log_goes_on_after_the_last_record_that_was_seen(
    tmp_path: Path, opened: Callable[..., KernelLog]
) -> None:
    (tmp_path / "kmsg").write_bytes(b"".join(b"6,%d,0,-;line %d\n" % (i, i) for i in range(5)))

    assert [r.seq for r in opened(tmp_path / "kmsg", 2).read() if isinstance(r, KernelRecord)] == [3, 4]


def test_a_fifo_never_ends_and_several_lines_a_read_are_several_records(
    tmp_path: Path, opened: Callable[..., KernelLog]
) -> None:
    os.mkfifo(tmp_path / "kmsg")
    log = opened(tmp_path / "kmsg")
    assert log.read() == []

    (tmp_path / "kmsg").write_bytes(b"<3>one\n<11>two\nthr")
    (tmp_path / "kmsg").write_bytes(b"ee\n")

    found = read_until(log, lambda records: len(records) == 3)
    assert [(r.priority, r.text) for r in found if isinstance(r, KernelRecord)] == [
        (3, "one"),
        (11, "two"),
        (6, "three"),
    ]


def test_a_pty_gives_a_record_a_line(opened: Callable[..., KernelLog]) -> None:
    kernel, agent = pty.openpty()
    attributes = termios.tcgetattr(agent)
    attributes[0] &= ~(termios.ICRNL | termios.IXON)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~(termios.ECHO | termios.ISIG)
    termios.tcsetattr(agent, termios.TCSANOW, attributes)
    try:
        log = opened(os.ttyname(agent))
        log.seek_end()
        os.write(kernel, b"4,12,99,-;" + XID.encode() + b"\n SUBSYSTEM=pci\nno header\n")

        found = read_until(log, lambda records: len(records) == 2)

        assert found == [KernelRecord(12, 99, 4, XID), KernelRecord(13, -1, 6, "no header")]
    finally:
        os.close(kernel)
        os.close(agent)
    assert log.read() == []


def test_numbers_grow_even_where_lines_without_a_header_took_those_of_later_records(
    tmp_path: Path, opened: Callable[..., KernelLog]
) -> None:
    """A check that has judged up to a number is told of no record below it."""
    (tmp_path / "log").write_bytes(b"no header\nnone here\n,,,;\n4,1,99,-;" + XID.encode() + b"\n4,7,100,-;more\n")

    found = opened(tmp_path / "log").read()

    assert [r.seq for r in found if isinstance(r, KernelRecord)] == [0, 1, 2, 3, 7]
    assert found[3] == KernelRecord(3, 99, 4, XID)


@pytest.mark.kmsg
@needs_kmsg
def test_a_line_written_to_the_real_log_is_read_and_not_believed(opened: Callable[..., KernelLog]) -> None:
    mark = f"nodetriage test {uuid.uuid4()}"
    log = opened("/dev/kmsg")
    log.seek_end()
    write_kmsg(f"<3>{mark} first")

    found = read_until(log, lambda records: any(mark in str(r) for r in records))
    record = next(r for r in found if isinstance(r, KernelRecord) and mark in r.text)

    assert record.text == f"{mark} first"
    assert record.priority == 11
    assert not believed(record)
    assert mark not in str(whole_log("/dev/kmsg"))
    assert mark in str(whole_log("/dev/kmsg", accept_user_records=True))

    # A second reader that resumes after it neither repeats it nor misses the next one.
    write_kmsg(f"<3>{mark} second")
    resumed = opened("/dev/kmsg", record.seq)
    again = read_until(resumed, lambda records: any(f"{mark} second" in str(r) for r in records))
    assert f"{mark} first" not in str(again)
    assert not any(isinstance(r, Overrun) for r in again)


@needs_kmsg
def test_records_that_the_kernel_overwrote_are_counted(opened: Callable[..., KernelLog]) -> None:
    log = fake_kmsg(opened, [b"6,10,0,-;a\n", OSError(errno.EPIPE, ""), b"6,15,0,-;b\n"])

    assert log.read() == [KernelRecord(10, 0, 6, "a"), Overrun(4), KernelRecord(15, 0, 6, "b")]


@needs_kmsg
def test_an_overrun_before_the_first_record_is_told_without_a_number(opened: Callable[..., KernelLog]) -> None:
    log = fake_kmsg(opened, [OSError(errno.EPIPE, ""), b"6,15,0,-;b\n"])

    assert log.read() == [Overrun(0), KernelRecord(15, 0, 6, "b")]


@needs_kmsg
def test_records_lost_while_no_agent_ran_are_counted(opened: Callable[..., KernelLog]) -> None:
    log = fake_kmsg(opened, [b"6,15,0,-;b\n"], after_seq=4)

    assert log.read() == [Overrun(10), KernelRecord(15, 0, 6, "b")]


@needs_kmsg
def test_a_record_too_long_for_the_buffer_is_one_lost_and_the_next_is_read(opened: Callable[..., KernelLog]) -> None:
    log = fake_kmsg(opened, [b"6,10,0,-;a\n", OSError(errno.EINVAL, ""), b"6,12,0,-;b\n"])

    assert log.read() == [KernelRecord(10, 0, 6, "a"), Overrun(1), KernelRecord(12, 0, 6, "b")]


@needs_kmsg
def test_any_other_error_reaches_the_caller(opened: Callable[..., KernelLog]) -> None:
    with pytest.raises(PermissionError):
        fake_kmsg(opened, [OSError(errno.EPERM, "")]).read()


def fake_kmsg(
    opened: Callable[..., KernelLog], script: list[bytes | OSError], after_seq: int | None = None
) -> KernelLog:
    """The real device, open, with answers that cannot be had from it at will."""
    answers = iter([*script, BlockingIOError(errno.EAGAIN, "")])

    def read(_fd: int, _size: int) -> bytes:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    return opened("/dev/kmsg", after_seq, read=read)


def write_kmsg(line: str) -> None:
    fd = os.open("/dev/kmsg", os.O_WRONLY)
    try:
        os.write(fd, f"{line}\n".encode())  # without the newline it is not given out before the next record
    finally:
        os.close(fd)
