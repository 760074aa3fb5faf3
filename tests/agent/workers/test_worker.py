"""A worker's side of the pipe, and that it is light."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from nodetriage.agent.installed_checks import CHECKS
from nodetriage.agent.workers.worker import Doing, Request, Session, memory_type
from nodetriage.checks.model import Check, Outcome


@pytest.fixture
def doing() -> Doing:
    import os

    page = os.memfd_create("doing")
    os.ftruncate(page, 4096)
    try:
        return Doing(page)
    finally:
        os.close(page)


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.name)
def test_the_memory_of_every_check_has_a_type_that_survives_a_pipe(check: Check[object, object]) -> None:
    kind = memory_type(check)
    assert kind is not object
    msgspec.json.Decoder(kind, dec_hook=lambda t, v: v)


def test_what_it_is_doing_can_be_read_from_the_page_also_when_it_is_long(doing: Doing) -> None:
    assert doing.text() == ""
    doing.say("statvfs /data")
    assert doing.text() == "statvfs /data"
    doing.say("x" * 5000)
    assert doing.text() == "x" * 1006
    doing.begin(7, "check word")
    assert (doing.text(), doing.running()[0]) == ("check word", 7)
    doing.say("read /word")
    assert (doing.text(), doing.running()[0]) == ("read /word", 7)
    doing.begin(0, "")
    assert (doing.text(), doing.running()[0]) == ("", 0)


def test_a_check_that_it_does_not_know_is_broken_not_fatal(doing: Doing) -> None:
    reply = Session({}, doing).answer(Request(1, "no_such"))
    assert (reply.outcome, reply.why) == (Outcome.BROKEN, "the worker has no such check")


def test_a_check_that_fails_is_broken_and_says_how(doing: Doing, trial: Path) -> None:
    from trial_checks import WORD

    (trial / "word").write_text("broken")
    reply = Session({"word": WORD}, doing).answer(Request(1, "word"))
    assert (reply.outcome, reply.why) == (Outcome.BROKEN, "KeyError: 'broken'")


def test_a_worker_imports_nothing_heavy() -> None:
    heavy = ("grpc", "google", "structlog", "asyncio", "sqlite3", "psutil", "subprocess_unused")
    program = (
        "import sys; import nodetriage.agent.workers.forkserver, nodetriage.agent.installed_checks; "
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
