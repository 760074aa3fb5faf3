"""The kernel's log: bytes of /dev/kmsg to records, and a reader that resumes where it was and reports what it lost.

Source: Documentation/ABI/testing/dev-kmsg. A record is `priority,seq,usec,flags[,more];text`, then lines that begin
with a space and hold KEY=value. Bytes that are not printable come as \\xNN.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import KernelRecord

RECORD_BYTES = 32768  # the kernel's own limit is below 10 KB; a shorter buffer gives EINVAL and loses the record
_FACILITY_USER = 8  # priorities below are facility 0: the kernel. User space cannot forge those.
_KMSG_DEVICE = os.makedev(1, 11)
_PRIORITY_INFO = 6
_NO_STAMP = -1

_HEADER = re.compile(rb"(\d{1,20}),(\d{1,20}),(\d{1,20}),([^,;\n]*)[^;\n]*;")
_PRIORITY = re.compile(rb"<(\d{1,3})>")
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class Overrun:
    """The kernel overwrote records before they were read; `lost` of them, 0 where their number is not known."""

    lost: int


def parse(data: bytes) -> KernelRecord | None:
    """One record of /dev/kmsg; None where the bytes are no such record. Never raises."""
    header = _HEADER.match(data)
    if header is None:
        return None
    priority, seq, at_us = map(int, header.group(1, 2, 3))
    text, _, _properties = data[header.end() :].partition(b"\n")
    return KernelRecord(seq, at_us, priority, _plain(text), continues=header[4] in (b"c", b"+"))


def from_line(line: bytes, seq: int) -> KernelRecord:
    """A line without a header, as one writes it to /dev/kmsg: `<priority>text`, or the text alone."""
    found = _PRIORITY.match(line)
    if found is None:
        return KernelRecord(seq, _NO_STAMP, _PRIORITY_INFO, _plain(line))
    return KernelRecord(seq, _NO_STAMP, int(found[1]), _plain(line[found.end() :]))


def _plain(text: bytes) -> str:
    """The text as it was written: escapes undone, then UTF-8 with replacement characters."""
    if b"\\x" in text:
        text = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text)
    return text.decode("utf-8", "replace").rstrip()


def believed(record: KernelRecord, accept_user_records: bool = False) -> bool:
    """Whether the record is the kernel's own, from its first character.

    Whoever may write to /dev/kmsg can write any text, but not facility 0. A piece that continues a line (pr_cont, split
    off because another record came between) may begin with text that a user chose, as the name of a control group.
    """
    return accept_user_records or (record.priority < _FACILITY_USER and not record.continues)


def replay(data: bytes) -> Iterator[KernelRecord]:
    """The records of a saved log. A line without a header is a record of its own, of the kernel, without a stamp."""
    after = -1
    for line in data.split(b"\n"):
        if not line.strip() or (line.startswith(b" ") and after >= 0):
            continue  # a KEY=value line of the record before
        record = parse(line) or from_line(line, after + 1)
        after = record.seq
        yield record


class KernelLog:
    """Reads the kernel's log from a file descriptor that does not block.

    /dev/kmsg gives a record a read. A pty, a FIFO or a regular file gives lines: a record each; those without a
    header, or with a number that does not grow, are numbered onward. Give `fd` to a poller and call `read()` when it is
    ready.
    """

    def __init__(self, path: str, after_seq: int | None = None, *, read: Callable[[int, int], bytes] = os.read) -> None:
        """Opens the log. `after_seq` is the last record that was seen in this boot; None reads all there is.

        A FIFO is opened for writing too, so that it never ends. Raises OSError where the log may not be read.
        """
        kind = os.stat(path)
        access = os.O_RDWR if stat.S_ISFIFO(kind.st_mode) else os.O_RDONLY
        self.fd = os.open(path, access | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        self._is_kmsg = stat.S_ISCHR(kind.st_mode) and kind.st_rdev == _KMSG_DEVICE
        self._read = read
        self._after = -1 if after_seq is None else after_seq
        self._resuming = after_seq is not None
        self._rest = b""

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def seek_end(self) -> None:
        """Skips what the log holds already, where the log can seek (a pty and a FIFO hold nothing old)."""
        try:
            os.lseek(self.fd, 0, os.SEEK_END)
        except OSError as error:
            if error.errno != errno.ESPIPE:
                raise
        self._resuming = False

    def read(self, limit: int = 1000) -> list[KernelRecord | Overrun]:
        """What has come, oldest first, at most about `limit`; empty when there is nothing new. Raises OSError."""
        found: list[KernelRecord | Overrun] = []
        while len(found) < limit:
            try:
                data = self._read(self.fd, RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EIO and not self._is_kmsg:  # a pty whose other end is closed
                    break
                self._lose(error, found)
                continue
            if not data:
                break
            self._take(data, found)
        return found

    def _lose(self, error: OSError, found: list[KernelRecord | Overrun]) -> None:
        """Says what an error of /dev/kmsg cost; any other error is the caller's."""
        if error.errno == errno.EPIPE:  # overwritten: the next read gives the oldest left, and its number says how many
            if self._after < 0:
                found.append(Overrun(0))
        elif error.errno == errno.EINVAL:  # longer than our buffer; the kernel has gone on behind it
            found.append(Overrun(1))
            self._after += self._after >= 0
        else:
            raise error

    def _take(self, data: bytes, found: list[KernelRecord | Overrun]) -> None:
        if self._is_kmsg:
            record = parse(data)
            if record is not None:
                self._number(record, found)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > RECORD_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._take_line(line, found)

    def _take_line(self, line: bytes, found: list[KernelRecord | Overrun]) -> None:
        if not line.strip() or line.startswith(b" "):
            return
        self._number(parse(line) or from_line(line, self._after + 1), found)

    def _number(self, record: KernelRecord, found: list[KernelRecord | Overrun]) -> None:
        """Keeps what is new; a gap in the kernel's numbers is what was lost."""
        if record.seq <= self._after:
            if self._is_kmsg or self._resuming:
                return  # seen before the restart
            record = replace(record, seq=self._after + 1)
        elif self._is_kmsg and self._after >= 0 and record.seq > self._after + 1:
            found.append(Overrun(record.seq - self._after - 1))
        self._after = record.seq
        found.append(record)


def whole_log(path: str, accept_user_records: bool = False) -> tuple[KernelRecord, ...]:
    """Every believed record that the kernel still holds. For a single look; the agent keeps a KernelLog."""
    log = KernelLog(path)
    try:
        records: list[KernelRecord] = []
        while some := log.read():
            records += [r for r in some if isinstance(r, KernelRecord) and believed(r, accept_user_records)]
        return tuple(records)
    finally:
        log.close()
