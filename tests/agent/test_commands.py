"""Child programs: real ones, short ones, stubborn ones."""

import itertools
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nodetriage.agent import commands
from nodetriage.checks.model import Program, Unavailable


def script(folder: Path, text: str) -> tuple[str, ...]:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return (str(path),)


def is_gone(pid: int) -> bool:
    """Dead, or dead and not yet reaped by its new parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_program_gives_its_status_and_what_it_said(tmp_path: Path) -> None:
    argv = script(tmp_path, "echo out; echo err >&2; exit 3")

    assert commands.run(argv, 5) == Program(3, "out\n", "err\n")


def test_its_environment_is_fixed_and_its_input_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    argv = script(tmp_path, "cat; env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort; pwd")

    assert commands.run(argv, 5).stdout == f"LC_ALL=C\nPATH={commands.PATH}\n/\n"


def test_input_is_handed_over_and_one_that_does_not_listen_is_no_error(tmp_path: Path) -> None:
    text = b"x" * 300_000

    assert commands.run(("cat",), 5, stdin=text).stdout == text.decode()
    assert commands.run(("true",), 5, stdin=text).status == 0


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    assert commands.run(script(tmp_path, r"printf 'a\377b'"), 5).stdout == "a�b"


def test_a_program_that_is_not_installed_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="nodetriage-no-such-program: not installed"):
        commands.run(("nodetriage-no-such-program",), 5)


def test_one_that_may_not_be_started_says_so(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\n")

    with pytest.raises(PermissionError):
        commands.run((str(tmp_path / "program"),), 5)


def test_past_its_time_it_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    argv = script(tmp_path, f"sleep 600 & echo $! >{tmp_path}/pid; trap '' TERM; wait; sleep 600")
    started = time.monotonic()

    with pytest.raises(TimeoutError, match=r"no answer after 0\.3 s"):
        commands.run(argv, 0.3)

    assert time.monotonic() - started < 0.3 + commands.KILL_WAIT_S + 10
    assert commands.abandoned() == 0
    assert wait_until_gone(int((tmp_path / "pid").read_text()))


def test_one_that_goes_away_but_leaves_its_output_open_is_late_too(tmp_path: Path) -> None:
    argv = script(tmp_path, f"sleep 600 & echo $! >{tmp_path}/pid; echo done")

    with pytest.raises(TimeoutError):
        commands.run(argv, 0.3)

    assert wait_until_gone(int((tmp_path / "pid").read_text()))


def test_one_that_closes_its_output_and_stays_is_late_too(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        commands.run(script(tmp_path, "exec >&- 2>&-; sleep 600"), 0.3)


def test_endless_output_is_cut(tmp_path: Path) -> None:
    with pytest.raises(OverflowError):
        commands.run(("yes",), 30)


def test_no_file_of_ours_is_open_in_it(tmp_path: Path) -> None:
    with (tmp_path / "ours").open("w"):
        assert "ours" not in commands.run(script(tmp_path, "ls -l /proc/self/fd"), 5).stdout


def test_many_runs_leave_no_open_file_behind() -> None:
    def open_files() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    commands.run(("true",), 5)
    before = open_files()
    for _ in range(10):
        commands.run(("true",), 5)
        with pytest.raises(TimeoutError):
            commands.run(("sleep", "600"), 0.001)

    assert open_files() == before


def test_a_worker_that_is_killed_takes_its_program_with_it(tmp_path: Path) -> None:
    argv = script(tmp_path, f"echo $$ >{tmp_path}/partial; mv {tmp_path}/partial {tmp_path}/pid; exec sleep 600")
    program = f"from nodetriage.agent import commands; commands.run({argv!r}, 600)"
    worker = subprocess.Popen([sys.executable, "-c", program])
    deadline = time.monotonic() + 10
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)

    worker.kill()
    worker.wait(5)

    assert wait_until_gone(int((tmp_path / "pid").read_text()))


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    for _ in itertools.takewhile(lambda _: time.monotonic() < deadline, itertools.count()):
        if is_gone(pid):
            return True
        time.sleep(0.01)
    return False
