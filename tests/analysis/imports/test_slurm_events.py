"""Outages from `sacctmgr -P show event`."""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.analysis.history import history, outages
from nodetriage.analysis.history.exposure import Window
from nodetriage.analysis.history.history import Sources
from nodetriage.analysis.imports.slurm_events import read_slurm_events
from nodetriage.analysis.tables import TableError

NOW = datetime(2026, 6, 1, tzinfo=UTC)
HEADER = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"


def write(path: Path, *rows: str, header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_each_event_of_a_node_is_an_outage_and_an_open_one_stays_open(tmp_path: Path) -> None:
    path = write(
        tmp_path / "events.txt",
        "c||2026-01-01T00:00:00|Unknown||Cluster Registered TRES|",
        "c|n1|2026-01-02T00:00:00|2026-01-03T12:00:00|DOWN*|Not responding|slurm(64030)",
        "c|n2|2026-01-05T00:00:00|Unknown|DRAIN|bad | dimm|root(0)",
        "c|n3|2026-01-05T00:00:00|2026-01-06T00:00:00|MAINT|window|root(0)",
        "c|n4|2026-01-05T00:00:00|2026-01-06T00:00:00|IDLE|x|root(0)",
        "c|n5|2026-01-05",
    )
    read = history.load(Sources(outages=path), NOW)
    rows = read.outages.select("node", "kind", "cause").rows()
    assert rows == [
        ("n1", "drained", "Not responding"), ("n1", "resumed", "Not responding"), ("n2", "drained", "bad   dimm"),
        ("n3", "planned", "window"),
    ]  # fmt: skip
    assert read.problems[str(path)].left_out == {
        "about the cluster, not a node": 1,
        "too few fields": 1,
        "a state in which the node is not out": 1,
    }
    month = Window(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 11, tzinfo=UTC))
    assert outages.of_records(read.outages, month).rows() == [("n1", 1, 2.5, True), ("n2", 4, 10, False)]


def test_times_are_those_of_the_zone_in_which_sacctmgr_wrote(tmp_path: Path) -> None:
    path = write(tmp_path / "e", "c|n1|2026-01-02T01:00:00|2026-01-02T03:00:00|DOWN|x|u")
    at = history.load(Sources(outages=path, zone="Europe/Berlin"), NOW).outages["at"].to_list()
    assert at == [datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC) + timedelta(hours=2)]


def test_a_table_without_its_columns_is_refused_with_the_command(tmp_path: Path) -> None:
    path = write(tmp_path / "e", "n1|2026-01-02T01:00:00", header="NodeName|TimeStart")
    with pytest.raises(TableError, match=r"no column timeend, state.*sacctmgr -P show event"):
        history.load(Sources(outages=path), NOW)


@given(st.text(max_size=200))
def test_nothing_after_the_header_raises(text: str) -> None:
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="replace") as file:
        file.write(f"{HEADER}\n{text}\n")
        file.flush()
        assert read_slurm_events(Path(file.name), NOW).frame.width == 4
