"""Log lines: one JSON object each, with journald's priority; a reader that is stuck stops nobody."""

import io
import json
import os
import time

import structlog

from nodetriage.service import log


def logged(environ: dict[str, str]) -> str:
    out = io.StringIO()
    lines = log.set_up(out=out, environ=environ)
    try:
        structlog.get_logger().warning("check hung", check="fs_mounts")
        structlog.get_logger().debug("not told")
        lines.drain(60)
    finally:
        structlog.reset_defaults()
    return out.getvalue()


def test_a_line_is_a_json_object_with_its_facts_as_keys() -> None:
    line = json.loads(logged({}))
    assert (line["event"], line["check"], line["level"]) == ("check hung", "fs_mounts", "warning")
    assert line["timestamp"].endswith("Z")


def test_for_the_journal_a_line_begins_with_its_priority() -> None:
    assert logged({"JOURNAL_STREAM": "8:1"}).startswith('<4>{"')


def test_a_reader_that_is_stuck_blocks_no_caller_and_what_is_lost_is_counted() -> None:
    theirs, ours = os.pipe()
    with os.fdopen(ours, "w") as out, os.fdopen(theirs, "rb") as reader:
        lines = log.Lines(out)
        started = time.monotonic()
        for _ in range(20):
            lines.write("x" * 8000 + "\n")  # more than the pipe holds: the thread is stuck in it
        for i in range(5000):
            lines.write(f"line {i}\n")
        assert time.monotonic() - started < 60
        os.set_blocking(reader.fileno(), False)
        got = b""
        end = time.monotonic() + 60
        while b"log lines lost" not in got:
            assert time.monotonic() < end
            got += reader.read(65536) or b""
        lines.drain(60)
    assert got.count(b"\n") < 5021
