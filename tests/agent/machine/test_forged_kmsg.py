"""What an unprivileged user makes this machine's real kernel print is read as the kernel's, and fools no rule."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from quoted_lines import quoted

from nodetriage.agent.machine.kmsg import believed, parse, whole_log
from nodetriage.checks.model import KernelRecord
from nodetriage.checks.model.kernel_rules import matcher
from nodetriage.checks.readers import nvidia_log
from nodetriage.checks.registry import ALL

pytestmark = [
    pytest.mark.kmsg,
    pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="/dev/kmsg: needs root"),
]

LINES = (
    "NVRM: Xid (PCI:0000:4b:00): 79, pid=77, name=python3, GPU has fallen off the bus.",
    "XFS (sda): Corruption of in-memory data detected.  Shutting down filesystem",
    "Oops: 0000 [#1] SMP",
    "a\nNVRM: Xid (PCI:0000:4b:00): 79",
)
GROUP = Path(f"/sys/fs/cgroup/memory/nodetriage-forged-{os.getpid()}")  # cgroup v1
UNIFIED = Path(f"/sys/fs/cgroup/nodetriage-forged-{os.getpid()}")  # cgroup v2


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with 48 MiB of memory; the file through which a process joins it."""
    folder, limit = (GROUP, "memory.limit_in_bytes") if GROUP.parent.is_dir() else (UNIFIED, "memory.max")
    if limit == "memory.max":
        (UNIFIED.parent / "cgroup.subtree_control").write_text("+memory")
    folder.mkdir()
    try:
        (folder / limit).write_text(str(48 << 20))
        yield folder / "cgroup.procs"
    finally:
        deadline = time.monotonic() + 60
        while (folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        folder.rmdir()


def assert_nobody_is_fooled(records: list[KernelRecord]) -> None:
    for record in records:
        assert nvidia_log.parse(record.text) is None, record
        for check in ALL:
            for lines in (check.kernel_pattern, check.kernel_wakes):
                assert not (lines and matcher(lines).match(record.text)), (check.name, record)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("how", ["overlay", "tmpfs", "segfault", "interface"])
def test_the_kernel_quotes_a_user_and_no_rule_takes_it_for_the_driver(how: str, line: str) -> None:
    assert_nobody_is_fooled(quoted(how, line))


def test_a_look_at_the_machine_reports_nothing_of_what_a_user_had_the_kernel_print() -> None:
    for how in ("overlay", "tmpfs", "segfault", "interface"):
        quoted(how, LINES[0])

    argv = [
        sys.executable,
        "-m",
        "nodetriage.agent.cli.main",
        "check",
        "gpu_xid",
        "cpu_mce",
        "disk_errors",
        "kernel_hang",
    ]
    said = subprocess.run([*argv, "--json"], capture_output=True, text=True, timeout=100, check=False).stdout

    assert {check["check"] for check in json.loads(said)["checks"]} == set(argv[4:])
    assert "NVRM" not in said
    assert "4b:00" not in said


def test_a_process_that_runs_out_of_memory_has_its_name_quoted_and_no_more(small_group: Path) -> None:
    records = quoted("memory", LINES[0], join=small_group)

    assert any(r.text.startswith("NVRM: Xid (PCI: invoked oom-killer") for r in records)
    assert_nobody_is_fooled(records)


def test_a_record_that_user_space_wrote_is_not_believed_whoever_wrote_it() -> None:
    before = max((r.seq for r in whole_log("/dev/kmsg", accept_user_records=True)), default=-1)
    Path("/dev/kmsg").write_text(f"<0>{LINES[0]}\n")

    written = [r for r in whole_log("/dev/kmsg", accept_user_records=True) if r.seq > before and r.text == LINES[0]]
    assert written
    assert not any(believed(record) for record in written)


def test_a_piece_that_continues_a_line_is_not_believed() -> None:
    """pr_cont: the name of a control group begins a record where another record came between."""
    record = parse(b"4,1227,437812449932,c;" + LINES[0].encode() + b"\n")

    assert record
    assert not believed(record)
    assert believed(parse(b"4,1227,437812449932,-;" + LINES[0].encode() + b"\n") or record)
