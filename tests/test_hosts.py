"""Each recorded machine through the real program: its JSON is what the machine's expected.json says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodetriage.checks.profiles.catalogue import profiles

HOSTS = Path(__file__).with_name("hosts")
MACHINES = sorted(path.name for path in HOSTS.iterdir() if path.is_dir())


def nodetriage(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """From another folder and without our environment, as a stranger would run it."""
    return subprocess.run(
        [sys.executable, "-m", "nodetriage.agent.cli.main", *arguments],
        cwd=HOSTS.parents[1],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_a_recorded_machine_gives_what_is_expected_of_it(machine: str, update_golden: bool) -> None:
    golden = HOSTS / machine / "expected.json"

    ran = nodetriage("check", "--root", f"tests/hosts/{machine}", "--json")

    assert ran.stderr == ""
    said = json.loads(ran.stdout)
    assert ran.returncode == said["exit_code"]
    if update_golden:
        golden.write_text(json.dumps(said, indent=2) + "\n")
    assert said == json.loads(golden.read_text())


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
