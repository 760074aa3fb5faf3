"""What operators, users and Slurm itself do while the controller acts: each case by Slurm's own final word."""

import re

import pytest
from controller_once import Controller, log_of, submit_running
from slurm_cluster import LIMIT_S, SlurmCluster, wait_until
from sqlalchemy import select

from nodetriage.controller.store import schema

pytestmark = pytest.mark.slurm

# Each node's own fault is the matter here: no limit of a fleet of thousands, and nothing taken for a fleet's.
ALONE = """\
return_hold_s = 0
[drain_limits]
max_percent = 100
partition_max_percent = 100
[breaker]
least_nodes = 100
[common_mode]
enabled = false
shared_hold_s = 0
"""
RETURNS = '[[rule]]\nfault = "gpu_off_bus"\naction = "drain_and_requeue"\nreturns = "checks_pass"\n'
FAULTS = ("gpu_off_bus", "gpu_gsp_timeout", "pcie_fatal", "nvswitch_fatal", "gpu_ecc_uncontained")


@pytest.fixture
def controller(controller: Controller) -> Controller:
    controller.policy = ALONE
    return controller


def ours(cluster: SlurmCluster, node: str) -> bool:
    return "DRAIN" in cluster.flags(node) and cluster.node(node)["Reason"].startswith("nodetriage: ")


