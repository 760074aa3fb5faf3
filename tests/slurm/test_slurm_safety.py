"""What must not be done to a real Slurm: over operators' words, for other tools, unknown nodes, reboots, one cause."""

import time

import pytest
from conftest import ClusterOf
from controller_once import Controller, submit_running
from debian13 import DEBIAN13
from slurm_cluster import LIMIT_S, SlurmCluster, wait_until

pytestmark = pytest.mark.slurm

ALONE = """\
return_hold_s = 0
[drain_limits]
max_percent = 100
partition_max_percent = 100
witnessed_max_percent = 100
[breaker]
least_nodes = 100
[common_mode]
enabled = false
shared_hold_s = 0
"""
RETURNS = '[[rule]]\nfault = "gpu_off_bus"\naction = "drain_and_requeue"\nreturns = "checks_pass"\n'
# Each begins as one of Slurm's own reasons does.
WORDS_OF_A_PERSON = (
    "Not responding to ping since the PSU swap, ticket 4711 (bob)",
    "Node powers on but not responding, RMA 12",
    "not responding - Bob is on it",
    "Prolog error seen by Eve, do not resume",
    "nodetriage drained it, see ticket 12",
)


def ours(cluster: SlurmCluster, node: str) -> bool:
    return "DRAIN" in cluster.flags(node) and cluster.node(node).get("Reason", "").startswith("nodetriage: ")


@pytest.mark.parametrize("state", ["down", "drain"])
def test_words_of_an_operator_that_begin_like_slurms_own_stay(
    slurm_cluster: SlurmCluster, controller: Controller, state: str
) -> None:
    controller.policy = ALONE
    written = dict(zip(slurm_cluster.nodes, WORDS_OF_A_PERSON, strict=True))
    for node, reason in written.items():
        controller.tell(node, "gpu_xid_warning", "WARNING")
        slurm_cluster.run("scontrol", "update", f"nodename={node}", f"state={state}", f"reason={reason}")

    controller.run()
    for node in written:
        controller.tell(node, "gpu_off_bus", "CRITICAL")
    controller.run()

    for node, reason in written.items():
        assert slurm_cluster.node(node)["Reason"].startswith(f"{reason} [root@")
    assert set(controller.outcomes("drain").values()) <= {"theirs"}


