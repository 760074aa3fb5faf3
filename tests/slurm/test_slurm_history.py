"""Job history out of a real slurmdbd: text and JSON, requeued and lost jobs, names that break the line."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from slurm_cluster import LIMIT_S, SlurmCluster, missing, wait_until

from nodetriage.analysis.history import attribution, history
from nodetriage.analysis.history.history import read_jobs
from nodetriage.analysis.imports import sacct

pytestmark = pytest.mark.slurm

NAME = "a|b"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What sacct says, in both forms, about jobs that ended in every way; and the jobs' numbers."""
    if reason := missing(accounting=True):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("slurm")
    cluster = SlurmCluster(folder, nodes=3, accounting=True, extra_conf="AccountingStorageTRES=gres/gpu\n")
    try:
        yield {"folder": folder, **_play(cluster, folder)}
    finally:
        cluster.stop()


def _play(cluster: SlurmCluster, folder: Path) -> dict[str, Any]:
    jobs = {
        "done": cluster.submit("--gres=gpu:2", "-J", NAME, "-N2", script="true"),
        "failed": cluster.submit("-x", "n[2-3]", script="exit 3"),
        "array": cluster.submit("--array=0-1", script="true"),
        "back": cluster.submit("-w", "n1", script="sleep 600"),
        "lost": cluster.submit("-w", "n3", script="sleep 600"),
    }
    for name in ("back", "lost"):
        cluster.wait_job(jobs[name], "RUNNING")
    cluster.run("scontrol", "requeue", str(jobs["back"]))
    wait_until(lambda: cluster.job(jobs["back"])["Restarts"] == "1", LIMIT_S, "the job is requeued")
    cluster.wait_job(jobs["back"], "RUNNING")
    wait_until(lambda: len(cluster.run("squeue", "-h").splitlines()) == 2, LIMIT_S, "the others have ended")
    # What slurmctld does by itself when a node no longer answers, without the wait.
    cluster.run("scontrol", "update", "nodename=n3", "state=down", "reason=gone")

    def write(name: str, *options: str) -> str:
        text = cluster.run("env", "TZ=UTC", "sacct", "-a", "-D", "-S", "now-1hour", *options)
        (folder / name).write_text(text)
        return text

    columns = ("-P", "--delimiter=|#", "-o", sacct.COLUMNS)
    ends = {
        ("done", "COMPLETED"),
        ("failed", "FAILED"),
        ("back", "REQUEUED"),
        ("back", "RUNNING"),
        ("lost", "NODE_FAIL"),
    }
    known = {(str(jobs[name]), state) for name, state in ends} | {(f"{jobs['array']}_{i}", "COMPLETED") for i in (0, 1)}

    def told() -> set[tuple[str, str]]:
        lines = (line.split("|#") for line in write("jobs.txt", *columns).splitlines())
        return {(fields[0], fields[4]) for fields in lines if len(fields) > 4}

    wait_until(lambda: told() >= known, LIMIT_S, "slurmdbd knows how the jobs ended")
    write("jobs.json", "--json")
    return {"now": datetime.now(UTC), **{name: str(number) for name, number in jobs.items()}}


def jobs_of(told: dict[str, Any], form: str) -> pl.DataFrame:
    read = read_jobs(Path(told["folder"]) / f"jobs.{form}", told["now"])
    unreadable = {k: n for k, n in read.problems.left_out.items() if k != "a step, not a job"}
    assert not unreadable
    return read.frame


def test_the_text_of_a_real_sacct_is_read_whole(told: dict[str, Any]) -> None:
    jobs = jobs_of(told, "txt")
    ends = {(j["job_id"], j["attempt"]): j["state"] for j in jobs.to_dicts()}
    assert ends[told["done"], 1] == "COMPLETED"
    assert ends[told["failed"], 1] == "FAILED"
    assert ends[f"{told['array']}_0", 1] == ends[f"{told['array']}_1", 1] == "COMPLETED"
    assert (ends[told["back"], 1], ends[told["back"], 2]) == ("REQUEUED", "RUNNING")
    assert ends[told["lost"], 1] == "NODE_FAIL"


def test_nodes_gpus_times_and_exclusions_are_those_of_the_job(told: dict[str, Any]) -> None:
    jobs = {(j["job_id"], j["attempt"]): j for j in jobs_of(told, "txt").to_dicts()}
    done, failed, running = jobs[told["done"], 1], jobs[told["failed"], 1], jobs[told["back"], 2]
    assert (len(done["nodes"]), done["node_count"], done["gpus"]) == (2, 2, 4)
    assert done["name"] == NAME
    assert (failed["nodes"], failed["excluded_nodes"], failed["exit_code"]) == (["n1"], ["n2", "n3"], "3:0")
    assert told["now"] - timedelta(minutes=10) < failed["start_at"] <= failed["end_at"] <= told["now"]
    assert (running["nodes"], running["end_at"]) == (["n1"], None)


def test_the_json_of_a_real_sacct_says_the_same(told: dict[str, Any]) -> None:
    columns = ["job_id", "attempt", "name", "state", "start_at", "end_at", "nodes", "node_count", "gpus", "user"]
    text, found = (jobs_of(told, form).sort("job_id", "attempt") for form in ("txt", "json"))
    assert found.select(columns).rows() == text.select(columns).rows()
    # 22.05 writes 0 for every exit code.
    assert found.filter(job_id=told["failed"])["exit_code"].item() in (None, "3:0")


def test_the_lost_node_is_a_failure_of_the_fleet_and_the_bad_exit_is_not(told: dict[str, Any]) -> None:
    past = history.load(history.Sources(jobs=Path(told["folder"]) / "jobs.txt"), told["now"])
    verdicts = dict(attribution.attribute(past).ends.select("job_id", "verdict").iter_rows())
    assert verdicts[told["lost"]] == attribution.UNATTRIBUTED_NODE_FAIL
    assert verdicts[told["failed"]] == attribution.UNKNOWN
