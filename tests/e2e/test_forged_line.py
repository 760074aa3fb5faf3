"""A user who makes the real kernel print a driver's line drains no node and moves no job."""

import os

import pytest
from fleet import LIMIT_S, START_LIMIT_S, Agent, Fleet
from quoted_lines import quoted
from slurm_cluster import SlurmCluster, wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.kmsg,
    pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="/dev/kmsg: needs root"),
]
FORGED = (
    "NVRM: Xid (PCI:0000:4b:00): 95, pid=77, name=python3, Uncontained ECC error",
    "mce: [Hardware Error]: CPU 0: Machine Check Exception: 5 Bank 4: be00000000800400",
)
SETTINGS = "[checks.fs_mounts]\nfrom_fstab = false\nignore = ['/tmp/fleet-*']\n"


class OnTheRealLog(Agent):
    """An agent that reads this machine's own /dev/kmsg, as a service on a node does."""

    def __init__(self, fleet: Fleet, node: str) -> None:
        super().__init__(fleet.folder / node, node, fleet.address, SETTINGS)
        text = self.settings.read_text()
        assert f'path = "{self.folder}/kmsg"' in text
        self.settings.write_text(text.replace(f'path = "{self.folder}/kmsg"', 'path = "/dev/kmsg"'))


def test_a_line_that_a_user_has_the_kernel_print_drains_nobody_and_requeues_nothing(
    cluster: SlurmCluster, fleet: Fleet
) -> None:
    job = cluster.submit("-w", "n1")
    cluster.wait_job(job, "RUNNING")
    agent = fleet.agents["n1"] = OnTheRealLog(fleet, "n1")
    agent.launch()
    wait_until(agent.looked, START_LIMIT_S, "the agent has run every check")
    wait_until(lambda: agent.status()["controller"]["connected"], START_LIMIT_S, "the agent is connected")
    before = fleet.history("SELECT fault, component FROM events WHERE node = 'n1'")

    last = max(record.seq for line in FORGED for how in ("overlay", "segfault") for record in quoted(how, line))

    wait_until(
        lambda: agent.status()["kernel_log"]["newest_seq"] >= last, LIMIT_S, "the agent has read the forged lines"
    )
    wait_until(lambda: agent.status()["spool"]["events"] == 0, LIMIT_S, "every event has arrived")
    told = fleet.history("SELECT fault, component FROM events WHERE node = 'n1'")
    assert [found for found in told if found not in before and found[0].startswith(("gpu_", "cpu_"))] == []
    assert cluster.flags("n1") == {"MIXED"}
    assert (cluster.job(job)["JobState"], cluster.job(job)["Restarts"]) == ("RUNNING", "0")
    assert fleet.actions() == []
