"""slurmrestd that is away, silent, garbled, or says no: each is told apart. The real one: tests/slurm."""

import asyncio
import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.controller.slurm.client import REST_LIMIT_S, Slurm
from nodetriage.controller.slurm.rest import RestRefused, RestSettings, RestUnusable, Slurmrestd, newest_with_nodes

LIMIT_S = 30.0  # for an answer that comes
PATHS = (
    '{"paths":{"/slurm/v0.0.40/node/{node_name}":{"get":{}},"/slurm/v0.0.41/node/{node_name}/":{"get":{},"post":{}}}}'
)


def http(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


def request(client: socket.socket) -> bytes:
    said = b""
    while b"\r\n\r\n" not in said:
        said += client.recv(65536)
    head, _, body = said.partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    while length and len(body) < int(length[1]):
        body += client.recv(65536)
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def serving(path: Path, *answers: bytes | None) -> Iterator[list[bytes]]:
    """Gives one answer a connection; None keeps silent. Yields what was asked."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(LIMIT_S)

        def serve() -> None:
            for answer in answers:
                client, _ = listener.accept()
                with client:
                    client.settimeout(LIMIT_S)
                    asked.append(request(client))
                    if answer is not None:
                        client.sendall(answer)
                    else:
                        client.recv(1)  # until the other side gives up

        thread = threading.Thread(target=serve)
        thread.start()
        yield asked
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def drain(path: Path, token: Path | None = None, timeout_s: float = LIMIT_S) -> None:
    rest = Slurmrestd(RestSettings(f"unix:{path}", "ann", token, timeout_s))
    asyncio.run(rest.set_node_state("n1", "DRAIN", "why"))


def test_a_drain_is_one_request_with_state_reason_and_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("SLURM_JWT=abc.def\n")
    with serving(tmp_path / "s", http(PATHS), http('{"errors":[]}')) as asked:
        drain(tmp_path / "s", tmp_path / "token")
    assert asked[1].startswith(b"POST /slurm/v0.0.41/node/n1 ")
    assert asked[1].endswith(b'{"state": ["DRAIN"], "reason": "why"}')
    assert b"X-SLURM-USER-NAME: ann\r\nX-SLURM-USER-TOKEN: abc.def\r\n" in asked[1]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (http("<html>", "502 Bad Gateway"), RestUnusable),
        (http("", "401 UNAUTHORIZED"), RestUnusable),
        (b"", RestUnusable),
        (b"nonsense\r\n\r\n", RestUnusable),
        (http('{"errors":[{"description":"Failure to update node n1"}]}', "500 ERROR"), RestUnusable),
        (http('{"errors":[{"error":"Unable to contact slurm controller"}]}'), RestUnusable),
        (http('{"errors":[{"error":"Invalid node name specified"}]}', "500 ERROR"), RestRefused),
        (http('{"errors":"?"}'), RestUnusable),
        (http("[1]"), RestUnusable),
    ],
)
def test_every_answer_but_a_plain_yes_is_an_error(tmp_path: Path, answer: bytes, error: type[Exception] | None) -> None:
    with serving(tmp_path / "s", http(PATHS), answer), pytest.raises(error) if error else contextlib.nullcontext():
        drain(tmp_path / "s")


def test_one_that_is_away_or_silent_is_given_up_in_time(tmp_path: Path) -> None:
    with pytest.raises(RestUnusable, match="unix:"):
        drain(tmp_path / "absent")
    began = time.monotonic()
    with serving(tmp_path / "s", None), pytest.raises(RestUnusable, match="timed out"):
        drain(tmp_path / "s", timeout_s=0.2)
    assert time.monotonic() - began < LIMIT_S
    with pytest.raises(RestUnusable, match="No such file"), serving(tmp_path / "t"):
        drain(tmp_path / "t", token=tmp_path / "no-token")


@contextlib.contextmanager
def hung(path: Path) -> Iterator[socket.socket]:
    """A slurmrestd that stands still: the kernel takes its connections, and nobody reads them."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(LIMIT_S)
        yield listener


def wakes_and_reads(listener: socket.socket) -> list[bytes]:
    """What it finds when it goes on: the first line of each request that waits."""
    found = []
    listener.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            client, _ = listener.accept()
            with client:
                client.settimeout(LIMIT_S)
                found.append(request(client).partition(b"\r\n")[0])
    return found


def slurm_with(rest: Slurmrestd, folder: Path) -> Slurm:
    """With a scontrol that writes down how it was called."""
    scontrol = folder / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$*" >>{folder}/called\n')
    scontrol.chmod(0o755)
    return Slurm(environment={"PATH": f"{folder}:/usr/bin:/bin"}, rest=rest)


@pytest.mark.parametrize("worked_before", [True, False])
async def test_one_that_hangs_delays_one_of_four_drains_by_a_second_and_finds_none_to_do_when_it_goes_on(
    tmp_path: Path, worked_before: bool
) -> None:
    rest = Slurmrestd(RestSettings(f"unix:{tmp_path}/s", timeout_s=LIMIT_S))
    slurm = slurm_with(rest, tmp_path)
    if worked_before:
        with serving(tmp_path / "s", http(PATHS), http('{"errors":[]}')):
            await slurm.drain(["n0"], "why")
        (tmp_path / "s").unlink()
    took_s = []
    with hung(tmp_path / "s") as listener:
        for node in ("n1", "n2", "n3", "n4"):
            began_s = time.monotonic()
            await slurm.drain([node], "why")
            took_s.append(time.monotonic() - began_s)
        asked = wakes_and_reads(listener)
    called = (tmp_path / "called").read_text().splitlines()
    assert called == [f"update nodename=n{i} state=drain reason=why" for i in (1, 2, 3, 4)]
    assert asked == [b"GET /slurm/v0.0.41/ping HTTP/1.1" if worked_before else b"GET /openapi/v3 HTTP/1.1"]
    assert took_s[0] >= REST_LIMIT_S
    assert sum(took_s) < 4 * REST_LIMIT_S


async def test_one_that_answers_too_late_is_not_sent_the_drain_that_scontrol_made(tmp_path: Path) -> None:
    rest = Slurmrestd(RestSettings(f"unix:{tmp_path}/s", timeout_s=LIMIT_S))
    with hung(tmp_path / "s") as listener:
        await slurm_with(rest, tmp_path).drain(["n1"], "why")
        client, _ = listener.accept()
        with client:
            client.settimeout(LIMIT_S)
            assert b"GET /openapi/v3 " in await asyncio.to_thread(request, client)
            client.sendall(http(PATHS))
        await asyncio.get_running_loop().shutdown_default_executor()  # the thread that asked has ended
        assert wakes_and_reads(listener) == []
    assert (tmp_path / "called").read_text() == "update nodename=n1 state=drain reason=why\n"


def test_one_that_works_is_asked_whether_it_answers_before_each_drain(tmp_path: Path) -> None:
    rest = Slurmrestd(RestSettings(f"unix:{tmp_path}/s"))
    yes = http('{"errors":[]}')
    with serving(tmp_path / "s", http(PATHS), yes, yes, yes) as asked:
        for state in ("DRAIN", "UNDRAIN"):
            asyncio.run(rest.set_node_state("n1", state, "why"))
    assert [line.split()[0] + b" " + line.split()[1] for line in asked] == [
        b"GET /openapi/v3",
        b"POST /slurm/v0.0.41/node/n1",
        b"GET /slurm/v0.0.41/ping",
        b"POST /slurm/v0.0.41/node/n1",
    ]


@given(st.recursive(st.none() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text() | st.just("paths"), x)))
def test_a_description_that_makes_no_sense_offers_nothing(description: object) -> None:
    with pytest.raises(RestUnusable, match="cannot change nodes"):
        newest_with_nodes(description)


@pytest.mark.parametrize(
    "address", ["http://10.0.0.1:6820", "ftp://h", "unix:relative", "localhost:1", "https://h/slurm"]
)
def test_an_address_that_would_show_the_token_or_makes_no_sense_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="rest: "):
        RestSettings(address)
