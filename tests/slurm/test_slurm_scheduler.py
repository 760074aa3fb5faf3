"""The controller's reconciler against a real Slurm: what it does to nodes and jobs, by Slurm's own account."""

import asyncio
import os
import re
import signal
import socket
from pathlib import Path

import pytest
from controller_once import Controller, log_of, submit_running
from debian13 import DEBIAN13, THIS_MACHINE
from slurm_cluster import LIMIT_S, SlurmCluster, wait_until
from sqlalchemy import select

from nodetriage.controller.engine import actions
from nodetriage.controller.policy.state import Action, ActionKind, ActionOutcome
from nodetriage.controller.scheduler import SchedulerRefused, SchedulerUnavailable
from nodetriage.controller.slurm.client import Slurm
from nodetriage.controller.store import job_hits, schema

pytestmark = pytest.mark.slurm
# Slurm 24.11 keeps reasons of the tests before: at an id that this database has not given, an epoch begins.
FIRST = r"\d{6}(?:-e\d+)?-1"
# The first time is the drain's, the second the requeue's.
KILL_POINTS = (
    "reconciler.before_commit",
    "reconciler.after_commit",
    "action.before_start",
    "action.after_start",
    "action.after_drain",
    "action.before_done",
    "reconciler.before_commit:2",
    "reconciler.after_commit:2",
    "action.before_start:2",
    "action.after_start:2",
    "action.after_requeue",
    "action.before_done:2",
)


