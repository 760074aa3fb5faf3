"""The study of the history for lemons: a program of its own, bounded, whose answer reaches the policy."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from nodetriage.controller.engine.lemon_study import LemonStudy, StudyFailed
from nodetriage.controller.policy.fleet_state import LemonsFound
from nodetriage.controller.settings.lemon_study import LemonStudySettings
from nodetriage.controller.store import schema
from nodetriage.controller.store.state_store import to_us


def store(folder: Path) -> str:
    """Forty nodes with a critical fault each within four weeks, and n7 with seven, each of which drained it."""
    url, now = f"sqlite:///{folder}/history.sqlite", datetime.now(UTC)
    engine = create_engine(url)
    schema.metadata.create_all(engine)
    days = [(f"n{i}", 1 + i % 25) for i in range(40)] + [("n7", 2 + 3 * k) for k in range(7)]
    with engine.begin() as connection:
        for i in range(40):
            facts = {"boot_id": "b", "agent_version": "1", "profile": "", "first_seen_us": 0, "last_seen_us": 0}
            connection.execute(schema.nodes.insert(), {"node": f"n{i}", **facts})
        for seq, (node, day) in enumerate(days):
            at_us = to_us(now - timedelta(days=day))
            what = {"check_name": "gpu_xid", "component": "GPU-1", "fault": "gpu_off_bus", "severity": 4, "kind": 1}
            stored = {"node": node, "boot_id": "b", "seq": seq, "at_us": at_us, "received_us": at_us, "message": b""}
            connection.execute(schema.events.insert(), {**stored, **what})
            incident = {
                "incident": f"i{seq}",
                "node": node,
                "fault": "gpu_off_bus",
                "component": "GPU-1",
                "severity": 4,
            }
            times = {"causes": "gpu_off_bus", "opened_us": at_us, "drained_us": at_us, "closed_us": at_us + 1}
            connection.execute(schema.incidents.insert(), {**incident, **times})
    engine.dispose()
    return url


def study(url: str, found: list[LemonsFound], **more: Any) -> LemonStudy:
    async def post(event: LemonsFound) -> None:
        found.append(event)

    return LemonStudy(LemonStudySettings(limit_s=more.pop("limit_s", 100)), url, post, **more)


async def test_the_node_that_fails_again_and_again_is_found_from_the_controllers_own_store(tmp_path: Path) -> None:
    found: list[LemonsFound] = []
    await study(store(tmp_path), found).once()
    ((verdict,),) = [event.verdicts for event in found]
    assert verdict.node == "n7"
    assert verdict.chance < 0.001
    assert "out of service 8 times" in verdict.why


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("print('nonsense')", "its answer makes no sense"),
        ('print(\'{"until": "2026-11-30T12:00:00Z", "lemons": [{"node": 7}]}\')', "its answer makes no sense"),
        ("import sys; sys.exit('no such table')", "exit status 1: no such table"),
        ("while True: pass", "no answer after 1 s"),
    ],
)
async def test_a_study_that_fails_says_why_and_tells_the_policy_nothing(program: str, why: str) -> None:
    found: list[LemonsFound] = []
    with pytest.raises(StudyFailed, match=why):
        await study(
            "sqlite://", found, command=(sys.executable, "-c", program), limit_s=1 if "while" in program else 100
        ).once()
    assert found == []


async def test_a_database_that_is_not_there_is_named_and_no_password_is_an_argument(tmp_path: Path) -> None:
    with pytest.raises(StudyFailed, match=r"nothing\.sqlite"):
        await study(f"sqlite:///{tmp_path}/nothing.sqlite", []).once()
    secret = "import sys; print(sys.argv, file=sys.stderr); sys.exit(1)"
    with pytest.raises(StudyFailed) as failed:
        await study("postgresql://u:hunter2@h/db", [], command=(sys.executable, "-c", secret)).once()
    assert "hunter2" not in str(failed.value)


@pytest.mark.parametrize("wrong", [{"every_s": -1}, {"every_s": 10}, {"limit_s": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected every_s"):
        LemonStudySettings(**wrong)
