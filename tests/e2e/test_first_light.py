"""A GPU fault in a node's kernel log drains that node in a real Slurm and requeues its job; nothing else moves."""

import re
import signal
import time
from pathlib import Path

import pytest
from fleet import LIMIT_S, Agent, Fleet
from slurm_cluster import SlurmCluster, wait_until

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).resolve().parents[2]
XID_79 = "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
REASON = re.compile(r"nodetriage: gpu_off_bus 0000:3a:00\.0 \[incident (?P<incident>[\w-]+)\]")
CRASH_POINT = re.compile(r'passing\("([\w.]+)"\)')


def steps_of(program: str) -> list[str]:
    """The steps at which a program can be made to die, as its source names them."""
    return sorted({name for p in (ROOT / program).rglob("*.py") for name in CRASH_POINT.findall(p.read_text())})


class Scene:
    """A batch job on n1, another on `node` (n2 or n3, as Slurm chose), and an agent on both nodes."""

    def __init__(self, cluster: SlurmCluster, fleet: Fleet) -> None:
        self.cluster, self.fleet = cluster, fleet
        self._log = cluster.directory / "log/slurmctld.log"
        self._log_began = self._log.stat().st_size
        self.other = cluster.submit("--exclusive", "-w", "n1")
        cluster.wait_job(self.other, "RUNNING")
        self.job = cluster.submit("--exclusive")
        self.node = cluster.wait_job(self.job, "RUNNING")["NodeList"]
        for node in ("n1", self.node):
            fleet.add_agent(node)

    @property
    def sick(self) -> Agent:
        return self.fleet.agents[self.node]

    def drains_of(self, node: str) -> int:
        """How often someone told slurmctld to drain a node, by its own log."""
        said = self._log.read_text()[self._log_began :]
        return len(re.findall(rf"update_node: node {node} reason set to", said))

    def wait_until_drained(self) -> None:
        wait_until(lambda: "DRAIN" in self.cluster.flags(self.node), LIMIT_S, f"{self.node} is drained")

    def assert_one_drain_and_one_requeue(self) -> None:
        """The node has one drain of ours, its job was requeued once, all else is as it was, no event is missing."""
        wait_until(lambda: self.cluster.job(self.job)["Restarts"] == "1", LIMIT_S, "the job is requeued")
        wait_until(lambda: not self.fleet.ctl("actions", "--open"), LIMIT_S, "nothing is left to be done")
        for agent in self.fleet.agents.values():
            wait_until(lambda a=agent: a.status()["spool"]["events"] == 0, LIMIT_S, "every event has arrived")
        done = [(kind, status) for kind, _, _, status, _ in self.fleet.actions()]
        assert sorted(done) == [("drain", "done"), ("requeue", "done")]
        assert REASON.match(self.cluster.node(self.node)["Reason"])
        assert {node: self.drains_of(node) for node in self.cluster.nodes} == {"n1": 0, "n2": 0, "n3": 0, self.node: 1}
        assert self.cluster.job(self.job)["Restarts"] == "1"
        other = self.cluster.job(self.other)
        assert (other["JobState"], other["Restarts"], other["NodeList"]) == ("RUNNING", "0", "n1")
        assert self.fleet.raised(self.node, "gpu_off_bus") == 1
        assert self.fleet.gaps() == []


@pytest.fixture
def scene(cluster: SlurmCluster, fleet: Fleet) -> Scene:
    return Scene(cluster, fleet)


def test_a_gpu_off_the_bus_drains_its_node_and_moves_its_job(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()

    scene.sick.kernel_log.write(XID_79)

    scene.wait_until_drained()
    took_s = time.monotonic() - began
    with capsys.disabled():
        print(f" kernel line -> DRAIN: {took_s:.3f} s ", end="")
    scene.assert_one_drain_and_one_requeue()
    reason = REASON.match(scene.cluster.node(scene.node)["Reason"])
    assert reason
    assert scene.fleet.history("SELECT incident, node FROM incidents") == [(reason["incident"], scene.node)]
    moved = scene.cluster.wait_job(scene.job, "RUNNING")
    assert moved["NodeList"] not in ("n1", scene.node)


@pytest.mark.parametrize("step", steps_of("controller"))
def test_a_controller_killed_at_any_step_does_all_of_it_once_when_it_is_back(
    cluster: SlurmCluster, idle_fleet: Fleet, step: str
) -> None:
    idle_fleet.start_controller(die_at=step)
    scene = Scene(cluster, idle_fleet)

    scene.sick.kernel_log.write(XID_79)

    assert idle_fleet.controller.wait() == -signal.SIGKILL
    idle_fleet.start_controller()
    scene.assert_one_drain_and_one_requeue()


@pytest.mark.parametrize("step", steps_of("agent"))
def test_an_agent_killed_at_any_step_tells_of_the_fault_once_when_it_is_back(scene: Scene, step: str) -> None:
    scene.sick.program.stop()
    scene.sick.start(die_at=step)
    wait_until(lambda: scene.sick.status()["spool"]["events"] == 0, LIMIT_S, "nothing else is on its way")
    (scene.sick.folder / "die").touch()

    scene.sick.kernel_log.write(XID_79)

    assert scene.sick.program.wait() == -signal.SIGKILL
    scene.sick.start()
    scene.assert_one_drain_and_one_requeue()


@pytest.mark.parametrize("after_ms", [5, 15, 40])
def test_an_agent_killed_at_any_moment_tells_of_the_fault_once_when_it_is_back(scene: Scene, after_ms: int) -> None:
    scene.sick.kernel_log.write(XID_79)
    time.sleep(after_ms / 1000)  # the moment is what is tested
    scene.sick.program.kill()

    scene.sick.start()

    scene.assert_one_drain_and_one_requeue()