def test_a_down_node_of_slurms_own_is_drained_under_our_reason(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    """The twin: slurmctld itself says "Not responding"; from 23.11 on it appends that to what the reason was before."""
    controller.policy = ALONE + RETURNS
    controller.tell("n2", "gpu_off_bus", "CRITICAL")
    controller.run()
    controller.tell("n2", "gpu_off_bus", "CRITICAL", "CLEARED")
    controller.run()
    slurm_cluster.wait_flags("n2", "IDLE")
    slurm_cluster.crash_node("n2")
    slurm_cluster.wait_flags("n2", "DOWN", timeout_s=120)
    controller.tell("n2", "gpu_off_bus", "CRITICAL")

    controller.run(agents_report=False)

    assert ours(slurm_cluster, "n2"), slurm_cluster.node("n2")


def test_nodes_that_slurm_does_not_know_neither_open_the_breaker_nor_use_up_the_limits(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    """Five racks in staging, with the shipped limits: of a fleet of five, one node at a time."""
    controller.policy = "return_hold_s = 0\n"
    faults = ("gpu_off_bus", "gpu_gsp_timeout", "pcie_fatal", "nvswitch_fatal", "gpu_ecc_uncontained")
    for number in range(len(faults)):
        controller.tell(f"stage{number}", "gpu_xid_warning", "WARNING")
    controller.run()
    for number, fault in enumerate(faults):
        controller.tell(f"stage{number}", fault, "CRITICAL")
    controller.run()
    controller.tell("n1", "gpu_off_bus", "CRITICAL")

    controller.run()

    assert ours(slurm_cluster, "n1")
    assert not any("breaker" in text for text in controller.told())


def test_an_operators_reboot_with_nextstate_resume_brings_a_repaired_node_back_and_it_stays(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    """The documented remedy. slurmd is back before the agent says anything of the new boot."""
    controller.policy = ALONE
    controller.tell("n1", "gpu_reset_required", "CRITICAL")
    controller.run()
    assert ours(slurm_cluster, "n1")
    slurm_cluster.run("scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=clears the fault", "n1")
    slurm_cluster.wait_flags("n1", "REBOOT_ISSUED")
    controller.run(agents_report=False)
    slurm_cluster.stop_node("n1")
    slurm_cluster.start_node("n1", "-b")
    wait_until(lambda: slurm_cluster.flags("n1") == {"IDLE"}, LIMIT_S, "n1 is back from its reboot")

    controller.run(agents_report=False)

    assert slurm_cluster.flags("n1") == {"IDLE"}
    controller.tell("n1", "gpu_xid_warning", "WARNING", boot="b2")
    controller.run()
    assert slurm_cluster.flags("n1") == {"IDLE"}
    assert len(controller.outcomes("drain")) == 1


def test_a_node_that_another_tool_resumes_again_and_again_leaves_the_limits_to_the_others(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    controller.policy = ALONE.replace("[drain_limits]\n", "[drain_limits]\nmax_drains_per_hour = 3\n")
    controller.tell("n1", "gpu_xid_fatal", "CRITICAL")
    for _ in range(5):
        controller.run()
        if not ours(slurm_cluster, "n1"):
            break
        slurm_cluster.run("scontrol", "update", "nodename=n1", "state=resume")
    drains = len(controller.outcomes("drain"))
    assert drains == 2
    controller.tell("n2", "gpu_gsp_timeout", "CRITICAL")

    controller.run()

    assert ours(slurm_cluster, "n2")
    assert not ours(slurm_cluster, "n1")


def test_a_fleet_incident_says_nothing_about_a_gpu_that_dies_after_it(
    slurm_cluster: SlurmCluster, controller: Controller
) -> None:
    """Four GPUs die at once: one cause. The fifth dies when that is long over: its own."""
    limits = ALONE[: ALONE.index("[common_mode]")]
    controller.policy = f"{limits}[common_mode]\nown_least_nodes = 4\nown_min_nodes = 4\nwindow_s = 2\nend_s = 1\n"
    for node in slurm_cluster.nodes:
        controller.tell(node, "gpu_xid_warning", "WARNING")
    controller.run()
    began_at = time.time()
    for node in ("n1", "n2", "n3", "n4"):
        controller.tell(node, "gpu_off_bus", "CRITICAL", at_us=int(began_at * 1e6))
    controller.run()
    together = [node for node in slurm_cluster.nodes if ours(slurm_cluster, node)]
    assert len(together) < 4
    assert any("incident" in text for text in controller.told())
    wait_until(lambda: time.time() > began_at + 5, LIMIT_S, "the incident's window is over")
    controller.tell("n5", "gpu_off_bus", "CRITICAL", at_us=int(time.time() * 1e6))

    controller.run()

    assert ours(slurm_cluster, "n5")


@pytest.mark.parametrize("slurm_version", [DEBIAN13], indirect=True)
def test_a_drain_stays_ours_when_slurm_writes_over_its_reason_that_a_gpu_is_gone(
    cluster_of: ClusterOf, controller: Controller
) -> None:
    """From 23.11 on slurmctld writes its own words where slurmd registers with fewer GPUs than are configured."""
    cluster = controller.cluster = cluster_of(nodes=2)
    controller.policy = ALONE + RETURNS
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    assert ours(cluster, "n1")
    file = cluster.directory / "gres.conf"
    whole = file.read_text()
    line = f"Name=gpu Type=h100 File={cluster.directory}/dev/nvidia"
    file.write_text(f"NodeName=n1 {line}[0-6]\nNodeName=n2 {line}[0-7]\n")
    cluster.stop_node("n1")
    cluster.start_node("n1")
    wait_until(lambda: "gres/gpu count" in cluster.node("n1")["Reason"], LIMIT_S, "Slurm writes its own reason")
    controller.run()
    file.write_text(whole)
    cluster.stop_node("n1")
    cluster.start_node("n1")
    cluster.wait_flags("n1", "IDLE", "DRAIN")
    controller.tell("n1", "gpu_off_bus", "CRITICAL", "CLEARED")

    controller.run()

    wait_until(lambda: cluster.flags("n1") == {"IDLE"}, LIMIT_S, "n1 returns to service")
    submit_running(cluster, "-w", "n1")


def test_a_drain_that_slurm_ends_because_it_switches_the_node_off_is_made_again(
    cluster_of: ClusterOf, controller: Controller
) -> None:
    power_saving = "SuspendProgram=/bin/true\nResumeProgram=/bin/true\nSuspendTimeout=2\nSuspendTime=36000\n"
    cluster = controller.cluster = cluster_of(nodes=2, extra_conf=power_saving)
    controller.policy = ALONE
    controller.tell("n1", "gpu_off_bus", "CRITICAL")
    controller.run()
    assert ours(cluster, "n1")
    incident = cluster.node("n1")["Reason"].partition(" [root@")[0]
    cluster.run("scontrol", "update", "nodename=n1", "state=power_down_asap")
    wait_until(lambda: "DRAIN" not in cluster.flags("n1"), LIMIT_S, "Slurm ends the drain")

    controller.run()

    assert ours(cluster, "n1")
    assert cluster.node("n1")["Reason"].startswith(incident)
    cluster.wait_flags("n1", "POWERED_DOWN")
    assert ours(cluster, "n1")
    cluster.run("scontrol", "update", "nodename=n1", "state=power_up")
    cluster.wait_flags("n1", "POWERING_UP")
    controller.run(agents_report=False)
    assert ours(cluster, "n1")
