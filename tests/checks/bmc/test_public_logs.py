"""Event logs from public reports: each has what an engineer would call a fault, and nothing else above an info."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from nodetriage.checks.bmc import bmc_sel
from nodetriage.checks.model import Severity
from nodetriage.checks.readers import sel

DATA = Path(__file__).parents[1] / "data/sel_public.toml"
LOGS = tomllib.loads(DATA.read_text())["log"]


def found(log: dict[str, Any], *, first: bool) -> list[list[str]]:
    entries, strange = sel.log_entries(log["lines"])
    assert strange == 0
    clock = sel.stamp("12/01/26 06:00:00 UTC")
    now = bmc_sel.EventLog(clock.at_s, 3, overflow=False, entries=entries, zone=clock.zone)
    before = None if first else bmc_sel.next_state(None, bmc_sel.EventLog(0.0, 0, overflow=False, entries=()))
    findings = bmc_sel.judge(now, before, bmc_sel.Policy())
    return [[f.component, f.fault, f.severity.name.lower()] for f in findings if f.severity > Severity.INFO]


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log["source"][:40])
def test_a_public_log_gives_its_faults_and_nothing_else(log: dict[str, Any]) -> None:
    assert found(log, first=False) == log["found"]


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log["source"][:40])
def test_the_first_run_on_an_old_log_gives_nothing(log: dict[str, Any]) -> None:
    assert found(log, first=True) == []


def test_there_are_enough_of_them_and_some_are_healthy() -> None:
    assert len(LOGS) >= 15
    assert sum(not log["found"] for log in LOGS) >= 3
