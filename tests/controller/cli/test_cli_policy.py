"""What a policy says of a fault, what shadow rules kept from being done, what another policy would have done."""

import json
import time
from pathlib import Path

import pytest
from opened_store import event, opened
from simulated import START, Month

from nodetriage.controller.cli.main import main
from nodetriage.controller.engine import inputs
from nodetriage.controller.policy.state import Action, ActionKind, FleetState, NodeEvent, Step
from nodetriage.controller.policy.verify.replay import ReplayInput
from nodetriage.controller.settings.policy_file import load_policy, shipped_policy
from nodetriage.controller.settings.rules import Mode, Policy
from nodetriage.controller.store import state_store
from nodetriage.controller.store.database import create_tables, open_database
from nodetriage.v1 import health_pb2 as pb


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(
        """
        mode = "enforce"
        [[rule]]
        fault = "mount_hung"
        action = "drain_after_job"
        hold_s = 120
        returns = "checks_pass"
        [[rule]]
        fault = "mount_hung"
        partition = "debug"
        action = "record"
        [[rule]]
        fault = "gpu_off_bus"
        action = "record"
        shadow = true
        [shadow]
        faults = ["ib_link_down"]
        """
    )
    return path


def explain(own: Path, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[str, str]:
    assert main(["policy", "explain", *argv, "--policy", str(own), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert main(["policy", "explain", *argv, "--policy", str(own)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"so: {told['action']}"
    return told["action"], "\n".join(told["steps"])


def test_a_fault_is_explained_from_its_severity_through_the_rules_to_what_is_done(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    action, steps = explain(own, capsys, "mount_hung", "--severity", "critical")
    assert action == "drain_after_job"
    for words in ("[severity] critical = drain_and_requeue", "lasted 120 s", "the checks, 600 s", "10 an hour"):
        assert words in steps
    assert explain(own, capsys, "mount_hung", "--partition", "debug")[0] == "record"


def test_what_is_only_said_is_explained_as_that(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    action, steps = explain(own, capsys, "gpu_off_bus")
    assert (action, "is in shadow" in steps) == ("drain_and_requeue", True)
    action, steps = explain(own, capsys, "ib_link_down", "--severity", "major")
    assert (action, "the fault is in shadow" in steps) == ("shadow", True)


def test_an_unknown_fault_and_an_unsound_file_are_bad_configuration(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "check", str(own)]) == 0
    assert "3 rules" in capsys.readouterr().out
    assert main(["policy", "explain", "no_such_thing", "--policy", str(own)]) == 78
    own.write_text("[breaker]\nwindow_s = 0\n")
    assert main(["policy", "check", str(own)]) == 78
    assert "breaker" in capsys.readouterr().err


def test_an_xid_is_explained_by_its_number_as_by_its_fault(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(own, capsys, "79") == explain(own, capsys, "gpu_off_bus")
    assert explain(own, capsys, "Xid 79") == explain(own, capsys, "gpu_off_bus")
    assert explain(own, capsys, "sxid 20034")[1].startswith("nvswitch_")


def test_a_rule_about_an_unknown_fault_is_named_by_its_number(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.write_text('[[rule]]\naction = "record"\n[[rule]]\nfault = "gpu_of_bus"\naction = "record"\n')

    assert main(["policy", "check", str(own)]) == 78
    error = capsys.readouterr().err
    assert f"{own}: rule 2: fault = 'gpu_of_bus': expected a fault code" in error
    assert ": :" not in error


def test_the_shipped_file_says_what_is_in_force_without_one(tmp_path: Path) -> None:
    empty = tmp_path / "p.toml"
    empty.write_text("")
    assert shipped_policy() == load_policy(empty) == Policy()


def test_what_shadow_kept_from_being_done_is_counted_by_fault(
    sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = open_database(sqlite_url)
    create_tables(engine)
    now = state_store.from_us(time.time_ns() // 1000)
    shadow = [
        Action(f"shadow-{i}", ActionKind.SHADOW, node, fault="ib_link_down", text="drain_after_job")
        for i, node in enumerate(("n1", "n1", "n2"))
    ]
    with engine.begin() as connection:
        state_store.save(connection, FleetState(), Step(FleetState(), tuple(shadow)), now)
    engine.dispose()

    assert main(["dry-run", "--database", sqlite_url, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["actions"]
    assert (row["action"], row["fault"], row["times"], row["nodes"]) == ("drain_after_job", "ib_link_down", 3, 2)
    assert main(["dry-run", "--database", sqlite_url]) == 0


async def test_each_job_that_an_observing_hook_would_have_refused_is_in_the_report(
    sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(seq: int, job: str, **evidence: bool) -> pb.Event:
        whole = {"job_id": pb.Value(text=job), **{name: pb.Value(flag=flag) for name, flag in evidence.items()}}
        kind = pb.EVENT_KIND_OUTCOME
        return event(seq, kind=kind, check="prolog", component="0000:3a:00.0", fault="gpu_off_bus", evidence=whole)

    async with opened(sqlite_url, "n1") as store:
        now_us = time.time_ns() // 1000
        events = [said(1, "7", would_refuse=True), said(2, "8", refused=True), said(3, "9", would_refuse=False)]
        for one in events:
            one.at_unix_us = now_us
        await store.record("n1", events, now_us)

    assert main(["dry-run", "--database", sqlite_url, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (row["node"], row["hook"], row["fault"], row["job"]) == ("n1", "prolog", "gpu_off_bus", "7")


def test_a_replay_prints_both_policies_figures_and_their_difference(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The agents' events are left out here, so that there is nothing to drain for."""
    month = Month(Policy(mode=Mode.ENFORCE), nodes=12).run(days=1)
    engine = open_database(sqlite_url)
    create_tables(engine)
    recorder = inputs.Recorder()
    other = tmp_path / "other.toml"
    other.write_text('mode = "observe"\n')
    assert main(["replay", "--policy", str(other), "--database", sqlite_url]) == 3
    with engine.begin() as connection:
        inputs.add(
            connection, [inputs.snapshot_row(FleetState(), START), inputs.policy_row(Policy(mode=Mode.ENFORCE), START)]
        )
        for entry in month.entries:
            if isinstance(entry, ReplayInput) and not isinstance(entry.events[0], NodeEvent):
                inputs.add(connection, recorder.rows(entry.events, entry.at, True))
                recorder.kept(entry.events)
    engine.dispose()

    assert main(["replay", "--policy", str(other), "--database", sqlite_url, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["then"].keys() == told["other"].keys()
    assert main(["replay", "--policy", str(other), "--database", sqlite_url]) == 0
    assert "drained_node_hours" in capsys.readouterr().out
