"""What one run can tell, and what it cannot."""

import dataclasses
import json
from pathlib import Path

import pytest

from nodetriage.agent.cli.main import main
from nodetriage.agent.cli.one_shot import Looks, on_this_machine, qualified, summed
from nodetriage.agent.core.result import Result
from nodetriage.agent.settings.config import defaults
from nodetriage.checks.gpu import gpu_thermal
from nodetriage.checks.model import Finding, Outcome, Severity
from nodetriage.checks.registry import ALL

HOSTS = Path(__file__).parents[2] / "hosts"
LOST = next(check for check in ALL if check.name == "gpu_lost")


def test_a_check_that_needs_three_runs_is_not_ok_after_one(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "gpu_thermal", "gpu_throttle", "gpu_xid", "--root", str(HOSTS / "dgx-h100"), "--json"])

    said = {c["check"]: (c["outcome"], c["why"]) for c in json.loads(capsys.readouterr().out)["checks"]}
    assert said["gpu_thermal"] == ("skipped", "needs 3 runs in a row, 300 s apart; this was one")
    assert said["gpu_throttle"] == said["gpu_thermal"]
    assert said["gpu_xid"] == ("ok", "")


def test_a_machine_of_which_only_such_checks_ran_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "gpu_thermal", "--root", str(HOSTS / "dgx-h100")]) == 3

    assert "needs 3 runs in a row" in capsys.readouterr().out


def test_enough_runs_are_ok() -> None:
    ok = Result("gpu_thermal", Outcome.OK)

    assert qualified(gpu_thermal.CHECK, ok, runs=2).outcome is Outcome.SKIPPED
    assert qualified(gpu_thermal.CHECK, ok, runs=3) == ok


def test_a_finding_that_two_runs_must_show_is_shown_as_not_confirmed() -> None:
    found = Result("gpu_lost", Outcome.FINDINGS, (Finding("0000:1b:00.0", "gpu_missing", Severity.CRITICAL),))

    once = qualified(LOST, found, runs=1)

    assert (once.outcome, once.findings) == (found.outcome, found.findings)
    assert once.why == "not confirmed: 2 runs in a row must agree"
    confirmed_at_once = dataclasses.replace(LOST, raise_after=1)
    assert qualified(confirmed_at_once, found, runs=1) == found


@pytest.mark.parametrize("outcome", [Outcome.SKIPPED, Outcome.BROKEN, Outcome.HUNG])
def test_every_other_outcome_stays_as_it_is(outcome: Outcome) -> None:
    result = Result("gpu_thermal", outcome, why="no GPU")

    assert qualified(gpu_thermal.CHECK, result, runs=1) == result


def outcomes(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return {c["check"]: c["outcome"] for c in json.loads(capsys.readouterr().out)["checks"]}


def test_as_many_looks_as_a_check_needs_can_be_taken(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", "gpu_thermal", "--root", str(HOSTS / "dgx-h100"), "--json"]

    assert main([*command, "--looks", "2"]) == 3
    assert outcomes(capsys) == {"gpu_thermal": "skipped"}
    assert main([*command, "--looks", "3"]) == 0
    assert outcomes(capsys) == {"gpu_thermal": "ok"}


def test_heat_that_stays_is_found_by_three_looks_and_not_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", "gpu_thermal", "--root", str(HOSTS / "dgx-h100-hot"), "--json"]

    main(command)
    assert outcomes(capsys) == {"gpu_thermal": "skipped"}
    main([*command, "--looks", "3"])
    assert outcomes(capsys) == {"gpu_thermal": "findings"}


def test_a_finding_is_confirmed_by_a_second_look_that_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", "services", "--root", str(HOSTS / "dgx-h100-services"), "--json"]
    main(command)
    (once,) = json.loads(capsys.readouterr().out)["checks"]
    main([*command, "--looks", "2"])
    (twice,) = json.loads(capsys.readouterr().out)["checks"]

    assert (once["why"], twice["why"]) == ("not confirmed: 2 runs in a row must agree", "")
    assert once["findings"] == twice["findings"]


def test_looks_that_do_not_agree_confirm_nothing() -> None:
    found = Result("gpu_lost", Outcome.FINDINGS, (Finding("0000:1b:00.0", "gpu_missing", Severity.CRITICAL),))
    other = Result("gpu_lost", Outcome.FINDINGS, (Finding("0000:43:00.0", "gpu_missing", Severity.CRITICAL),))

    assert summed(LOST, [found, found], runs=2) == found
    assert summed(LOST, [other, found], runs=2).why.startswith("not confirmed")
    assert summed(LOST, [Result("gpu_lost", Outcome.OK), found], runs=2).why.startswith("not confirmed")


def test_the_text_says_how_many_looks_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "gpu_thermal", "gpu_xid", "--root", str(HOSTS / "dgx-h100")])
    assert capsys.readouterr().err == "nodetriage: some checks need 3 looks: --looks 3\n"

    main(["check", "gpu_xid", "--root", str(HOSTS / "dgx-h100")])
    assert capsys.readouterr().err == ""


async def test_the_looks_of_this_machine_go_to_the_workers_with_what_the_check_remembers() -> None:
    settings = defaults(ALL)
    services = next(check for check in ALL if check.name == "clock_sync")
    said: list[str] = []

    (result,) = await on_this_machine([services], settings, Looks(2, 0.0), said.append)

    assert said == ["look 2 of 2, in 0 s"]
    assert result.outcome in (Outcome.OK, Outcome.FINDINGS, Outcome.SKIPPED)
