"""`make run` on this machine, with its real kernel log."""

import os
import re
import secrets
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import Program
from slurm_cluster import wait_until

ROOT = Path(__file__).resolve().parents[2]
KERNEL_LOG = Path("/dev/kmsg")


@pytest.fixture
def run(folder: Path) -> Iterator[Program]:
    run = Program(folder / "out", sys.executable, str(ROOT / "scripts/run.py"), str(folder / "run"))
    try:
        wait_until(
            lambda: "connected to" in run.said() and re.search(r"^fs_mounts +ok ", run.said(), re.MULTILINE),
            90,
            "both are at work",
        )
        yield run
    finally:
        if run.status is None:
            run.send(signal.SIGINT)
            run.wait()


@pytest.mark.kmsg
def test_a_line_written_to_the_kernel_log_is_a_finding_at_once(run: Program) -> None:
    if not os.access(KERNEL_LOG, os.R_OK | os.W_OK):
        pytest.skip("only root may write to /dev/kmsg")
    # An application error, which costs no node anything, on a device that no machine has.
    device = f"{secrets.token_hex(2)}:fe:00"
    line = f"<4>NVRM: Xid (PCI:{device}): 31, pid=1, name=nodetriage-test, Ch 00000001, MMU Fault"

    KERNEL_LOG.write_text(line + "\n")

    took_s = wait_until(lambda: f"info gpu_xid_application {device}.0" in run.said(), 60, "the table shows it")
    print(f"the table shows it after {took_s:.2f} s")


def test_it_says_what_is_special_and_what_to_try(run: Program) -> None:
    assert "kernel_log.accept_user_records is on" in run.said()


@pytest.mark.skipif(Path("/sys/module/nvidia").exists(), reason="this machine may have a GPU")
def test_a_machine_without_gpus_is_not_called_well(run: Program) -> None:
    wait_until(
        lambda: re.search(r"^gpu_lost +skipped ", run.said(), re.MULTILINE), 60, "gpu_lost says that it was skipped"
    )
    assert not re.search(r"^gpu_lost +ok", run.said(), re.MULTILINE)


def test_interrupting_it_stops_both_programs(run: Program, folder: Path) -> None:
    run.send(signal.SIGINT)

    assert run.wait() == 0
    assert run.said().splitlines()[-2:] == ["agent stopped", "controller stopped"]
    assert left(folder) == []


def test_an_impatient_second_interrupt_neither_shows_a_traceback_nor_leaves_a_program(
    run: Program, folder: Path
) -> None:
    for _ in range(3):
        run.send(signal.SIGINT)

    assert run.wait() == 0
    assert "Traceback" not in run.said()
    assert run.said().splitlines()[-2:] == ["agent stopped", "controller stopped"]
    assert left(folder) == []


@pytest.mark.parametrize("programs", range(3))
def test_an_interrupt_while_the_programs_start_leaves_none_of_them(folder: Path, programs: int) -> None:
    run = Program(folder / "out", sys.executable, str(ROOT / "scripts/run.py"), str(folder / "run"))
    try:
        wait_until(lambda: (folder / "run/controller.toml").exists() or run.status is not None, 60, "it starts")
        wait_until(lambda: len(left(folder)) >= programs or run.status is not None, 60, f"{programs} programs run")
        run.send(signal.SIGINT)
        run.send(signal.SIGINT)
        run.wait()
    finally:
        if run.status is None:  # it stops its programs; a kill would leave them
            run.send(signal.SIGTERM)
            run.wait()

    assert "Traceback" not in run.said()
    assert left(folder) == []


def left(folder: Path) -> list[str]:
    """The commands of processes that work in the folder, but for `make run` itself."""
    commands = (_command(process) for process in Path("/proc").glob("[0-9]*"))
    return [command for command in commands if str(folder) in command and "scripts/run.py" not in command]


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""
