"""nodetriagectl reads the history: tables for people, JSON for programs, clear words otherwise."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from fleet_client import BOOT, event
from programs import NODETRIAGECTL

from nodetriage.controller.cli.main import _parser, main
from nodetriage.controller.store import schema
from nodetriage.controller.store.database import create_tables, open_database
from nodetriage.controller.store.mappers import Hello
from nodetriage.controller.store.store import Store
from nodetriage.service import moment
from nodetriage.v1 import health_pb2 as pb

ACTION = {
    "id": "d1", "kind": "drain", "node": "n1", "incident": "i-7", "fault": "gpu_lost", "component": "GPU-1",
    "severity": 4, "job": "", "restarts": 0, "hold": 0, "text": "nodetriage: gpu_lost", "status": "pending",
    "outcome": "", "detail": "slurmctld did not answer", "attempts": 2, "next_try_us": 0, "decided_us": 5_000_000,
}  # fmt: skip


@pytest.fixture
def filled(sqlite_url: str) -> str:
    async def fill() -> None:
        store = Store(open_database(sqlite_url))
        await store.open()
        for node in ("n1", "n2"):
            await store.record_hello(Hello(node, BOOT, "0.1.0", "h100"), 1)
        lost = event(1)
        lost.evidence["seen"].whole = 7
        outcome = pb.Event(
            boot_id=BOOT, seq=3, kind=pb.EVENT_KIND_OUTCOME, check="gpu_lost", outcome=pb.OUTCOME_FINDINGS
        )
        low = event(2, fault="ib_link_down", component="mlx5_0/1", severity=pb.SEVERITY_MAJOR)
        await store.record("n1", [lost, low, outcome], 5)
        await store.write(lambda c: c.execute(schema.actions.insert(), ACTION))
        await store.close()

    asyncio.run(fill())
    return sqlite_url


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 0
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    return json.loads(printed(capsys, *argv, "--json"))


def test_nodes_shows_every_node_and_what_is_wrong_with_it(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "nodes", "--database", filled).splitlines()
    assert lines[0].split() == ["node", "state", "seen", "worst", "findings"]
    assert lines[1].split()[0] == "n1"
    assert "critical" in lines[1]
    assert "gpu_lost, ib_link_down" in " ".join(line.strip() for line in lines[1:])
    [n1, n2] = as_json(capsys, "nodes", "--database", filled)
    assert [(f["fault"], f["severity"]) for f in n1["findings"]] == [
        ("gpu_lost", "critical"),
        ("ib_link_down", "major"),
    ]
    assert (n2["node"], n2["findings"], n2["profile"]) == ("n2", [], "h100")


def test_node_tells_findings_checks_and_actions(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "node", "n1", "--database", filled)
    for word in ("Open findings", "GPU-1", "seen=7", "findings", "drain", "[i-7]"):
        assert word in text
    whole = as_json(capsys, "node", "n1", "--database", filled)
    [check] = whole["checks"]
    assert (check["check"], check["outcome"], check["age_s"]) == ("gpu_lost", "findings", None)
    assert (whole["actions"][0]["severity"], whole["actions"][0]["decided_at"][:19]) == (
        "critical",
        "1970-01-01T00:00:05",
    )


def test_events_are_filtered(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    def seqs(*argv: str) -> list[int]:
        return [e["seq"] for e in as_json(capsys, "events", "--database", filled, *argv)]

    assert seqs() == [1, 2, 3]
    assert seqs("--severity", "critical") == [1]
    assert seqs("--fault", "ib_link_down", "--fault", "other") == [2]
    assert seqs("--node", "n2") == []
    assert seqs("--limit", "1") == [3]
    assert seqs("--since", "7d") == []
    [first] = as_json(capsys, "events", "--database", filled, "--severity", "critical")
    assert (first["kind"], first["evidence"], first["node"]) == ("raised", {"seen": 7}, "n1")


def test_actions_show_what_is_still_to_be_done_and_why_it_is_not(
    filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    [action] = as_json(capsys, "actions", "--open", "--database", filled)
    assert (action["id"], action["status"], action["detail"]) == ("d1", "pending", "slurmctld did not answer")
    assert "did not answer" in " ".join(printed(capsys, "actions", "--database", filled).split())


def leaves(
    parser: argparse.ArgumentParser, name: str = "nodetriagectl"
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        yield name, parser
    for action in inner:
        for verb, child in action.choices.items():
            yield from leaves(child, f"{name} {verb}")


def test_every_verb_prints_json() -> None:
    verbs = dict(leaves(_parser([])))

    assert len(verbs) > 30
    without = [name for name, verb in verbs.items() if "--json" not in verb._option_string_actions]
    assert without == ["nodetriagectl controller"]  # runs until it is stopped; its log is JSON


def test_every_option_since_has_the_same_grammar() -> None:
    given = {name: verb._option_string_actions.get("--since") for name, verb in leaves(_parser([]))}
    options = [option for option in given.values() if option]

    assert len(options) >= 5
    assert {option.type for option in options} == {moment.argument}
    assert all(moment.TEXT in str(option.help) for option in options)


def test_before_a_controller_ever_ran_the_answer_is_unknown(
    tmp_path: Path, sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nodes", "--database", sqlite_url]) == 3
    assert "no database yet" in capsys.readouterr().err
    engine = open_database(sqlite_url)
    create_tables(engine)
    engine.dispose()
    assert main(["nodes", "--database", sqlite_url]) == 0
    assert "no agent has connected yet" in capsys.readouterr().out
    assert main(["node", "n9", "--database", sqlite_url]) == 3
    assert "no agent of a node of this name" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("closed", ["folder", "database", "settings"])
def test_a_user_who_may_not_read_is_refused_in_one_line(filled: str, tmp_path: Path, closed: str) -> None:
    private = tmp_path / "private"
    private.mkdir()
    database = (tmp_path / "history.sqlite").rename(private / "history.sqlite")
    settings = private / "controller.toml"
    settings.write_text(f'[controller]\nstate_dir = "{private}"\n')
    refused = {"folder": private, "database": database, "settings": settings}[closed]
    refused.chmod(0o600)
    os.chown(refused, 65534, 65534)
    argv = ["--config", str(settings)] if closed == "settings" else ["--database", f"sqlite:///{database}"]
    without_power = ["setpriv", "--bounding-set", "-all"]  # uid 0 is then a user as others, and can load this Python

    run = subprocess.run([*without_power, NODETRIAGECTL, "nodes", *argv], capture_output=True, text=True, timeout=60)

    assert run.returncode == 3, run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert "ermission denied" in run.stderr or "unable to open database file" in run.stderr


def test_the_command_is_a_module_too() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "nodetriage.controller", "--version"], capture_output=True, text=True, timeout=60
    )

    assert run.stdout == f"nodetriagectl {metadata.version('nodetriage')}\n"


def test_a_database_that_is_away_is_unknown_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", "--database", f"postgresql:///x?host={tmp_path}"]) == 3
    assert "nodetriagectl: database: " in capsys.readouterr().err


def test_postgresql_is_read_the_same_way(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", "--database", postgres_url]) == 3
    assert "no tables yet" in capsys.readouterr().err
    engine = open_database(postgres_url)
    create_tables(engine)
    engine.dispose()
    assert as_json(capsys, "events", "--database", postgres_url) == []


@pytest.mark.parametrize(
    "argv", [["nodes", "--config", "/nowhere.toml"], ["events", "--since", "soon"], ["nonsense"], []]
)
def test_a_wrong_command_line_or_file_is_bad_configuration(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(argv)
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 78
    assert "nodetriagectl" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"nodetriagectl {metadata.version('nodetriage')}\n"
