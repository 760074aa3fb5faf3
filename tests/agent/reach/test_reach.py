"""What the site names over the network: it answers, or why not."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.agent.reach.ask import Address, parsed, trouble
from nodetriage.agent.reach.settings import Asked, NoPolicy, ReachSettings, check_of
from nodetriage.agent.settings.config import load
from nodetriage.agent.slurm.hook_authority import SHARED
from nodetriage.checks.model import NotRecorded, Severity
from nodetriage.checks.model.settings import ConfigError

Serve = Callable[[bytes | None], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that answers each connection with these bytes; None: it stays silent. Gives its port."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []
    over = threading.Event()

    def start(answer: bytes | None) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            while not over.is_set():
                with contextlib.suppress(OSError), listener.accept()[0] as line:
                    if answer is None:
                        over.wait()
                    line.recv(1000)
                    line.sendall(answer or b"")

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return int(listener.getsockname()[1])

    yield start
    over.set()
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a connection
    for thread in threads:
        thread.join()
    for listener in listeners:
        listener.close()


def said(address: str) -> str:
    return trouble(parsed(address), 0.5)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 403 Forbidden\r\n\r\n", b"HTTP/1.1 404 x\r\n"]
)
def test_any_answer_of_a_server_counts(serve: Serve, answer: bytes) -> None:
    port = serve(answer)

    assert said(f"http://127.0.0.1:{port}/bucket") == ""
    assert said(f"tcp://127.0.0.1:{port}") == ""


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 503 Slow Down\r\n\r\n", "HTTP 503"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "its answer is not HTTP"),
        (b"", "its answer is not HTTP"),
        (b"\x00" * 100_000, "its answer is not HTTP"),
    ],
)
def test_a_server_that_cannot_serve_or_speaks_something_else_does_not(serve: Serve, answer: bytes, why: str) -> None:
    assert said(f"http://127.0.0.1:{serve(answer)}") in (why, "Connection reset by peer")


def test_a_server_that_stays_silent_is_given_up_in_time(serve: Serve) -> None:
    port = serve(None)

    assert said(f"http://127.0.0.1:{port}") == "no answer within 0.5 s"
    assert said(f"https://127.0.0.1:{port}") == "no answer within 0.5 s"
    assert said(f"tcp://127.0.0.1:{port}") == ""


def test_a_closed_port_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert said(f"tcp://127.0.0.1:{port}") == "Connection refused"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://cache:6379", Address("tcp", "cache", 6379)),
        ("http://s3.example.org", Address("http", "s3.example.org", 80)),
        ("https://[fd00::1]:9000/a?b=c", Address("https", "fd00::1", 9000, "/a?b=c")),
    ],
)
def test_an_address_is_a_scheme_a_host_and_a_port(text: str, address: Address) -> None:
    assert parsed(text) == address


@given(st.text(max_size=60) | st.builds("http://{}".format, st.text(max_size=30)))
def test_every_other_text_is_refused_and_none_adds_a_header(text: str) -> None:
    try:
        address = parsed(text)
    except ValueError:
        return
    assert address.path.isprintable()
    assert " " not in address.path + address.host


def test_one_that_does_not_answer_is_a_finding_that_nodes_share() -> None:
    check = check_of(ReachSettings(("tcp://a:1", "tcp://b:1"), Severity.MAJOR))
    found = list(check.judge((Asked("tcp://a:1", ""), Asked("tcp://b:1", "refused")), None, NoPolicy()))

    assert [(f.component, f.fault, f.severity, f.evidence) for f in found] == [
        ("tcp://b:1", "reach_failed", Severity.MAJOR, {"why": "refused"})
    ]
    assert (check.raise_after, check.timeout_s) == (2, 21.0)
    assert "reach_*" in SHARED


def test_the_check_asks_each_address_and_a_recording_none(serve: Serve, tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{serve(None)}"
    check = check_of(ReachSettings((address,)))

    assert check.read(Host("/")) == (Asked(address, ""),)
    with pytest.raises(NotRecorded):
        check.read(Host(tmp_path))


def test_it_is_off_without_an_address_and_a_node_can_have_its_own(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('[[hosts]]\nnodes = "n1"\nchecks.reach.addresses = ["tcp://cache:6379"]\n')

    assert [check.name for check in load(file, (), "n1").enabled] == ["reach"]
    assert load(file, (), "n2").enabled == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('addresses = ["cache:6379"]', "expected tcp://HOST:PORT"),
        ('addresses = ["tcp://cache"]', "expected tcp://HOST:PORT"),
        ('addresses = ["http://a/\\r\\nX: y"]', "expected tcp://HOST:PORT"),
        (f"addresses = {['tcp://a:1'] * 17}", "expected at most 16, got 17"),
        ("answer_s = 60", "expected answer_s of 0.1 to 10"),
        ("adresses = []", "checks.reach.adresses: unknown key"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f"[checks.reach]\n{text}\n")
    with pytest.raises(ConfigError) as error:
        load(file, (), "n1")
    assert says in str(error.value)
    assert "\n" not in str(error.value)
