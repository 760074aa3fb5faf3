"""Real jobs of a real Slurm, started through the shipped hook scripts, on nodes whose agents are well or not."""

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
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
ENFORCE = "[hooks]\nmode = 'enforce'\n"
PATIENT = f"{ENFORCE}deadline_s = 60\n"  # where the answer matters and not its time: no machine is too slow for it


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
            nodes=3,
            extra_conf=f"Prolog={paths['prolog']}\nEpilog={paths['epilog']}\nPrologFlags=Alloc\n"
            f"HealthCheckProgram={paths['health']}\nHealthCheckInterval=2\nHealthCheckNodeState=ANY\n",
        )
        yield cluster, base
        cluster.stop()


@pytest.fixture
def hooked(_hooked: tuple[SlurmCluster, Path], folder: Path) -> Iterator[SlurmCluster]:
    """n1 to n3, idle, whose hooks ask the agents in `folder`."""
    cluster, base = _hooked
    (base / "fleet").unlink(missing_ok=True)
    cluster.reset()
    (base / "fleet").symlink_to(folder)
    yield cluster
    (base / "fleet").unlink()


@pytest.fixture
def new_agent(hooked: SlurmCluster, folder: Path) -> Iterator[Callable[..., HookAgent]]:
    """Starts n1's agent with settings of the test's own; no controller is there."""
    agents = []

    def new(
        settings: str = "",
        env: Mapping[str, str] | None = None,
        state_dir: Path | None = None,
        ready: Callable[[HookAgent], object] | None = None,  # if not when every check has run
    ) -> HookAgent:
        agent = HookAgent(folder / "n1", "n1", "", settings)
        agent.environment = env
        text = agent.settings.read_text().replace('addresses = [""]', "addresses = []")
        if state_dir:
            text = text.replace(f'"{folder}/n1/state"', f'"{state_dir}"')
        agent.settings.write_text(text)
        agents.append(agent)
        agent.start(wait=ready is None)
        if ready:
            wait_until(lambda: answers(agent, ready), LIMIT_S, "the agent is ready")
        return agent

    yield new
    for agent in agents:
        agent.close()


def answers(agent: HookAgent, ready: Callable[[HookAgent], object]) -> bool:
    try:
        return bool(ready(agent))
    except (OSError, ValueError, KeyError):
        return False


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
    wait_said(agent, '"check": "prolog", "component": "0000:3a:00.0", "fault": "gpu_off_bus"')


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
    agent = new_agent(f"{ENFORCE}deadline_s = 0.3\n")
    agent.program.send(signal.SIGSTOP)

    job = start(hooked, folder)

    agent.program.send(signal.SIGCONT)
    wait_said(agent, "hook_unanswered")
    wait_said(agent, f'"evidence_job_id": "{job}"')


def test_an_observing_agent_lets_a_job_in_in_spite_of_a_critical_fault(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent]
) -> None:
    agent = new_agent("[hooks]\ndeadline_s = 60\n")
    agent.kernel_log.write(XID_79)
    wait_until(lambda: agent.check("gpu_xid")["findings"], LIMIT_S, "the fault is found")

    start(hooked, folder)

    wait_said(agent, '"evidence_would_refuse": true')
    assert "DRAIN" not in hooked.flags("n1")


def test_a_disk_that_hangs_delays_a_job_by_the_deadline_and_refuses_none(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent], mount: frozen.FreezableMount
) -> None:
    # Time enough for all that answer; what was seen just before the disk froze is not to be shared.
    agent = new_agent(f"{ENFORCE}deadline_s = 5\nreuse_s = 0\n[checks.fs_mounts]\ntimeout_s = 15\n")
    mount.freeze()

    start(hooked, folder)

    wait_said(agent, "not known: fs_mounts: no answer in time")
    wait_until(lambda: agent.check("fs_mounts")["outcome"] == "hung", LIMIT_S, "the hang is a finding")
    start(hooked, folder)  # the disk may be everyone's, and no controller says that it is this node alone
    assert "DRAIN" not in hooked.flags("n1")


def test_a_hung_nvml_holds_up_no_job(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent], fake_gpus: Callable[..., FakeGpus]
) -> None:
    gpus = fake_gpus(8)
    agent = new_agent(f"{ENFORCE}deadline_s = 0.3\nreuse_s = 0\n", gpus.environment)
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


ENFORCING = """\
mode = "enforce"
[hooks]
mode = "enforce"
max_nodes = 1
[shadow]
trusted = ["board"]
# A file system that another test hangs on this machine at the same time.
[[rule]]
fault = "mount_hung"
action = "record"
"""
# The limits hold every drain, so that what is drained is drained by Slurm, for a job that a hook refused.
HOOKS_ALONE = f"""\
{ENFORCING}
[drain_limits]
max_drains_per_hour = 0
witnessed_max_drains_per_hour = 0
[common_mode]
enabled = false
"""
DRAINING = f"{ENFORCING}{NO_DRAIN_LIMITS}[common_mode]\nleast_nodes = 2\nshared_min_nodes = 2\n"
NewFleet = Callable[[str], Fleet]


