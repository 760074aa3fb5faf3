"""Each recorded machine through the real program: its JSON is what the machine's expected.json says.

An expected.json holds what is not usual. A check that is not in it is `ok`, or is skipped for the reason that
skipped.json gives for the recording on which the machine is built (`tree` of its like.toml).
"""

import functools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from nodetriage.checks.profiles.catalogue import profiles
from nodetriage.checks.registry import ALL

ROOT = Path(__file__).parents[1]
HOSTS = ROOT / "tests/hosts"
SKIPPED = HOSTS / "skipped.json"
MACHINES = sorted(path.name for path in HOSTS.iterdir() if path.is_dir())
SOURCES = os.pathsep.join(str(path.parent) for path in ROOT.glob("*/nodetriage"))

Check = dict[str, Any]  # one check of `nodetriage check --json`: check, outcome, why, findings


def nodetriage(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The code beside these tests, without our environment, as a stranger would run it."""
    return subprocess.run(
        [sys.executable, "-m", "nodetriage.agent.cli.main", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=100,
    )


def outcome_of(machine: str) -> dict[str, Any]:
    settings = HOSTS / machine / "agent.toml"
    config = ("--config", str(settings)) if settings.exists() else ()
    ran = nodetriage("check", "--root", f"tests/hosts/{machine}", "--json", *config)
    assert ran.stderr == ""
    said: dict[str, Any] = json.loads(ran.stdout)
    assert ran.returncode == said["exit_code"]
    return said


def built_on(machine: str) -> str:
    """The recording that stands for what the machine's own folder lacks; the machine itself where it is whole."""
    like = HOSTS / machine / "like.toml"
    return built_on(tomllib.loads(like.read_text())["tree"]) if like.exists() else machine


WHOLE = [machine for machine in MACHINES if built_on(machine) == machine]


@functools.cache
def skipped(update: bool) -> dict[str, dict[str, list[str]]]:
    """By check and reason, the whole recordings on which the check is skipped. `update` asks the program anew."""
    if not update:
        found: dict[str, dict[str, list[str]]] = json.loads(SKIPPED.read_text())
        return found
    table: dict[str, dict[str, list[str]]] = {}
    for machine in WHOLE:
        for check in outcome_of(machine)["checks"]:
            if check["outcome"] == "skipped":
                table.setdefault(check["check"], {}).setdefault(check["why"], []).append(machine)
    return table


def usual(check: str, machine: str, update: bool = False) -> Check:
    """What a check says of the machine if expected.json does not name it."""
    whole = built_on(machine)
    whys = [why for why, machines in skipped(update).get(check, {}).items() if whole in machines]
    outcome, why = ("skipped", whys[0]) if whys else ("ok", "")
    return {"check": check, "outcome": outcome, "why": why, "findings": []}


def unusual(said: dict[str, Any], machine: str, update: bool = False) -> dict[str, Any]:
    """`said` as expected.json has it: without what is usual; checks that are skipped for one reason on one line."""
    different = [check for check in said["checks"] if check != usual(check["check"], machine, update)]
    skips: dict[str, str] = {}
    for check in different:
        if check["outcome"] == "skipped":
            skips[check["why"]] = f"{skips.get(check['why'], '')} {check['check']}".strip()
    others = [check for check in different if check["outcome"] != "skipped"]
    return {**{k: v for k, v in said.items() if k != "checks"}, "skipped": skips, "checks": others}


def expected(machine: str, update: bool = False) -> dict[str, Any]:
    """What the program should say of the machine, whole."""
    golden = json.loads((HOSTS / machine / "expected.json").read_text())
    known = {check["check"]: check for check in golden["checks"]}
    for why, names in golden.pop("skipped").items():
        known |= {n: {"check": n, "outcome": "skipped", "why": why, "findings": []} for n in names.split()}
    names = [check.name for check in ALL]
    assert set(known) <= set(names)
    return {**golden, "checks": [known.get(name) or usual(name, machine, update) for name in names]}


@functools.cache
def outcomes(machine: str) -> dict[str, str]:
    return {check["check"]: check["outcome"] for check in expected(machine)["checks"]}


def found_no_fault(machine: str, check: str) -> bool:
    """Whether the check looked and saw no fault; one that needs several runs in a row cannot say ok after one."""
    (said,) = (one for one in expected(machine)["checks"] if one["check"] == check)
    return bool(said["outcome"] == "ok" or re.match(r"needs \d+ runs in a row", said["why"]))


def lines(table: Iterable[tuple[str, Any]]) -> str:
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in table) + "\n}\n"


@pytest.mark.parametrize("machine", MACHINES)
def test_a_recorded_machine_gives_what_is_expected_of_it(machine: str, update_golden: bool) -> None:
    said = outcome_of(machine)

    if update_golden:
        (HOSTS / machine / "expected.json").write_text(json.dumps(unusual(said, machine, update=True), indent=2) + "\n")
        SKIPPED.write_text(lines(skipped(update=True).items()))
    assert said == expected(machine, update_golden)


@pytest.mark.parametrize("outcome", ["broken", "hung", "findings", "skipped"])
def test_a_check_that_was_ok_and_is_no_longer_is_not_usual(outcome: str) -> None:
    whole = expected("dgx-h100")
    at, *_ = [i for i, check in enumerate(whole["checks"]) if check["outcome"] == "ok"]
    worse = {**whole["checks"][at], "outcome": outcome, "why": "for another reason"}
    said = {**whole, "checks": [*whole["checks"][:at], worse, *whole["checks"][at + 1 :]]}

    kept = unusual(said, "dgx-h100")

    assert kept["checks"] == ([] if outcome == "skipped" else [worse])
    assert kept["skipped"] == ({"for another reason": worse["check"]} if outcome == "skipped" else {})


def test_every_check_of_the_list_is_expected_of_every_machine() -> None:
    assert {tuple(outcomes(machine)) for machine in MACHINES} == {tuple(check.name for check in ALL)}


def test_the_table_of_skipped_checks_names_only_checks_and_whole_recordings() -> None:
    table = skipped(update=False)

    assert set(table) <= {check.name for check in ALL}
    assert {machine for whys in table.values() for machines in whys.values() for machine in machines} <= set(WHOLE)


@pytest.mark.parametrize("check", [check.name for check in ALL])
def test_each_check_has_a_recorded_machine_on_which_it_is_ok(check: str) -> None:
    well = [machine for machine in MACHINES if found_no_fault(machine, check)]

    assert well, (
        f"record a machine on which {check} has something to look at and finds no fault (tests/hosts/README.md)"
    )


@pytest.mark.parametrize("machine", ["cpu-only", *(name for name in MACHINES if name in profiles())])
def test_a_healthy_machine_has_no_findings_and_is_well(machine: str) -> None:
    """A machine that has the name of a profile is that product without a fault."""
    said = json.loads(nodetriage("check", "--root", f"tests/hosts/{machine}", "--json").stdout)

    assert said["exit_code"] == 0
    assert {check["outcome"] for check in said["checks"]} <= {"ok", "skipped"}
    assert said["profile"] == (machine if machine in profiles() else "generic")


def test_two_looks_at_the_same_machine_say_the_same() -> None:
    looks = {nodetriage("check", "--root", "tests/hosts/dgx-h100-xid79", "--json").stdout for _ in range(2)}

    assert len(looks) == 1
