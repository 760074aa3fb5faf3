"""nodetriagectl reads the history: tables for people, JSON for programs, clear words otherwise."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from fleet_client import BOOT, event
from programs import NODETRIAGECTL
from sqlalchemy import Connection

from nodetriage.controller.cli.main import _parser, main
from nodetriage.controller.engine.inputs import events_after
from nodetriage.controller.policy import transition
from nodetriage.controller.policy.agents import coverage
from nodetriage.controller.policy.agents.coverage import Known, Presence
from nodetriage.controller.policy.state import FleetState
from nodetriage.controller.settings.rules import Mode, Policy
from nodetriage.controller.store import known_nodes, schema, state_store
from nodetriage.controller.store.database import create_tables, open_database
from nodetriage.controller.store.known_nodes import ControllerStatus
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
        await store.write(judge)
        await store.close()

    asyncio.run(fill())
    return sqlite_url


def judge(connection: Connection) -> None:
    """The policy takes in all events, as a controller's does."""
    state, now = FleetState(), datetime.now(UTC)
    for stored in events_after(connection, 0, 1000):
        step = transition.step(state, stored, now, Policy(mode=Mode.OBSERVE))
        state_store.save(connection, state, step, now)
        state = step.state


def survey(url: str, now: datetime, *known: Known, **said: Any) -> None:
    """A controller says who reports, and what it may do."""
    counted = {str(p): n for p, n in coverage.counts({k.node: k for k in known}).items()}
    status = ControllerStatus(version="1", mode="enforce", presences=counted, **said)
    with open_database(url).begin() as connection:
        known_nodes.save(connection, known, [])
        known_nodes.save_status(connection, status, now)


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 0
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    return json.loads(printed(capsys, *argv, "--json"))


def test_nodes_shows_every_node_and_what_is_wrong_with_it(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "nodes", "--database", filled).splitlines()[2:]
    assert lines[0].split() == ["node", "state", "agent", "slurm", "worst", "findings"]
    assert lines[1].split()[0] == "n1"
    assert "critical" in lines[1]
    assert "gpu_lost, ib_link_down" in " ".join(line.strip() for line in lines[1:])
    [n1, n2] = as_json(capsys, "nodes", "--database", filled)
    assert [(f["fault"], f["severity"]) for f in n1["findings"]] == [
        ("gpu_lost", "critical"),
        ("ib_link_down", "major"),
    ]
    assert (n2["node"], n2["findings"], n2["profile"]) == ("n2", [], "h100")


def test_no_node_is_healthy_without_a_controller_that_runs_and_an_agent_that_reports(
    filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(UTC)

    def states() -> list[tuple[str, str]]:
        return [(n["state"], n["presence"]) for n in as_json(capsys, "nodes", "--database", filled)]

    assert states() == [("Unknown", "silent"), ("Unknown", "silent")]  # no controller has said anything
    with open_database(filled).begin() as connection:
        connection.execute(schema.node_states.update().values(state="Healthy"))
    heard = [Known(name, Presence.HEARD, now, in_scheduler=True, slurm="idle") for name in ("n1", "n2")]
    survey(filled, now, *heard)
    assert states() == [("Healthy", "heard"), ("Unknown", "heard")]  # the policy has heard no event of n2 yet
    survey(filled, now, replace(heard[0], presence=Presence.SILENT))
    assert states()[0] == ("Unknown", "silent")
    survey(filled, now - timedelta(seconds=60), *heard)
    assert states()[0] == ("Unknown", "heard")
    assert printed(capsys, "nodes", "--database", filled).startswith("NO CONTROLLER since")


def test_slurms_own_word_stands_beside_ours_and_nodes_without_an_agent_are_there(
    filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(UTC)
    taken = "gres/gpu count reported lower than configured (7 < 8)"
    survey(
        filled,
        now,
        Known("n1", Presence.HEARD, now, in_scheduler=True, slurm="idle+drain", reason=taken, reason_by="slurm"),
        Known("n3", Presence.NEVER, now, in_scheduler=True, slurm="idle"),
        Known("n4", Presence.REFUSED, now, "agent 9.0 does not match", in_scheduler=True, slurm="idle"),
        scheduler_nodes=1000,
        breaker_open=True,
        breaker_why="25 nodes",
    )
    head, coverage_line, _, *rows = printed(capsys, "nodes", "--database", filled).splitlines()
    assert "mode enforce; breaker OPEN (25 nodes)" in head
    assert coverage_line == "1,000 in Slurm, 1 heard, 1 never, 1 refused"
    assert f"idle+drain {taken} (slurm)" in rows[1]
    assert [row.split()[0] for row in rows[1:]] == ["n1", "n2", "n3", "n4"]
    assert "Unknown" in rows[3]
    assert "refused: agent 9.0 does not match" in rows[4]
    assert as_json(capsys, "status", "--database", filled)["presences"]["never"] == 1


def test_nodes_are_filtered_and_sorted(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC)
    survey(
        filled,
        now,
        *(Known(f"n{i}", Presence.HEARD, now, slurm="down" if i == 2 else "idle") for i in (1, 2)),
        *(Known(f"n{i}", Presence.NEVER, now, slurm="idle") for i in (3, 4, 5)),
    )

    def named(*argv: str) -> list[str]:
        return [n["node"] for n in as_json(capsys, "nodes", "--database", filled, *argv)]

    assert named() == ["n1", "n2", "n3", "n4", "n5"]
    assert named("n[2-3],n5") == ["n2", "n3", "n5"]
    assert named("--agent", "never") == ["n3", "n4", "n5"]
    assert named("--fault", "gpu_*") == ["n1"]
    assert named("--severity", "warning") == ["n1"]
    assert named("--slurm", "down") == ["n2"]
    assert named("--state", "Retired") == []
    assert named("--sort", "severity")[0] == "n1"
    assert main(["nodes", "n[1-", "--database", filled]) == 78
    assert "expected a node set" in capsys.readouterr().err


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
    assert "no controller has said anything yet" in capsys.readouterr().out
    assert main(["node", "n9", "--database", sqlite_url]) == 3
    assert "neither an agent nor the scheduler names such a node" in capsys.readouterr().err


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
