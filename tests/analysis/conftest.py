"""Small histories by hand: rows with what matters to a test, the rest filled in."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from nodetriage.analysis.history import history
from nodetriage.analysis.history.history import History
from nodetriage.analysis.tables import EVENTS, JOBS, OUTAGES, Schema

TEN = datetime(2025, 6, 2, 10, 0, tzinfo=UTC)
NOW = datetime(2025, 9, 1, tzinfo=UTC)


class Made:
    """Times are minutes from 10:00 on 2 June 2025."""

    ten, now = TEN, NOW

    @staticmethod
    def at(minutes: float) -> datetime:
        return TEN + timedelta(minutes=minutes)

    def job(self, start: float, run: float | None, state: str, **columns: Any) -> dict[str, Any]:
        """A run on node n0 (or `nodes`) with 8 GPUs for each node."""
        nodes = columns.get("nodes", ["n0"])
        row = {
            "job_id": "1",
            "attempt": 1,
            "qos": "normal",
            "state": state,
            "submit_at": self.at(start),
            "start_at": self.at(start),
            "end_at": None if run is None else self.at(start + run),
            "nodes": nodes,
            "node_count": len(nodes),
            "gpus": 8 * len(nodes),
        }
        return {**row, **columns}

    def event(self, node: str, at: float, fault: str, **columns: Any) -> dict[str, Any]:
        """A finding of high severity that was raised."""
        row = {"node": node, "at": self.at(at), "kind": "raised", "check": fault.split("_")[0], "fault": fault}
        return {**row, "component": "", "severity": 4, **columns}

    def table(self, rows: list[dict[str, Any]], schema: Schema) -> pl.DataFrame:
        return pl.DataFrame([{**dict.fromkeys(schema), **r} for r in rows], schema=dict(schema), orient="row")

    def past(
        self,
        jobs: list[dict[str, Any]],
        events: list[dict[str, Any]] | None = None,
        outages: list[dict[str, Any]] | None = None,
    ) -> History:
        return history.of(
            self.table(jobs, JOBS), self.table(events or [], EVENTS), NOW, outages=self.table(outages or [], OUTAGES)
        )


@pytest.fixture
def made() -> Made:
    return Made()
