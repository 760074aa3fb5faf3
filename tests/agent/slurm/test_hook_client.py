"""The hook program itself, compiled as the package does, against sockets that answer, lie, or say nothing."""

import fcntl
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hook_program import build

from nodetriage.agent.slurm.hook_log import LIMIT_BYTES, take


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("hook"))


class Hook:
    def __init__(self, program: Path, run_dir: Path) -> None:
        self._program = program
        self.run_dir = run_dir

    def run(self, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [self._program, "-d", self.run_dir, *argv]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    def tell(self, deadline_ms: int = 1000) -> None:
        (self.run_dir / "hooks").write_text(f"deadline_ms={deadline_ms}\n")


@pytest.fixture
def hook(program: Path) -> Iterator[Hook]:
    with tempfile.TemporaryDirectory(prefix="hook-") as folder:
        yield Hook(program, Path(folder))


@pytest.fixture
def agent(hook: Hook) -> Iterator[Callable[[bytes], list[bytes]]]:
    """`agent(ANSWER)` listens, gives one client that answer, and returns the list that gets what the client asked.

    The client waits for it as long as it may: it is no slow agent, whatever else the machine does.
    """
    with socket.socket(socket.AF_UNIX) as here:
        threads = []

        def listen(answer: bytes) -> list[bytes]:
            hook.tell(deadline_ms=60_000)
            here.bind(str(hook.run_dir / "agent.sock"))
            here.listen()
            heard: list[bytes] = []

            def serve() -> None:
                client, _ = here.accept()
                with client:
                    heard.append(client.recv(65536))
                    client.sendall(answer)

            threads.append(threading.Thread(target=serve))
            threads[0].start()
            return heard

        yield listen
        for thread in threads:
            thread.join(60)


@pytest.mark.parametrize("code", [0, 1])
def test_the_agents_line_is_printed_and_its_code_is_the_exit_code(
    hook: Hook, agent: Callable[[bytes], list[bytes]], code: int
) -> None:
    agent(f"{code} nodetriage: the line\n".encode())

    done = hook.run("prolog")

    assert (done.returncode, done.stdout) == (code, "nodetriage: the line\n")
    assert not (hook.run_dir / "unanswered").exists()


def test_only_slurmds_facts_are_passed_on_cut_and_escaped(hook: Hook, agent: Callable[[bytes], list[bytes]]) -> None:
    heard = agent(b"0 ok\n")

    hook.run("epilog", SLURM_JOB_ID="7", SLURM_JOB_PARTITION='a"\\\n\x1b' + "x" * 5000, SECRET="s", LD_LIBRARY_PATH="/")

    request = json.loads(heard[0])
    assert request == {"ask": "epilog", "SLURM_JOB_ID": "7", "SLURM_JOB_PARTITION": 'a"\\\n\x1b' + "x" * 195}


@pytest.mark.parametrize("answer", [b"", b"2 no such code\n", b"nonsense\n", b"0\n", b"1", b"x" * 20000])
def test_an_answer_that_makes_no_sense_is_no_answer(
    hook: Hook, agent: Callable[[bytes], list[bytes]], answer: bytes
) -> None:
    agent(answer)

    assert hook.run("prolog").returncode == 0
    assert take(hook.run_dir).notes[0].hook == "prolog"


def test_without_an_agent_the_job_is_let_through_and_that_is_noted(hook: Hook) -> None:
    done = hook.run("prolog", SLURM_JOB_ID="77")

    assert done.returncode == 0
    assert done.stdout == "nodetriage: the health of this node is not known (agent: No such file or directory)\n"
    (note,) = take(hook.run_dir).notes
    assert (note.hook, note.job) == ("prolog", "77")
    assert abs(note.at - time.time()) < 60


def test_nothing_but_the_agents_own_answer_refuses_a_job(hook: Hook) -> None:
    (hook.run_dir / "hooks").write_text("deadline_ms=100\nclosed=1\nrefuse=1\n")

    assert hook.run("prolog").returncode == 0
    assert hook.run("-c", "prolog").returncode == 0


def test_an_agent_that_says_nothing_costs_the_deadline_and_no_more(hook: Hook) -> None:
    hook.tell(deadline_ms=100)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(hook.run_dir / "agent.sock"))
        silent.listen()
        began_s = time.monotonic()
        done = hook.run("prolog")
        took_s = time.monotonic() - began_s

    assert done.returncode == 0
    assert 0.1 <= took_s < 30.0  # 0.1 s where the machine is idle; forever without a deadline
    assert take(hook.run_dir).notes[0].why == "no answer in time"


def test_an_agent_whose_queue_is_full_costs_the_deadline_and_no_more(hook: Hook) -> None:
    hook.tell(deadline_ms=100)
    with socket.socket(socket.AF_UNIX) as stuck, socket.socket(socket.AF_UNIX) as first:
        stuck.bind(str(hook.run_dir / "agent.sock"))
        stuck.listen(0)
        first.connect(str(hook.run_dir / "agent.sock"))

        assert hook.run("prolog").returncode == 0

    assert take(hook.run_dir).notes[0].why == "no answer in time"


def test_what_is_noted_is_bounded(hook: Hook) -> None:
    (hook.run_dir / "unanswered").write_bytes(b"\n" * (LIMIT_BYTES + 1))

    assert hook.run("prolog").returncode == 0

    assert (hook.run_dir / "unanswered").stat().st_size == LIMIT_BYTES + 1
    assert take(hook.run_dir).lost


def test_a_link_in_the_place_of_the_notes_is_not_followed(hook: Hook) -> None:
    (hook.run_dir / "elsewhere").write_text("")
    (hook.run_dir / "unanswered").symlink_to(hook.run_dir / "elsewhere")

    assert hook.run("prolog").returncode == 0

    assert (hook.run_dir / "elsewhere").read_text() == ""


def test_notes_that_an_agent_holds_do_not_hold_up_a_job(hook: Hook) -> None:
    hook.tell(deadline_ms=100)
    with (hook.run_dir / "unanswered").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began_s = time.monotonic()

        assert hook.run("prolog").returncode == 0

        assert time.monotonic() - began_s < 30.0  # it would be forever


def test_no_note_is_lost_while_the_agent_takes_them(hook: Hook) -> None:
    hook.tell(deadline_ms=60_000)
    hooks = [threading.Thread(target=hook.run, args=("prolog",)) for _ in range(20)]
    for thread in hooks:
        thread.start()
    taken = 0
    while any(thread.is_alive() for thread in hooks):
        taken += len(take(hook.run_dir).notes)
    taken += len(take(hook.run_dir).notes)

    assert taken == 20


def test_a_mistyped_command_line_drains_no_node(hook: Hook) -> None:
    done = hook.run("prologue")

    assert done.returncode == 0
    assert done.stderr.startswith("usage: nodetriage-hook")


def test_a_socket_of_another_user_is_not_believed(hook: Hook) -> None:
    if os.geteuid() != 0:
        pytest.skip("another user needs root")
    hook.tell()
    hook.run_dir.chmod(0o777)
    listener = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen();"
        "print(flush=True); c, _ = s.accept(); c.sendall(b'1 refused\\n'); c.recv(9)"
    )
    liar = subprocess.Popen(
        ["/usr/bin/env", "python3", "-c", listener, hook.run_dir / "agent.sock"], stdout=subprocess.PIPE
    )
    try:
        assert liar.stdout is not None
        liar.stdout.readline()

        done = hook.run("prolog")
    finally:
        liar.kill()
        liar.wait()
        liar.stdout.close()

    assert done.returncode == 0
    assert "Permission denied" in done.stdout
