"""Where nodes stand: files of the site's own, good and bad, and the report that a bad rack raises an alarm in."""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from nodetriage.analysis import simulate
from nodetriage.analysis.history import history
from nodetriage.analysis.history.study import Study
from nodetriage.analysis.imports import topology
from nodetriage.analysis.reports.placement import placement_sections
from nodetriage.analysis.reports.section import Section
from nodetriage.analysis.tables import TableError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.csv"
    path.write_text(text, encoding="utf-8")
    return path


def alarmed(section: Section) -> set[str]:
    return {a.split()[1].rstrip(":") for a in section.alarms}


def test_node_lists_stand_for_their_nodes(tmp_path: Path) -> None:
    found = topology.read(written(tmp_path, "node,rack,pod\nn[01-02],r1,1\nn03,r2,1\n"))
    assert found.rows() == [("n01", "r1", "1"), ("n02", "r1", "1"), ("n03", "r2", "1")]
    assert topology.levels(found) == ["rack", "pod"]


def test_parquet_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "plan.parquet"
    pl.DataFrame({"node": ["a"], "rack": [7]}).write_parquet(path)
    assert topology.read(path).rows() == [("a", "7")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("host,rack\na,1\n", "expected a column node"),
        ("node\na\n", "at least one to group by"),
        ("", "neither CSV nor Parquet"),
        ("node,rack\na,1\na,2\n", "a has more than one row"),
        ("PAR1 not really", "neither CSV nor Parquet"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_by_name(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=said) as refused:
        topology.read(written(tmp_path, text))
    assert "plan.csv" in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="plan"):
        topology.read(tmp_path / "plan.csv")


def test_racks_that_hold_lemons_raise_alarms_and_others_do_not() -> None:
    fleet = simulate.Fleet(nodes=320, days=84, jobs=60_000, lemon_share=0.007, rack_events_per_1000_rack_days=0)
    made = simulate.fleet(8, fleet)
    lemons = made.truth.nodes.filter("lemon")
    study = Study(
        history.of(made.jobs, made.events, datetime(2026, 1, 1, tzinfo=UTC)),
        topology=made.truth.nodes.select("node", "rack", "switch"),
    )
    by_rack, by_switch = placement_sections(study)
    assert alarmed(by_rack) == set(lemons["rack"])
    assert alarmed(by_switch) <= set(lemons["switch"])  # three healthy racks beside it can hide a lemon
    assert by_rack.table.height == 20
    assert by_rack.table.columns[0] == "rack"


def test_a_rack_that_failed_as_one_raises_an_alarm() -> None:
    fleet = simulate.Fleet(
        nodes=320, days=56, jobs=60_000, rf_per_1000_node_days=0, lemon_share=0, rack_events_per_1000_rack_days=2
    )
    made = simulate.fleet(3, fleet)
    struck = made.truth.failures.filter(pl.col("rack_event").is_not_null()).join(made.truth.nodes, on="node")
    assert 0 < struck["rack"].n_unique() < 6
    plan = made.truth.nodes.select("node", "rack")
    (by_rack,) = placement_sections(
        Study(history.of(made.jobs, made.events, datetime(2026, 1, 1, tzinfo=UTC)), topology=plan)
    )
    # A rack that only large jobs ran on, and that fell silent, is not held against any node.
    assert alarmed(by_rack)
    assert alarmed(by_rack) <= set(struck["rack"])


def test_without_a_plan_the_report_has_no_such_section() -> None:
    made = simulate.fleet(8, simulate.Fleet(nodes=10, days=7, jobs=100))
    assert placement_sections(Study(history.of(made.jobs, made.events, datetime(2026, 1, 1, tzinfo=UTC)))) == []
