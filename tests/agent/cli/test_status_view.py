"""What the running agent says, for people."""

import copy
from typing import Any

import pytest

from nodetriage.agent.cli import status_view
from nodetriage.agent.cli.style import Style
from nodetriage.checks.model import Outcome

SAID: dict[str, Any] = {
    "checks": {
        "fs_mounts": {"outcome": "ok", "age_s": 12.3, "why": "", "took_ms": 1.0, "findings": []},
        "gpu_xid": {
            "outcome": "findings",
            "age_s": 0.4,
            "why": "",
            "took_ms": 1.0,
            "findings": [
                {
                    "component": "0000:3a:00.0",
                    "fault": "gpu_off_bus",
                    "severity": "critical",
                    "evidence": {"xid": 79},
                    "open_s": 7300.0,
                    "occurrences": 2,
                }
            ],
        },
        "ib_link": {"outcome": None, "age_s": None, "why": "it has not run yet", "findings": []},
    },
    "abandoned_workers": [{"class": "storage", "pid": 42, "check": "fs_mounts", "doing": "statvfs /data"}],
    "abandoned_programs": 2,
    "node": "gpu042",
    "version": "0.1.0",
    "spool": {"events": 3, "trouble": "", "next_seq": 9},
    "controller": {"connected": False, "state": "cannot reach controller:7433"},
    "kernel_log": {"followed": False, "trouble": "/dev/kmsg: Operation not permitted"},
}


def test_the_answer_reads_as_a_round_with_ages_and_how_the_agent_is() -> None:
    shown = "\n".join(status_view.as_text(SAID, status_view.results(SAID), Style(80)))

    assert "critical 0000:3a:00.0: gpu_off_bus" in shown
    assert "open_for='2.0 h'" in shown
    words = " ".join(shown.split())
    assert "fs_mounts ok 12 s ago" in words
    assert "Node gpu042, agent 0.1.0; controller: cannot reach controller:7433; 3 events to send" in words
    assert "kernel log not followed: /dev/kmsg: Operation not permitted" in words
    assert "storage worker 42 hangs at: statvfs /data" in words
    assert "2 programs of checks hang in the kernel" in words
    assert max(map(len, shown.splitlines())) <= 80


def test_a_fault_that_is_held_is_in_the_exit_code() -> None:
    assert status_view.exit_code(status_view.results(SAID)) == 2


def test_a_check_that_has_not_run_is_not_ok() -> None:
    said = copy.deepcopy(SAID)
    said["checks"] = {"ib_link": SAID["checks"]["ib_link"]}

    (result,) = status_view.results(said)

    assert result.outcome is Outcome.SKIPPED
    assert status_view.exit_code([result]) == 3


def test_an_agent_that_could_look_at_nothing_is_not_ok() -> None:
    said = copy.deepcopy(SAID)
    well = SAID["checks"]["fs_mounts"]
    said["checks"] = {"gpu_lost": {**well, "outcome": "skipped", "why": "no GPU"}, "agent": well}

    assert status_view.exit_code(status_view.results(said)) == 3


@pytest.mark.parametrize("wrong", [{}, {"checks": {"x": {}}}, {"checks": {"x": {"outcome": "fine", "findings": []}}}])
def test_an_answer_of_another_version_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        status_view.results(wrong)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4 s"), (12.3, "12 s"), (300, "5 min"), (7300, "2.0 h"), (90_000, "25 h"), (200_000, "2 d")],
)
def test_an_age_has_two_figures(seconds: float, text: str) -> None:
    assert status_view.age(seconds) == text