@pytest.fixture
def new_fleet(hooked: SlurmCluster, folder: Path) -> Iterator[NewFleet]:
    """Starts a controller with a policy, and an agent on each node, whose hooks have the controller's word.

    A node's board is bad while the file NODE.bad is there: a command of the site says so. All share FOLDER/mnt.
    """
    (folder / "mnt").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "nodetriage-test", folder / "mnt"], check=True)
    fleets: list[Fleet] = []

    def new(policy: str) -> Fleet:
        fleet = Fleet(folder, hooked.env, policy=policy)
        fleets.append(fleet)
        fleet.start_controller()
        for node in hooked.nodes:
            agent = fleet.agents[node] = HookAgent(folder / node, node, fleet.address, site_settings(folder, node))
            agent.start()
            wait_until(partial(has_word, agent), LIMIT_S, "the word is there")
        return fleet

    try:
        yield new
    finally:
        for fleet in fleets:
            fleet.close()
        subprocess.run(["umount", "-q", "-l", folder / "mnt"], check=False)


def has_word(agent: Agent) -> bool:
    return bool(agent.status()["hooks"]["mode"] == "enforce")


def is_bad(agent: Agent) -> bool:
    return bool(agent.check("board")["findings"])


def site_settings(folder: Path, node: str) -> str:
    return (
        f'{PATIENT}trusted = ["board"]\n'
        f'[checks.command.board]\nrun = "/usr/bin/test ! -e {folder}/{node}.bad"\nexit_codes = "nhc"\n'
        'severity = "critical"\nevery_s = 1\n'
        f'[checks.fs_mounts]\nfrom_fstab = false\nevery_s = 1\n[checks.fs_mounts.expected."{folder}/mnt"]\n'
    )


def start_on(cluster: SlurmCluster, folder: Path, node: str) -> int:
    """A job on this node, as soon as its script has begun."""
    mark = folder / f"begun-{node}"
    mark.unlink(missing_ok=True)
    job = cluster.submit("-w", node, script=f"touch {mark}; sleep 600")
    wait_until(mark.exists, LIMIT_S, f"job {job} has begun on {node}")
    return job


def drained(cluster: SlurmCluster) -> list[str]:
    return [node for node in cluster.nodes if "DRAIN" in cluster.flags(node)]


def test_a_shared_mount_that_vanishes_while_jobs_start_everywhere_drains_no_node(
    hooked: SlurmCluster, folder: Path, new_fleet: NewFleet
) -> None:
    fleet = new_fleet(DRAINING)
    subprocess.run(["umount", "-l", folder / "mnt"], check=True)
    for agent in fleet.agents.values():  # a prolog that asks earlier has nothing to report
        wait_until(lambda a=agent: a.check("fs_mounts")["findings"], LIMIT_S, "the mount is missed")  # type: ignore[misc]

    for node in hooked.nodes:
        start_on(hooked, folder, node)

    assert drained(hooked) == []
    query = "SELECT DISTINCT node FROM events WHERE check_name = 'prolog' AND fault = 'mount_missing' ORDER BY node"
    wait_until(lambda: [n for (n,) in fleet.history(query)] == list(hooked.nodes), LIMIT_S, "what hooks did is told")


def test_a_nodes_own_critical_fault_refuses_one_job_there_and_the_drain_for_it_is_ours(
    hooked: SlurmCluster, folder: Path, new_fleet: NewFleet
) -> None:
    fleet = new_fleet(HOOKS_ALONE)
    (folder / "n1.bad").touch()
    wait_said(fleet.agents["n1"], '"granted": ["board"]')

    job = hooked.submit("-w", "n1")

    wait_until(lambda: refused(hooked, job), LIMIT_S, "the job is held again")
    ours = "nodetriage: board /usr/bin/test [incident "
    wait_until(lambda: hooked.node("n1")["Reason"].startswith(ours), LIMIT_S, "the reason is ours")
    assert drained(hooked) == ["n1"]
    assert hooked.job(job)["Restarts"] == "1"

    hooked.run("scancel", str(job))
    (folder / "n1.bad").unlink()
    wait_until(lambda: not is_bad(fleet.agents["n1"]), LIMIT_S, "the fault is gone")
    wait_until(lambda: undrained(fleet, "n1"), LIMIT_S, "the operator's undrain is accepted")
    wait_until(lambda: drained(hooked) == [], LIMIT_S, "n1 is back")


def undrained(fleet: Fleet, node: str) -> bool:
    """Accepted only once the controller has the agent's word that the fault is gone."""
    try:
        fleet.ctl("undrain", node)
    except RuntimeError:
        return False
    return True