def test_five_nodes_of_one_job_fail_together_and_it_is_requeued_once(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    job = submit_running(slurm_cluster, "-N5")
    for node, fault in zip(slurm_cluster.nodes, FAULTS, strict=True):
        controller.tell(node, fault, "CRITICAL")
    controller.run()
    assert all(ours(slurm_cluster, node) for node in slurm_cluster.nodes)
    assert len({slurm_cluster.node(n)["Reason"] for n in slurm_cluster.nodes}) == 5
    assert slurm_cluster.job(job)["Restarts"] == "1"
    assert list(controller.outcomes("requeue").values()) == ["done"]


def test_an_operator_who_drains_after_us_owns_the_drain(slurm_cluster: SlurmCluster, controller: Controller) -> None:
    controller.policy += RETURNS
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    assert ours(slurm_cluster, "n1")
    slurm_cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=vendor comes at noon")
    controller.run()
    controller.tell("n1", "gpu_off_bus", "CRITICAL", "CLEARED")
    controller.run()
    assert "DRAIN" in slurm_cluster.flags("n1")
    assert slurm_cluster.node("n1")["Reason"].startswith("vendor comes at noon [")
    assert controller.outcomes("undrain") == {}
    assert any("is now drained by root: vendor comes at noon" in text for text in controller.told())


def test_a_node_whose_fault_is_gone_returns_where_the_policy_says_so(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    controller.policy += RETURNS
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    controller.tell("n1", "gpu_off_bus", "CRITICAL", "CLEARED")
    controller.run()
    wait_until(lambda: slurm_cluster.flags("n1") == {"IDLE"}, LIMIT_S, "n1 is idle")
    submit_running(slurm_cluster, "-w", "n1")


def test_an_operator_who_resumes_a_node_that_is_still_broken_is_told_and_it_is_drained_again(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    slurm_cluster.run("scontrol", "update", "nodename=n1", "state=resume")
    controller.run()
    assert ours(slurm_cluster, "n1")
    assert any("n1 was resumed while gpu_off_bus is still there" in text for text in controller.told())


def test_a_drain_that_a_reboot_lifted_is_made_again_while_the_fault_is_there(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    job = submit_running(slurm_cluster, "-w", "n1")
    slurm_cluster.run("scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=new kernel", "n1")
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    assert slurm_cluster.job(job)["Restarts"] == "1"
    assert slurm_cluster.node("n1")["Reason"].startswith("new kernel")
    assert list(controller.outcomes("drain").values()) == ["theirs"]
    slurm_cluster.wait_flags("n1", "REBOOT_ISSUED")
    slurm_cluster.stop_node("n1")
    slurm_cluster.start_node("n1", "-b")
    wait_until(lambda: "DRAIN" not in slurm_cluster.flags("n1"), LIMIT_S, "n1 is back from its reboot")
    controller.run()
    assert ours(slurm_cluster, "n1")


def test_nothing_is_done_to_a_node_in_a_maintenance_reservation_until_that_is_over(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    controller.tell("n1", "gpu_xid_warning", "WARNING")
    span = ("reservationname=fix", "starttime=now", "duration=60", "nodes=n1", "users=root")
    slurm_cluster.run("scontrol", "create", "reservation", *span, "flags=maint,ignore_jobs")
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    assert "DRAIN" not in slurm_cluster.flags("n1")
    slurm_cluster.run("scontrol", "delete", "reservationname=fix")
    controller.run()
    assert ours(slurm_cluster, "n1")


def test_of_an_array_the_tasks_on_the_node_are_requeued_and_of_a_het_job_the_whole(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    array = slurm_cluster.submit("-w", "n1", "--array=4-5")
    elsewhere = slurm_cluster.submit("-w", "n2", "--array=6")
    leader = slurm_cluster.submit("-w", "n3", ":", "-w", "n1")
    on_n1 = ("squeue", "-h", "-w", "n1", "-t", "R", "-o", "%A")
    wait_until(lambda: len(slurm_cluster.run(*on_n1).split()) == 3, LIMIT_S, "three jobs are on n1")
    slurm_cluster.wait_job(elsewhere, "RUNNING")
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    assert ours(slurm_cluster, "n1")
    restarts = r"ArrayTaskId=(\d+) .*?Restarts=(\d+)"
    tasks = dict(re.findall(restarts, slurm_cluster.run("scontrol", "show", "job", "-o", str(array))))
    assert tasks == {"4": "1", "5": "1"}
    shown = slurm_cluster.run("scontrol", "show", "job", "-o", str(leader))
    assert re.findall(r"Restarts=(\d+)", shown) == ["1", "1"]
    assert slurm_cluster.job(elsewhere)["Restarts"] == "0"
    assert set(controller.outcomes("requeue").values()) == {"done"}
    assert len(controller.outcomes("requeue")) == 3


@pytest.mark.parametrize(("interactive", "left"), [("notify", "RUNNING"), ("cancel", "CANCELLED")])
def test_an_interactive_job_is_left_and_said_or_ended_as_the_policy_says(
    slurm_cluster: SlurmCluster, controller: Controller, interactive: str, left: str
) -> None:
    controller.policy += f'[requeue]\ninteractive = "{interactive}"\n'
    slurm_cluster.run("salloc", "--no-shell", "-w", "n1", "-J", "by-hand")
    job = int(slurm_cluster.run("squeue", "-h", "-n", "by-hand", "-o", "%A"))
    slurm_cluster.wait_job(job, "RUNNING")
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    assert ours(slurm_cluster, "n1")
    slurm_cluster.wait_job(job, left)
    assert any(f"job {job} of root" in text and "interactive" in text for text in controller.told())


def test_a_node_that_a_failing_prolog_drained_stays_slurms_own(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    fails = slurm_cluster.directory / "prolog-fails-n1"
    fails.touch()
    try:
        job = slurm_cluster.submit("-w", "n1")
        slurm_cluster.wait_flags("n1", "DRAIN")
        wait_until(lambda: slurm_cluster.job(job)["JobState"] == "PENDING", LIMIT_S, "the job is back in the queue")
    finally:
        fails.unlink()
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    assert slurm_cluster.node("n1")["Reason"].startswith("Prolog error")
    assert controller.state("n1") == ("Drained", True)
    # What Slurm held is not ours to let go.
    assert (slurm_cluster.job(job)["JobState"], slurm_cluster.job(job)["Priority"]) == ("PENDING", "0")


def test_a_drain_waits_for_a_slurmctld_that_is_down_and_is_done_once_when_it_is_back(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    job = submit_running(slurm_cluster, "-w", "n1")
    before = len(log_of(slurm_cluster))
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    # It dies between the drain and the requeue; the next one finds slurmctld gone, and waits.
    controller.run_process(die_at="action.after_start:2")
    slurm_cluster.stop_controller()
    process = controller.start_process()
    try:
        failed = select(schema.inputs.c.id).where(schema.inputs.c.kind == "failed")
        wait_until(lambda: controller.one(failed), LIMIT_S, "the controller met a Slurm that does not answer")
    finally:
        slurm_cluster.start_controller()
        process.communicate(timeout=180)
    assert process.returncode == 0
    assert ours(slurm_cluster, "n1")
    assert slurm_cluster.job(job)["Restarts"] == "1"
    assert log_of(slurm_cluster)[before:].count("node n1 reason set to: nodetriage:") == 1


def test_a_node_that_slurm_lost_is_a_finding_and_is_drained_and_its_job_is_requeued_by_slurm_alone(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    job = submit_running(slurm_cluster, "-w", "n2")
    controller.tell("n2", "gpu_xid_warning", "WARNING")
    slurm_cluster.crash_node("n2")
    slurm_cluster.wait_flags("n2", "DOWN", timeout_s=120)
    controller.run()
    assert slurm_cluster.flags("n2") >= {"DOWN", "DRAIN"}
    assert re.match(r"nodetriage: node_lost node \[incident", slurm_cluster.node("n2")["Reason"])
    wait_until(lambda: slurm_cluster.job(job)["Restarts"] == "1", LIMIT_S, "Slurm requeues the job of a dead node")
    assert controller.outcomes("requeue") == {}
