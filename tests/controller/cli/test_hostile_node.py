"""A node that sends terminal control sequences in every text it may send: no verb passes one on."""

import asyncio
import io
import json
import re
import time
from datetime import UTC, datetime

import pytest
from fleet_client import BOOT, event

from nodetriage.checks.model import Severity
from nodetriage.controller.cli.main import main
from nodetriage.controller.policy.agents import coverage
from nodetriage.controller.policy.state import (
    Action,
    ActionKind,
    DrainFact,
    DrainStatus,
    FleetState,
    NodeFacts,
    NodeState,
    Step,
    Transition,
)
from nodetriage.controller.scheduler import NodeView
from nodetriage.controller.store import known_nodes, state_store
from nodetriage.controller.store.database import open_database
from nodetriage.controller.store.known_nodes import ControllerStatus
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store

HOSTILE = "GPU\x1b]0;pwned\x07\x1b[2J[red]x[/red]\x9b31m\n\rfake line\u202e"
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # the renderer's own colours
AT = datetime.now(UTC)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def database(sqlite_url: str) -> str:
    """A history in which each text that a node, a job or the scheduler chose is hostile."""

    async def fill() -> None:
        store = Store(open_database(sqlite_url))
        await store.open()
        await store.record_hello(Hello("n1", BOOT, HOSTILE, HOSTILE), 1)
        raised = event(1, component=HOSTILE, fault=f"gpu_off_bus{HOSTILE}", check=f"gpu_lost{HOSTILE}")
        raised.at_unix_us = time.time_ns() // 1000
        raised.evidence[f"name{HOSTILE}"].text = HOSTILE
        await store.record("n1", [raised], raised.at_unix_us)
        drain = DrainFact(
            "i-1", HOSTILE, HOSTILE, Severity.CRITICAL, True, DrainStatus.WANTED, AT, (HOSTILE,), queued_reason=HOSTILE
        )
        state = FleetState(nodes={"n1": NodeFacts("n1", NodeState.SUSPECT, AT, profile=HOSTILE, drain=drain)})
        actions = tuple(
            Action(f"{kind}-1", kind, "n1", "i-1", HOSTILE, HOSTILE, job=HOSTILE, text=HOSTILE)
            for kind in (ActionKind.SHADOW, ActionKind.DRAIN)
        )
        moved = Transition("n1", None, NodeState.SUSPECT, HOSTILE, HOSTILE, AT)
        step = Step(state, actions, (moved,))
        await store.write(lambda c: state_store.save(c, FleetState(), step, AT))
        view = NodeView("n1", HOSTILE, frozenset({HOSTILE}), HOSTILE, HOSTILE)
        known = coverage.survey({}, coverage.World({"n1": view}, refused={"n1": HOSTILE}), AT)
        said = ControllerStatus(mode="enforce", breaker_open=True, breaker_why=HOSTILE)
        await store.write(lambda c: known_nodes.save(c, known.values(), []))
        await store.write(lambda c: known_nodes.save_status(c, said, AT))
        await store.close()

    asyncio.run(fill())
    return sqlite_url


READING = (
    ["nodes"],
    ["node", "n1"],
    ["status"],
    ["events"],
    ["actions"],
    ["incidents"],
    ["dry-run"],
    ["queue"],
    ["report", "all"],
    ["report", "all", "--csv"],
)


def printed(monkeypatch: pytest.MonkeyPatch, out: io.StringIO, argv: list[str]) -> str:
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    assert main(argv) == 0
    return out.getvalue()


@pytest.mark.parametrize("argv", READING, ids=" ".join)
def test_no_verb_passes_control_characters_to_a_terminal(
    monkeypatch: pytest.MonkeyPatch, database: str, argv: list[str]
) -> None:
    text = STYLE.sub("", printed(monkeypatch, Terminal(), [*argv, "--database", database]))

    assert all(c.isprintable() or c == "\n" for c in text)
    assert not any(line.startswith("fake line") for line in text.splitlines())


@pytest.mark.parametrize("argv", READING[:8], ids=" ".join)
def test_no_verb_passes_control_characters_to_a_pipe(
    monkeypatch: pytest.MonkeyPatch, database: str, argv: list[str]
) -> None:
    text = printed(monkeypatch, io.StringIO(), [*argv, "--database", database])

    assert all(c.isprintable() or c == "\n" for c in text)
    assert "fake line" in text or argv == ["status"]


@pytest.mark.parametrize("argv", READING[:9], ids=" ".join)
def test_json_is_ascii_and_escapes_what_a_node_sent(
    monkeypatch: pytest.MonkeyPatch, database: str, argv: list[str]
) -> None:
    text = printed(monkeypatch, Terminal(), [*argv, "--database", database, "--json"])

    assert all(c.isprintable() or c == "\n" for c in text)


def test_the_story_of_one_incident_passes_none_on_either(monkeypatch: pytest.MonkeyPatch, database: str) -> None:
    found = json.loads(printed(monkeypatch, io.StringIO(), ["incidents", "--database", database, "--json"]))

    text = printed(monkeypatch, Terminal(), ["incident", found[0]["id"], "--database", database])
    assert "fake line" in text
    assert all(c.isprintable() or c == "\n" for c in STYLE.sub("", text))