def test_beyond_the_limit_jobs_are_let_in_and_an_operator_is_told(
    hooked: SlurmCluster, folder: Path, new_fleet: NewFleet
) -> None:
    fleet = new_fleet(HOOKS_ALONE)
    (folder / "n1.bad").touch()
    wait_said(fleet.agents["n1"], '"granted": ["board"]')
    for node in ("n2", "n3"):
        (folder / f"{node}.bad").touch()
        wait_until(partial(is_bad, fleet.agents[node]), LIMIT_S, "the fault is found")

    for node in ("n2", "n3"):
        start_on(hooked, folder, node)

    assert drained(hooked) == []
    wait_until(lambda: "n2 goes on taking jobs" in fleet.controller.said(), LIMIT_S, "it is told of n2")
    wait_until(lambda: "n3 goes on taking jobs" in fleet.controller.said(), LIMIT_S, "it is told of n3")


def test_while_the_controller_is_away_only_a_nodes_own_fault_refuses_and_only_once(
    hooked: SlurmCluster, folder: Path, new_fleet: NewFleet
) -> None:
    fleet = new_fleet(HOOKS_ALONE.replace("max_nodes = 1", "max_nodes = 1\nvalid_s = 10"))
    fleet.controller.kill()
    subprocess.run(["umount", "-l", folder / "mnt"], check=True)
    (folder / "n1.bad").touch()
    for node in hooked.nodes:
        agent = fleet.agents[node]
        wait_until(partial(is_stale, agent), LIMIT_S, "the word is too old")
        wait_until(lambda a=agent: a.check("fs_mounts")["findings"], LIMIT_S, "the mount is missed")  # type: ignore[misc]
    wait_until(partial(is_bad, fleet.agents["n1"]), LIMIT_S, "the fault is found")

    start_on(hooked, folder, "n2")
    job = hooked.submit("-w", "n1")
    wait_until(lambda: refused(hooked, job), LIMIT_S, "the job is held again")
    assert drained(hooked) == ["n1"]

    hooked.run("scancel", str(job))
    hooked.run("scontrol", "update", "nodename=n1", "state=resume")
    wait_until(lambda: hook_says(fleet.agents["n1"]).startswith("0 "), LIMIT_S, "what belongs to the refusal is over")
    start_on(hooked, folder, "n1")
    assert drained(hooked) == []


def is_stale(agent: Agent) -> bool:
    return not agent.status()["hooks"]["fresh"]


def test_a_command_that_hangs_delays_no_job_beyond_the_deadline(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent]
) -> None:
    agent = new_agent(
        f'{ENFORCE}deadline_s = 0.5\n[checks.command.slow]\nrun = "/bin/sleep 600"\n'
        'timeout_s = 30\nseverity = "critical"\n',
        ready=lambda a: a.check("gpu_xid")["outcome"],
    )

    start(hooked, folder)

    wait_said(agent, "not known: slow: no answer in time")


def test_what_a_check_found_refuses_no_job_once_it_is_switched_off(
    hooked: SlurmCluster, folder: Path, new_agent: Callable[..., HookAgent]
) -> None:
    """The check is switched off by a restart: what it found before is still in the agent's state directory."""
    (folder / "n1.bad").touch()
    agent = new_agent(site_settings(folder, "n1"))
    wait_until(lambda: is_bad(agent), LIMIT_S, "the fault is found")
    assert hook_says(agent).startswith("1 nodetriage: board")

    agent.program.stop()
    text = agent.settings.read_text()
    agent.settings.write_text(text[: text.index("[checks.command.board]")])
    agent.start()

    assert hook_says(agent).startswith("0 ")
    start(hooked, folder)


def hook_says(agent: HookAgent) -> str:
    """The agent's answer to a prolog."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(LIMIT_S)
        line.connect(str(agent.folder / "agent.sock"))
        line.sendall(b'{"ask": "prolog", "SLURM_JOB_ID": "5"}\n')
        return line.makefile().readline()


def test_a_fault_during_a_job_fails_its_epilog_and_is_tied_to_the_job(
    hooked: SlurmCluster, folder: Path, new_fleet: NewFleet
) -> None:
    agent = (fleet := new_fleet(HOOKS_ALONE)).agents["n2"]
    script = f"touch {folder}/begun; while [ ! -e {folder}/end ]; do sleep 0.1; done"
    job = hooked.submit("-w", "n2", script=script)
    wait_until((folder / "begun").exists, LIMIT_S, "the job has begun")

    (folder / "n2.bad").touch()
    wait_said(agent, '"granted": ["board"]')
    (folder / "end").touch()

    hooked.wait_job(job, "COMPLETED")
    hooked.wait_flags("n2", "DRAIN")
    ours = "nodetriage: board /usr/bin/test [incident "
    wait_until(lambda: hooked.node("n2")["Reason"].startswith(ours), LIMIT_S, "the reason is ours")
    query = "SELECT message FROM events WHERE node = 'n2' AND check_name = 'epilog' AND fault = 'board'"
    wait_until(lambda: fleet.history(query), LIMIT_S, "the controller has it")
    told = pb.Event.FromString(fleet.history(query)[0][0])
    assert told.evidence["job_id"].text == str(job)
    assert told.evidence["raised_in_job"].flag
