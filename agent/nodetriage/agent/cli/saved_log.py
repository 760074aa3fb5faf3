"""A saved or piped kernel log as records: whatever it was compressed or encoded with, and wherever its boots begin."""

import codecs
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from nodetriage.agent.machine import kmsg
from nodetriage.checks.readers import log_prefix

# str.splitlines breaks at these too; in a log they are bytes like others.
_NO_BREAKS = dict.fromkeys(map(ord, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_PROBE_LINES = 3  # of the message that the NVIDIA driver prints where it meets a dead GPU while it loads
_GZIP = 31  # zlib's wbits for a gzip member
_PIECE_BYTES = 1 << 16
_UNPACKED_BYTES = 1 << 30
_HEAD_BYTES = 64  # that show the encoding
_BOOT = re.compile(r"Linux version \d|-- (?:Boot [0-9a-f]{32}|Reboot) --")
_SINCE_BOOT = re.compile(r"\d{1,10}\.\d{1,9}")
_BACK_S = 60.0  # a stamp since boot that falls by more begins another boot


@dataclass(frozen=True, slots=True)
class Entry:
    """One record. `line` is the number of its first line, from 1; `when` the moment as the log prints it; `boot` counts
    from 1 in the order of the log. `at_s` is the time since boot, None where the log has other stamps or none."""

    line: int
    text: str
    when: str = ""
    at_s: float | None = None
    boot: int = 1


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of the log in UTF-8, unpacked where it is gzip, decoded where it is UTF-16. Raises nothing for a
    damaged file: what could be unpacked of it counts."""
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(io.BytesIO(stream.read()))
    head = buffered.peek(_HEAD_BYTES)[:_HEAD_BYTES]
    if head.startswith(b"\x1f\x8b"):
        yield from lines_of(io.BytesIO(_unpacked(buffered)))
    elif encoding := _wide(head):
        text = buffered.read().decode(encoding, "replace")
        yield from (line.encode("utf-8", "replace") for line in text.split("\n"))
    else:
        yield from buffered


def _unpacked(packed: BinaryIO) -> bytes:
    """What the file holds, up to _UNPACKED_BYTES and up to where it is damaged or cut off; all of its members."""
    found, member = io.BytesIO(), zlib.decompressobj(_GZIP)
    try:
        while (piece := packed.read(_PIECE_BYTES)) and found.tell() < _UNPACKED_BYTES:
            while piece:
                found.write(member.decompress(piece))
                piece = b""
                if member.eof:
                    piece, member = member.unused_data, zlib.decompressobj(_GZIP)
    except zlib.error:
        pass
    return found.getvalue()


def _wide(head: bytes) -> str:
    """The encoding where it has two bytes a character, by its mark or by its zeros; else ""."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if len(head) < 4:
        return ""
    odd, even = head[1::2].count(0), head[::2].count(0)
    return "utf-16-le" if odd > len(head) // 4 > even else "utf-16-be" if even > len(head) // 4 > odd else ""


def entries(log: Iterable[bytes]) -> Iterator[Entry]:
    """A record a line, but the three lines of the driver's probe message together. A raw record of /dev/kmsg is a
    record whatever newlines it holds."""
    held: list[Entry] = []
    boot, before_s = 1, None
    for number, line in enumerate(log, 1):
        raw = kmsg.parse(line.lstrip())
        when, text = _moment(raw.at_us) if raw else "", raw.text if raw else ""
        if raw is None:
            when, text = log_prefix.split(line.rstrip(b"\n").decode("utf-8", "replace").translate(_NO_BREAKS))
        at_s = float(when) if _SINCE_BOOT.fullmatch(when) else None
        fell = at_s is not None and before_s is not None and at_s < before_s - _BACK_S
        boot += number > 1 and (fell or bool(_BOOT.match(text)))
        before_s = at_s if at_s is not None else before_s
        joins = raw is None and 0 < len(held) < _PROBE_LINES and text.startswith("NVRM:") and "Xid" not in text
        if held and not joins:
            yield _joined(held)
            held = []
        entry = Entry(number, text, when, at_s, boot)
        if joins or (raw is None and text.startswith("NVRM: The NVIDIA GPU")):
            held.append(entry)
        else:
            yield entry
    if held:
        yield _joined(held)


def _moment(at_us: int) -> str:
    return f"{at_us / 1e6:.6f}"


def _joined(held: Sequence[Entry]) -> Entry:
    first = held[0]
    return Entry(first.line, "\n".join(entry.text for entry in held), first.when, first.at_s, first.boot)