def test_a_high_fault_drains_its_node_and_requeues_its_jobs_and_no_other(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    one = submit_running(slurm_cluster, "-w", "n1")
    two = submit_running(slurm_cluster, "-w", "n1", "--gres=gpu:2")
    other = submit_running(slurm_cluster, "-w", "n2")
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    node = slurm_cluster.node("n1")
    assert "DRAIN" in slurm_cluster.flags("n1")
    assert re.match(rf"nodetriage: gpu_off_bus GPU-1 \[incident {FIRST}\]", node["Reason"])
    assert {slurm_cluster.job(j)["Restarts"] for j in (one, two)} == {"1"}
    assert slurm_cluster.job(other)["Restarts"] == "0"
    assert slurm_cluster.job(other)["JobState"] == "RUNNING"
    with controller.engine.connect() as connection:
        hits = [job_hits.job_of(d) for d in connection.execute(select(schema.job_hits.c.document)).scalars()]
    assert {(h.job, h.gpus, h.user, h.nodes) for h in hits} == {
        (str(one), 0, "root", "n1"),
        (str(two), 2, "root", "n1"),
    }


def test_a_low_fault_lets_the_job_end_and_no_new_one_in(slurm_cluster: SlurmCluster, controller: Controller) -> None:
    job = submit_running(slurm_cluster, "-w", "n1")
    controller.tell("n1", "gpu_remap_pending", "MAJOR")
    controller.run()
    waiting = slurm_cluster.submit("-w", "n1")
    assert slurm_cluster.flags("n1") == {"MIXED", "DRAIN"}
    assert slurm_cluster.job(job)["JobState"] == "RUNNING"
    slurm_cluster.run("scancel", str(job))
    slurm_cluster.wait_flags("n1", "IDLE", "DRAIN")
    assert slurm_cluster.job(waiting)["JobState"] == "PENDING"


def test_an_operators_drain_keeps_its_reason_and_is_never_lifted(
    slurm_cluster: SlurmCluster, controller: Controller, slurm: Slurm
) -> None:
    slurm_cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=fan | State=IDLE\nline two")
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    view = asyncio.run(slurm.node("n1"))
    assert view.reason == "fan | State=IDLE\nline two"
    assert list(controller.outcomes().values()) == ["theirs"]
    undrain = Action("undrain-1", ActionKind.UNDRAIN, "n1", incident="261130-1")
    assert asyncio.run(actions.perform(undrain, slurm)).outcome is ActionOutcome.THEIRS
    assert asyncio.run(slurm.node("n1")) == view


def test_only_the_drain_of_this_incident_is_lifted(slurm_cluster: SlurmCluster, slurm: Slurm) -> None:
    drain = Action("drain-1", ActionKind.DRAIN, "n1", incident="i-1", fault="gpu_off_bus", component="GPU 1 | x")
    assert asyncio.run(actions.perform(drain, slurm)).outcome is ActionOutcome.DONE
    assert asyncio.run(slurm.node("n1")).reason == "nodetriage: gpu_off_bus GPU_1___x [incident i-1]"
    other = Action("undrain-2", ActionKind.UNDRAIN, "n1", incident="i-2")
    assert asyncio.run(actions.perform(other, slurm)).outcome is ActionOutcome.THEIRS
    own = Action("undrain-1", ActionKind.UNDRAIN, "n1", incident="i-1")
    assert asyncio.run(actions.perform(own, slurm)).outcome is ActionOutcome.DONE
    # 22.05 clears the reason; 24.11 keeps it, and without DRAIN it means nothing.
    assert asyncio.run(slurm.node("n1")).draining is False


def test_a_node_that_slurm_holds_down_stays_down_after_our_undrain(slurm_cluster: SlurmCluster, slurm: Slurm) -> None:
    asyncio.run(slurm.drain(["n3"], "nodetriage: gpu_off_bus GPU-1 [incident i-1]"))
    slurm_cluster.run("scontrol", "update", "nodename=n3", "state=down", "reason=nodetriage: x y [incident i-1]")
    asyncio.run(slurm.undrain("n3"))
    assert "DOWN" in slurm_cluster.flags("n3")


def test_by_what_address_and_name_slurm_reaches_a_node_is_known(slurm_cluster: SlurmCluster, slurm: Slurm) -> None:
    assert asyncio.run(slurm.hosts()) == {
        n: ("127.0.0.1", socket.gethostname().partition(".")[0]) for n in slurm_cluster.nodes
    }


def test_the_jobs_of_a_node_are_seen_as_an_operator_writes_them(slurm_cluster: SlurmCluster, slurm: Slurm) -> None:
    task = slurm_cluster.submit("-w", "n1", "--array=7", "--job-name", "a|b\nc=d")
    wide = slurm_cluster.submit("-w", "n1,n2", "-N2", "--no-requeue")
    leader = slurm_cluster.submit("-w", "n3", ":", "-w", "n1")
    slurm_cluster.wait_job(wide, "RUNNING")
    wait_until(lambda: len(asyncio.run(slurm.jobs_on("n1"))) == 3, LIMIT_S, "three jobs are on n1")
    jobs = {j.job: j for j in asyncio.run(slurm.jobs_on("n1"))}
    assert set(jobs) == {f"{task}_7", str(wide), str(leader)}
    assert (jobs[str(wide)].requeueable, jobs[str(wide)].nodes) == (False, "n[1-2]")
    for job in (f"{task}_7", str(leader)):
        asyncio.run(slurm.requeue(job, hold=False))
        after = asyncio.run(slurm.job(job))
        assert after is not None
        assert (after.restarts, after.active) == (1, False)
    with pytest.raises(SchedulerRefused, match="presently disabled"):
        asyncio.run(slurm.requeue(str(wide), hold=False))


def test_a_requeue_said_twice_is_one(slurm_cluster: SlurmCluster, slurm: Slurm) -> None:
    job = str(submit_running(slurm_cluster, "-w", "n1"))
    for _ in range(2):
        asyncio.run(slurm.requeue(job, hold=False))
    assert slurm_cluster.job(int(job))["Restarts"] == "1"
    again = Action(f"requeue-{job}-0", ActionKind.REQUEUE, "n1", job=job, restarts=0)
    assert asyncio.run(actions.perform(again, slurm)).outcome is ActionOutcome.GONE


def test_a_job_that_hangs_in_completing_is_released_when_its_node_lets_it_go(
    slurm_cluster: SlurmCluster, slurm: Slurm
) -> None:
    """Its release is due while slurmd does not answer: that is no reason to forget it, it would be held for ever."""
    job = submit_running(slurm_cluster, "-w", "n1")
    release = Action(f"release-{job}-1", ActionKind.RELEASE, "n1", job=str(job), restarts=1)
    with slurm_cluster.frozen_node("n1"):
        asyncio.run(slurm.requeue(str(job), hold=True))
        with pytest.raises(SchedulerRefused, match="still COMPLETING on its node"):
            asyncio.run(actions.perform(release, slurm))
    wait_until(lambda: "COMPLETING" not in slurm_cluster.job(job)["JobState"], LIMIT_S, "n1 lets the job go")
    assert (slurm_cluster.job(job)["JobState"], slurm_cluster.job(job)["Priority"]) == ("PENDING", "0")
    wait_until(lambda: asyncio.run(slurm.job(str(job))).state == "PENDING", LIMIT_S, "squeue says so too")  # type: ignore[union-attr]

    assert asyncio.run(actions.perform(release, slurm)).outcome is ActionOutcome.DONE

    assert slurm_cluster.job(job)["Priority"] != "0"


def test_what_slurm_does_not_know_is_said(slurm_cluster: SlurmCluster, slurm: Slurm) -> None:
    with pytest.raises(SchedulerRefused, match="nope"):
        asyncio.run(slurm.node("nope"))
    with pytest.raises(SchedulerRefused, match="Invalid node name"):
        asyncio.run(slurm.drain(["nope"], "x"))
    for many in ("n[1-2]", "n1,n2", "ALL", "", "-h", "n1\x00"):
        with pytest.raises(SchedulerRefused, match=r"not the name of one node|no node"):
            asyncio.run(slurm.node(many))
    assert asyncio.run(slurm.job("987654")) is None
    away = Slurm(conf=os.devnull, environment=slurm_cluster.env, timeout_s=5)
    with pytest.raises(SchedulerUnavailable):
        asyncio.run(away.nodes())


def submit_script(cluster: SlurmCluster, folder: Path, *options: str) -> tuple[int, Path]:
    """A running job that writes each USR1 to its output, which is given too."""
    script, output = folder / "job.sh", cluster.directory / f"{folder.name}.out"
    lines = (*(f"#SBATCH {option}" for option in options), "trap 'echo saved' USR1", "echo began")
    script.write_text("\n".join(("#!/bin/sh", *lines, "while :; do sleep 0.1; done", "")))
    script = script.rename(cluster.directory / f"{folder.name}.sh")
    job = int(
        cluster.run("sbatch", "--parsable", f"--output={output}", "--chdir=/", "-w", "n1", str(script)).split(";")[0]
    )
    wait_until(lambda: output.exists() and "began" in output.read_text(), LIMIT_S, "the job traps its signal")
    return job, output


def test_a_job_is_told_that_its_node_leaves_after_it_and_gets_the_signal_that_it_asked_for(
    slurm_cluster: SlurmCluster, controller: Controller, tmp_path: Path
) -> None:
    job, output = submit_script(slurm_cluster, tmp_path, "--signal=B:USR1@60")
    controller.tell("n1", "gpu_remap_pending", "MAJOR")
    controller.run()
    wait_until(lambda: "saved" in output.read_text(), LIMIT_S, "the job has its signal")
    assert re.search(
        r"nodetriage: n1 takes no job after this one: gpu_remap_pending, incident \S+-1\.", output.read_text()
    )
    after = slurm_cluster.job(job)
    assert after["JobState"] == "RUNNING"
    assert after["AdminComment"].startswith("nodetriage: n1 takes no job after this one: gpu_remap_pending")


def test_a_job_that_asked_for_no_signal_gets_none(slurm_cluster: SlurmCluster, slurm: Slurm, tmp_path: Path) -> None:
    job, output = submit_script(slurm_cluster, tmp_path)
    assert asyncio.run(slurm.signal_job(str(job))) == ""
    asyncio.run(slurm.notify_job(str(job), "x; $(reboot)"))
    wait_until(lambda: "x; $(reboot)" in output.read_text(), LIMIT_S, "the job's output has the line")
    assert "saved" not in output.read_text()


def test_a_requeued_jobs_user_reads_why_and_another_comment_stays(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    ours = submit_running(slurm_cluster, "-w", "n1")
    theirs = submit_running(slurm_cluster, "-w", "n1")
    slurm_cluster.run("scontrol", "update", f"jobid={theirs}", "admincomment=see ticket 4711")
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    comment = slurm_cluster.job(ours)["AdminComment"]
    assert re.fullmatch(rf"nodetriage: requeued from n1, gpu_off_bus, incident {FIRST}", comment)
    assert slurm_cluster.job(theirs)["AdminComment"] == "see ticket 4711"


@pytest.mark.parametrize(
    ("slurm_version", "die_at"),
    [
        *((THIS_MACHINE, point) for point in KILL_POINTS),
        *((DEBIAN13, point) for point in ("action.after_drain", "action.after_requeue")),
    ],
    indirect=["slurm_version"],
)
def test_a_controller_killed_at_any_step_drains_once_and_requeues_once(
    slurm_cluster: SlurmCluster, controller: Controller, die_at: str
) -> None:
    job = submit_running(slurm_cluster, "-w", "n1")
    before = len(log_of(slurm_cluster))
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    assert controller.run_process(die_at) == -signal.SIGKILL
    controller.run()
    reason = slurm_cluster.node("n1")["Reason"]
    incident = re.search(r"\[incident (\S+)\]", reason)
    assert incident is not None
    assert log_of(slurm_cluster)[before:].count("update_node: node n1 reason set to: nodetriage:") == 1
    assert slurm_cluster.job(job)["Restarts"] == "1"
    drains = [i for i in controller.outcomes() if i.startswith("drain-")]
    assert drains == [f"drain-{incident[1]}"]
    assert "" not in controller.outcomes().values()
