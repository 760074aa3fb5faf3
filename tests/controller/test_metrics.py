"""What Prometheus is told of the controller, asked over HTTP as it would."""

import asyncio
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from nodetriage.controller import config, metrics
from nodetriage.controller.policy.agents.coverage import Presence
from nodetriage.controller.policy.state import BreakerFacts, FleetState, NodeFacts, NodeState
from nodetriage.controller.store import schema
from nodetriage.controller.store.database import create_tables, open_database

ROOT = Path(__file__).resolve().parents[2]
FACTS = metrics.Facts("1.2.3", 7, {Presence.SILENT: 2}, refused=5)


async def scrape(port: int) -> dict[str, float]:
    """Each sample by its name and labels, as the exposition writes them."""
    text = await asyncio.to_thread(get, port)
    samples = (s for family in text_string_to_metric_families(text) for s in family.samples)
    return {s.name + "".join(f" {k}={v}" for k, v in sorted(s.labels.items())): s.value for s in samples}


def get(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


@asynccontextmanager
async def served(facts: metrics.Facts) -> AsyncIterator[int]:
    async def ask() -> metrics.Facts:
        return facts

    registry = CollectorRegistry()
    metrics.Meters(registry).stored(3, 0.004)
    async with metrics.serving(registry, "127.0.0.1:0", ask) as port:
        yield port


def test_each_figure_is_what_the_controller_knows() -> None:
    now = datetime.now(UTC)
    nodes = {n: NodeFacts(n, NodeState.HEALTHY, now) for n in ("n1", "n2")}
    state = FleetState(nodes=nodes, breaker=BreakerFacts(opened_at=now))
    facts = replace(FACTS, state=state, actions={("drain", "done"): 4, ("drain", "theirs"): 1})

    async def main() -> dict[str, float]:
        async with served(facts) as port:
            return await scrape(port)

    told = asyncio.run(main())

    expected = {
        "nodetriage_build_info version=1.2.3": 1,
        "nodetriage_agents_connected": 7,
        "nodetriage_agents_silent": 2,
        "nodetriage_peers_refused_total": 5,
        "nodetriage_policy_invariants_broken_total": 0,
        "nodetriage_nodes state=Healthy": 2,
        "nodetriage_nodes state=Lemon": 0,
        "nodetriage_drains_queued": 0,
        "nodetriage_breaker_open": 1,
        "nodetriage_actions kind=drain status=done": 4,
        "nodetriage_actions kind=drain status=theirs": 1,
        "nodetriage_events_stored_total": 3,
        "nodetriage_ack_seconds_count": 1,
        "nodetriage_ack_seconds_bucket le=0.005": 1,
        "nodetriage_ack_seconds_bucket le=0.002": 0,
    }
    assert {name: told.get(name) for name in expected} == expected


def test_promtool_finds_nothing_to_complain_of() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is in Debian's package prometheus")

    async def main() -> str:
        async with served(replace(FACTS, actions={("drain", "done"): 1})) as port:
            return await asyncio.to_thread(get, port)

    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=asyncio.run(main()), capture_output=True, text=True, timeout=60
    )

    assert (checked.returncode, checked.stderr) == (0, "")


def test_promtool_accepts_the_alarms_and_they_are_about_what_is_told() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is in Debian's package prometheus")

    async def main() -> set[str]:
        some = {"actions": {("drain", "done"): 1}, "certificates_s": {"node": 1.0}}
        async with served(replace(FACTS, **some)) as port:
            return {name.partition(" ")[0] for name in await scrape(port)}

    rules = ROOT / "packaging/prometheus-rules.yml"
    checked = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True, timeout=60)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert set(re.findall(r"\bnodetriage_\w+", rules.read_text())) <= asyncio.run(main())


def test_each_alarm_comes_when_it_must_and_not_before() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is in Debian's package prometheus")
    cases = ROOT / "tests/controller/parts/alarms.yml"
    checked = subprocess.run(["promtool", "test", "rules", cases], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_metric_is_in_the_documentation() -> None:
    registry = CollectorRegistry()
    metrics.Meters(registry)
    names = {m.name for m in (*registry.collect(), *metrics.families(FACTS))}
    page = (ROOT / "docs/operate.md").read_text()

    assert len(names) > 8
    assert not [name for name in names if f"`{name}" not in page]


async def test_figures_are_at_their_path_alone() -> None:
    def status(port: int, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code

    async with served(FACTS) as port:
        found = [await asyncio.to_thread(status, port, path) for path in ("/metrics", "/", "/health", "/metricsx")]

    assert found == [200, 404, 404, 404]


def test_actions_are_counted_where_they_are_new_or_open(database_url: str) -> None:
    day_us = 86_400_000_000
    engine = open_database(database_url)
    create_tables(engine)
    row = {
        "node": "n1",
        "incident": "",
        "fault": "f",
        "component": "",
        "severity": 4,
        "job": "",
        "restarts": 0,
        "hold": 0,
    }
    row |= {"text": "", "detail": "", "attempts": 0, "next_try_us": 0, "kind": "drain"}
    rows = [
        {**row, "id": "old", "status": "done", "outcome": "done", "decided_us": 1},
        {**row, "id": "open", "status": "pending", "outcome": "", "decided_us": 1},
        {**row, "id": "new", "status": "done", "outcome": "theirs", "decided_us": day_us},
    ]
    with engine.begin() as connection:
        connection.execute(schema.actions.insert(), rows)
        counts = metrics.count_actions(connection, 2 * day_us)
    engine.dispose()

    assert counts == {("drain", "pending"): 1, ("drain", "theirs"): 1}


def test_a_loop_that_stands_still_fails_the_scrape() -> None:
    async def ask() -> metrics.Facts:
        return FACTS

    loop = asyncio.new_event_loop()  # which nobody runs
    try:
        with pytest.raises(TimeoutError):
            metrics.asking(loop, ask, limit_s=0.05)()
    finally:
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def test_a_port_that_is_taken_is_said_and_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> int:
        async def ask() -> metrics.Facts:
            return FACTS

        async with served(FACTS) as port, metrics.serving(CollectorRegistry(), f"127.0.0.1:{port}", ask) as second:
            return int(second)

    assert asyncio.run(main()) == 0
    assert "metrics are not served" in capsys.readouterr().out


@pytest.mark.parametrize("listen", ["0.0.0.0:7444", "10.0.0.1:7444", "7444", "127.0.0.1:http", "unix:/run/x"])
def test_only_a_port_of_this_machine_is_taken(listen: str, tmp_path: Path) -> None:
    (tmp_path / "controller.toml").write_text(f'[metrics]\nlisten = "{listen}"\n')

    with pytest.raises(config.ConfigError, match=re.escape(repr(listen))):
        config.load(tmp_path / "controller.toml")
