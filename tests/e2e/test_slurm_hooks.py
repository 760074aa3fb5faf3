"""Real jobs of a real Slurm, started through the shipped hook scripts, on nodes whose agents are well or not."""

import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import frozen
import pytest
from fleet import LIMIT_S, NO_DRAIN_LIMITS, Agent, Fleet
from hook_program import build, script
from nvml_library import FakeGpus
from programs import NODETRIAGE, Program
from slurm_cluster import SlurmCluster, missing, wait_until

from nodetriage.v1 import health_pb2 as pb

pytestmark = pytest.mark.slurm

XID_79 = "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
CLOSED = "[hooks]\nwhen_unknown = 'closed'\n"
PATIENT = "[hooks]\ndeadline_s = 60\n"  # where the answer matters and not its time: no machine is too slow for it


class HookAgent(Agent):
    """An agent with an environment of its own, for a stand-in of NVIDIA's library."""

    environment: Mapping[str, str] | None = None

    def __init__(self, folder: Path, node: str, controller: str, settings: str = "") -> None:
        shutil.rmtree(folder, ignore_errors=True)  # a hook that found no agent has left its note
        super().__init__(folder, node, controller, settings)

    def spawn(self, log: Path, die_at: str = "") -> Program:
        return Program(log, NODETRIAGE, "agent", "--config", str(self.settings), env=self.environment)


@pytest.fixture(scope="module")
def _hooked() -> Iterator[tuple[SlurmCluster, Path]]:
    if reason := missing():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="hooked-") as name:
        base = Path(name)
        program = build(base)
        paths = {
            h: script(h, program, f"{base}/fleet/$SLURMD_NODENAME", base / h) for h in ("prolog", "epilog", "health")
        }
        cluster = SlurmCluster(
            base / "slurm",
            nodes=2,
            extra_conf=f"Prolog={paths['prolog']}\nEpilog={paths['epilog']}\nPrologFlags=Alloc\n"
            f"HealthCheckProgram={paths['health']}\nHealthCheckInterval=2\nHealthCheckNodeState=ANY\n",
        )
        yield cluster, base
        cluster.stop()


@pytest.fixture
def hooked(_hooked: tuple[SlurmCluster, Path], folder: Path) -> Iterator[SlurmCluster]:
    """n1 and n2, idle, whose hooks ask the agents in `folder`."""
    cluster, base = _hooked
    (base / "fleet").unlink(missing_ok=True)
    cluster.reset()
    (base / "fleet").symlink_to(folder)
    yield cluster
    (base / "fleet").unlink()


@pytest.fixture
def idle_hooked_fleet(hooked: SlurmCluster, folder: Path) -> Iterator[Fleet]:
    """A fleet that observes the hooked cluster without acting on it."""
    fleet = Fleet(folder, hooked.env, policy=f"mode = 'observe'\n{NO_DRAIN_LIMITS}")
    try:
        yield fleet
    finally:
        fleet.close()


@pytest.fixture
def new_agent(hooked: SlurmCluster, folder: Path) -> Iterator[Callable[..., HookAgent]]:
    """Starts n1's agent with settings of the test's own; no controller is there."""
    agents = []

    def new(settings: str = "", env: Mapping[str, str] | None = None, state_dir: Path | None = None) -> HookAgent:
        agent = HookAgent(folder / "n1", "n1", f"unix:{folder}/c.sock", settings)
        agent.environment = env
        if state_dir:
            text = agent.settings.read_text()
            agent.settings.write_text(text.replace(f'"{folder}/n1/state"', f'"{state_dir}"'))
        agents.append(agent)
        agent.start()
        return agent

    yield new
    for agent in agents:
        agent.close()


def start(cluster: SlurmCluster, folder: Path) -> int:
    """A job on n1 whose script has begun: Slurm calls it RUNNING while its prolog still runs."""
    mark = folder / "begun"
    mark.unlink(missing_ok=True)
    job = cluster.submit("-w", "n1", script=f"touch {mark}; sleep 600")
    wait_until(mark.exists, LIMIT_S, f"job {job} has begun")
    return job


def wait_said(agent: HookAgent, words: str, timeout_s: float = LIMIT_S) -> None:
    wait_until(lambda: words in agent.program.said(), timeout_s, f"the agent says {words!r}")


def refused(cluster: SlurmCluster, job: int) -> bool:
    """Slurm puts a job whose prolog failed back into the queue, held (nohold_on_prolog_fail is not set here)."""
    found = cluster.job(job)
    return found["JobState"] == "PENDING" and found["Priority"] == "0"


def slurmd_log(cluster: SlurmCluster, node: str = "n1") -> str:
    return (cluster.directory / f"log/slurmd.{node}.log").read_text(errors="replace")


def test_a_job_starts_on_a_node_that_is_well(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent]
) -> None:
    new_agent()

    start(hooked, folder)

    assert hooked.flags("n1") == {"MIXED"}


def test_a_grave_fault_refuses_the_job_and_slurms_log_says_why(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent]
) -> None:
    agent = new_agent(PATIENT)
    agent.kernel_log.write(XID_79)
    wait_until(lambda: agent.check("gpu_xid")["findings"], LIMIT_S, "the fault is found")

    job = hooked.submit("-w", "n1")

    wait_until(lambda: refused(hooked, job), LIMIT_S, "the job is held again")
    hooked.wait_flags("n1", "DRAIN")
    assert hooked.node("n1")["Reason"].startswith("Prolog error")
    said = "nodetriage: gpu_off_bus 0000:3a:00.0 (critical, gpu_xid): a GPU has fallen off the PCIe bus"
    wait_until(lambda: said in slurmd_log(hooked), LIMIT_S, "slurmd's log says why")
    wait_said(agent, '"check": "prolog", "outcome": "findings"')


