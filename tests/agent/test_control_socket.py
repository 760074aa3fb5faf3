"""The local socket: who may ask, what a bad request gets, and a client that needs the standard library alone."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodetriage.agent.control_socket import REQUEST_LIMIT_BYTES, ControlSocket, ask

CLIENT = """
import os, sys
sys.path[:0] = sys.argv[2:]
from nodetriage.agent.control_socket import ask  # while it may read where this Python lies, which may be root's home
os.setgid(65534); os.setuid(65534)
try:
    print(ask(sys.argv[1], {"ask": "echo"}, 60))
except OSError as error:
    print(type(error).__name__)
"""


def with_server(folder: Path, client: Callable[[Path], Any]) -> Any:
    """Runs the client in a thread while the server serves in this one."""

    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request.get("ask") == "wait":
            await asyncio.sleep(3600)
        return {"you": request}

    async def main() -> Any:
        server = ControlSocket(folder / "run/agent.sock", answer)
        await server.start()
        try:
            return await asyncio.to_thread(client, folder / "run/agent.sock")
        finally:
            await server.close()

    return asyncio.run(main())


def raw(path: Path, data: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(60)
        line.connect(str(path))
        line.sendall(data)
        return line.makefile("rb").readline()


def test_one_line_asks_and_one_line_answers(tmp_path: Path) -> None:
    assert with_server(tmp_path, lambda path: ask(path, {"ask": "echo"}, 60)) == {"you": {"ask": "echo"}}


def test_the_socket_is_for_its_owner_alone_and_gone_afterwards(tmp_path: Path) -> None:
    mode = with_server(tmp_path, lambda path: stat.S_IMODE(path.stat().st_mode))
    assert mode == 0o600
    assert not (tmp_path / "run/agent.sock").exists()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"not json\n", "expected JSON"),
        (b"\xff\xfe\n", "expected JSON"),
        (b"[1]\n", "expected an object"),
        (b"x" * (2 * REQUEST_LIMIT_BYTES) + b"\n", "at most 65536 bytes"),
    ],
)
def test_a_bad_request_is_answered_with_what_was_expected(tmp_path: Path, data: bytes, says: str) -> None:
    assert says in with_server(tmp_path, lambda path: raw(path, data)).decode()


def test_an_old_socket_of_a_killed_agent_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "run/agent.sock"))
    left.close()
    assert with_server(tmp_path, lambda path: ask(path, {}, 60)) == {"you": {}}


def test_without_an_agent_the_client_says_so_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ask(tmp_path / "no.sock", {}, 5)


def test_an_agent_that_is_slow_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    def client(path: Path) -> None:
        with pytest.raises(TimeoutError):
            ask(path, {"ask": "wait"}, 0.2)

    with_server(tmp_path, client)


def test_another_user_is_refused_even_where_the_file_would_let_it(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")

    def client(path: Path) -> list[str]:
        answers = []
        for mode in (0o600, 0o666):
            path.chmod(mode)
            done = subprocess.run(
                [sys.executable, "-c", CLIENT, path, *sys.path], capture_output=True, text=True, timeout=60
            )
            answers.append(done.stdout + done.stderr)
        return answers

    with tempfile.TemporaryDirectory() as folder:  # pytest's own may lie where only we may go
        Path(folder).chmod(0o755)
        closed, refused = with_server(Path(folder), client)
    assert "PermissionError" in closed
    assert "uid 65534 may not ask" in refused


def test_the_client_imports_nothing_but_the_standard_library() -> None:
    program = (
        "import sys; before = set(sys.modules); import nodetriage.agent.control_socket;"
        "print(sorted({m.partition('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['nodetriage']"
