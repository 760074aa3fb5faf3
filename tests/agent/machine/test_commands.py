"""Child programs: real ones, short ones, stubborn ones."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_wait import wait_until

from nodetriage.agent.machine import commands
from nodetriage.checks.model import Program, Unavailable

ENOUGH_S = 60.0  # for a program that is to end by itself


def script(folder: Path, text: str) -> tuple[str, ...]:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return (str(path),)


def once_there(file: Path) -> Callable[[], float]:
    """A clock that stands still until the program under test has made the file."""
    began_s = time.monotonic()
    return lambda: time.monotonic() if file.exists() else began_s


def is_gone(pid: int) -> bool:
    """Dead, or dead and not yet reaped by its new parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_program_gives_its_status_and_what_it_said(tmp_path: Path) -> None:
    argv = script(tmp_path, "echo out; echo err >&2; exit 3")

    assert commands.run(argv, ENOUGH_S) == Program(3, "out\n", "err\n")


def test_its_environment_is_fixed_and_its_input_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    argv = script(tmp_path, "cat; env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort; pwd")

    assert commands.run(argv, ENOUGH_S).stdout == f"LC_ALL=C\nPATH={commands.PATH}\n/\n"


def test_input_is_handed_over_and_one_that_does_not_listen_is_no_error(tmp_path: Path) -> None:
    text = b"x" * 300_000

    assert commands.run(("cat",), ENOUGH_S, stdin=text).stdout == text.decode()
    assert commands.run(("true",), ENOUGH_S, stdin=text).status == 0


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    assert commands.run(script(tmp_path, r"printf 'a\377b'"), ENOUGH_S).stdout == "a�b"


def test_a_program_that_is_not_installed_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="nodetriage-no-such-program: not installed"):
        commands.run(("nodetriage-no-such-program",), 5)


def test_one_that_may_not_be_started_says_so(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\n")

    with pytest.raises(PermissionError):
        commands.run((str(tmp_path / "program"),), 5)


def test_past_its_time_it_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    tell = f"echo $! >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid"
    argv = script(tmp_path, f"trap '' TERM; sleep 600 & {tell}; wait; sleep 600")
    started = time.monotonic()

    with pytest.raises(TimeoutError, match=r"no answer after 0\.3 s"):
        commands.run(argv, 0.3, clock=once_there(tmp_path / "pid"))

    assert time.monotonic() - started < 60  # it would be 600
    wait_until(lambda: commands.abandoned() == 0, ENOUGH_S, "it is dead")
    wait_until_gone(int((tmp_path / "pid").read_text()))


def test_one_that_goes_away_but_leaves_its_output_open_is_late_too(tmp_path: Path) -> None:
    argv = script(tmp_path, f"sleep 600 & echo $! >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; echo done")

    with pytest.raises(TimeoutError):
        commands.run(argv, 0.3, clock=once_there(tmp_path / "pid"))

    wait_until_gone(int((tmp_path / "pid").read_text()))


def test_one_that_closes_its_output_and_stays_is_late_too(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        commands.run(script(tmp_path, "exec >&- 2>&-; sleep 600"), 0.3)


def test_endless_output_is_cut(tmp_path: Path) -> None:
    with pytest.raises(OverflowError):
        commands.run(("yes",), ENOUGH_S)


def test_no_file_of_ours_is_open_in_it(tmp_path: Path) -> None:
    with (tmp_path / "ours").open("w"):
        assert "ours" not in commands.run(script(tmp_path, "ls -l /proc/self/fd"), ENOUGH_S).stdout


def test_many_runs_leave_no_open_file_behind() -> None:
    def open_files() -> set[str]:
        """Pipes and files by their number; what is left of other tests may be closed meanwhile."""
        found = set()
        for fd in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add(str(fd.readlink()))
        return found

    commands.run(("true",), ENOUGH_S)
    before = open_files()
    for _ in range(10):
        commands.run(("true",), ENOUGH_S)
        with pytest.raises(TimeoutError):
            commands.run(("sleep", "600"), 0.001)

    assert open_files() - before == set()


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: is_gone(pid), ENOUGH_S, f"process {pid} is gone")