def test_the_health_check_program_puts_what_is_known_into_slurms_log_and_drains_nothing(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent]
) -> None:
    agent = new_agent()
    before = slurmd_log(hooked)
    agent.kernel_log.write(XID_79)

    wait_until(lambda: "gpu_off_bus" in slurmd_log(hooked)[len(before) :], LIMIT_S, "slurmd was told")
    assert hooked.flags("n1") == {"IDLE"}


def test_a_stopped_agent_delays_a_job_by_its_deadline_and_tells_of_it_later(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent]
) -> None:
    agent = new_agent("[hooks]\ndeadline_s = 0.3\n")
    agent.program.send(signal.SIGSTOP)

    job = start(hooked, folder)

    agent.program.send(signal.SIGCONT)
    wait_said(agent, "hook_unanswered")
    wait_said(agent, f'"evidence_refused": false, "evidence_job_id": "{job}"')


def test_a_stopped_agent_refuses_every_job_where_the_site_wants_that(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent]
) -> None:
    agent = new_agent(f"{CLOSED}deadline_s = 0.3\n")
    agent.program.send(signal.SIGSTOP)

    job = hooked.submit("-w", "n1")

    wait_until(lambda: refused(hooked, job), LIMIT_S, "the job is held again")
    agent.program.send(signal.SIGCONT)


def test_a_disk_that_hangs_lets_the_first_job_in_within_its_deadline_and_refuses_the_next(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent], mount: frozen.FreezableMount
) -> None:
    # Time enough for all that answer; what was seen just before the disk froze is not to be shared.
    agent = new_agent("[hooks]\ndeadline_s = 5\nreuse_s = 0\n[checks.fs_mounts]\ntimeout_s = 15\n")
    mount.freeze()

    start(hooked, folder)

    wait_said(agent, "not known: fs_mounts: no answer in time")
    wait_until(lambda: agent.check("fs_mounts")["outcome"] == "hung", LIMIT_S, "the hang is a finding")
    second = hooked.submit("-w", "n1")
    wait_until(lambda: refused(hooked, second), LIMIT_S, "the second job is held again")
    said = f"nodetriage: mount_hung {mount.point} (critical, fs_mounts)"
    wait_until(lambda: said in slurmd_log(hooked), LIMIT_S, "slurmd's log says why")


def test_a_hung_nvml_holds_up_no_job(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent], fake_gpus: Callable[..., FakeGpus]
) -> None:
    gpus = fake_gpus(8)
    agent = new_agent("[hooks]\ndeadline_s = 0.3\nreuse_s = 0\n", gpus.environment)
    gpus.set("all", "~forever")
    wait_until(
        lambda: agent.check("gpu_lost")["age_s"] > 1, LIMIT_S, "the last look at the GPUs is too old to be shared"
    )

    start(hooked, folder)

    wait_said(agent, "no answer in time")


def test_without_a_controller_and_with_a_full_disk_jobs_are_judged_all_the_same(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent]
) -> None:
    small = folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "nodetriage-test", small], check=True)
    try:
        agent = new_agent(PATIENT, state_dir=small)
        with (small / "fill").open("wb", buffering=0) as fill, contextlib.suppress(OSError):
            while fill.write(b"x" * 4096):
                pass
        start(hooked, folder)
        agent.kernel_log.write(XID_79)
        wait_until(lambda: agent.check("gpu_xid")["findings"], LIMIT_S, "the fault is found")
        wait_until(lambda: agent.status()["spool"]["trouble"], LIMIT_S, "the spool is full")

        job = hooked.submit("-w", "n1")

        wait_until(lambda: refused(hooked, job), LIMIT_S, "the job is held again")
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_a_fault_during_a_job_fails_its_epilog_and_is_tied_to_the_job(
    hooked: SlurmCluster, folder: Path, idle_hooked_fleet: Fleet
) -> None:
    fleet = idle_hooked_fleet
    fleet.start_controller()
    agent = fleet.agents["n2"] = HookAgent(folder / "n2", "n2", fleet.address, PATIENT)
    agent.start()
    script = f"touch {folder}/begun; while [ ! -e {folder}/end ]; do sleep 0.1; done"
    job = hooked.submit("-w", "n2", script=script)
    wait_until((folder / "begun").exists, LIMIT_S, "the job has begun")

    agent.kernel_log.write(XID_79)
    wait_until(lambda: agent.check("gpu_xid")["findings"], LIMIT_S, "the fault is found")
    (folder / "end").touch()

    hooked.wait_job(job, "COMPLETED")
    hooked.wait_flags("n2", "DRAIN")
    assert hooked.node("n2")["Reason"].startswith("Epilog error")
    query = "SELECT message FROM events WHERE node = 'n2' AND check_name = 'epilog' AND fault = 'gpu_off_bus'"
    wait_until(lambda: fleet.history(query), LIMIT_S, "the controller has it")
    told = pb.Event.FromString(fleet.history(query)[0][0])
    assert told.evidence["job_id"].text == str(job)
    assert told.evidence["raised_in_job"].flag
