"""Has an unprivileged user make this machine's real kernel print a line, and finds the records of it."""

import subprocess
import time
from pathlib import Path

import pytest

from nodetriage.agent.machine.kmsg import KernelLog, believed, whole_log
from nodetriage.checks.model import KernelRecord

QUOTING = Path(__file__).with_name("quoting.py")
NOBODY = 65534


def letters(text: str) -> str:
    """What is left of any text in every field: an interface's name takes neither blanks nor colons."""
    return "".join(c for c in text if c.isascii() and c.isalnum())


def quoted(how: str, line: str, join: Path | None = None) -> list[KernelRecord]:
    """The records of the kernel that hold the line's beginning, after user 65534 did it.

    The kernel prints some of them ten times in five seconds at most, so it is done again where it said nothing.
    """
    before = max((r.seq for r in whole_log("/dev/kmsg", accept_user_records=True)), default=-1)
    log = KernelLog("/dev/kmsg", before)
    try:
        deadline = time.monotonic() + 90
        while True:
            ran = attempt(how, line, join)
            again = time.monotonic() + 6
            while time.monotonic() < again:
                records = [
                    r for r in log.read() if isinstance(r, KernelRecord) and letters(line)[:8] in letters(r.text)
                ]
                # By facility and flags it is the kernel's: only the rules can tell. Others write to the log too.
                if found := [r for r in records if believed(r)]:
                    return found
                time.sleep(0.01)
            assert time.monotonic() < deadline, ran
    finally:
        log.close()


def attempt(how: str, line: str, join: Path | None) -> "subprocess.CompletedProcess[str]":
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    script = f'echo $$ > {join}; exec "$@"' if join else 'exec "$@"'
    # A Python of root's own may not be read by others: its standard input is the program instead.
    ran = subprocess.run(
        ["sh", "-c", script, "sh", *drop, "env", "TMPDIR=/tmp", "python3", "-", how, line],
        input=QUOTING.read_text(), capture_output=True, text=True, timeout=60, cwd="/", check=False,
    )  # fmt: skip
    if ran.returncode == 3:
        pytest.skip(f"{how}: not allowed here: {ran.stdout}")
    return ran
