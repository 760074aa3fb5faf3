"""Slurm through its own commands; docs/slurm.md says what each does to node and job, from 22.05 to 24.11."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import structlog

from nodetriage.controller.scheduler import JobView, NodeView, ReservationView, SchedulerRefused, SchedulerUnavailable
from nodetriage.controller.slurm import commands, output
from nodetriage.controller.slurm.rest import RestRefused, RestUnusable, Slurmrestd
from nodetriage.controller.token_bucket import Bucket, wait_for_token

T = TypeVar("T")
log = structlog.get_logger("slurm")

# What slurmctld answers when it refuses; every other error is worth another try soon.
_REFUSALS = re.compile(
    r"Invalid node name|Invalid job id|[Ii]nvalid user id|[Aa]ccess/permission denied|presently disabled"
    r"|Only batch jobs|not heterogeneous job leader|[Jj]ob has already finished|not permitted"
)
_READERS = ("sinfo", "squeue")
_READING = (("scontrol", "show"), ("scontrol", "write"))
# One node's name. "n[1-100]" or "ALL" are many: an agent with such a name drains nothing.
_ONE_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


AT_ONCE_S = 2.0  # so many seconds' worth of calls go at once: the drain of one node never waits
REST_LIMIT_S = 1.0  # for one node
REST_PAUSE_S = 60.0  # after a failure of slurmrestd the commands are used: one that hangs delays one drain only
OUR_COMMENT = "nodetriage: "


class Slurm:
    """`conf` is slurm.conf where it is not the default one. Names and ids go to the commands as they are.

    `rest`: what nodes are drained and undrained through, where it can do that.
    """

    acts = True

    def __init__(
        self,
        conf: str = "",
        timeout_s: float = 10.0,
        environment: Mapping[str, str] | None = None,
        *,
        max_calls_per_s: float = 20.0,
        rest: Slurmrestd | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._calls = Bucket(max_calls_per_s, AT_ONCE_S * max_calls_per_s, 0.0)
        self._rest, self._rest_why = rest, ""
        self._rest_again_s = 0.0  # before this time of the loop slurmrestd is not asked: it failed
        self.may_act: Callable[[], bool] = lambda: True
        self._environment = {**(environment or {}), **({"SLURM_CONF": conf} if conf else {})}

    async def nodes(self) -> Mapping[str, NodeView]:
        """All nodes that are in a partition, hidden ones too."""
        return self._nodes(await self._run("sinfo", "-h", "-a", "-N", "-O", output.NODE_FORMAT))

    async def node(self, name: str) -> NodeView:
        if not _ONE_NODE.fullmatch(name):
            raise SchedulerRefused(f"{name!r} is not the name of one node")
        found = self._nodes(await self._run("sinfo", "-h", "-a", "-N", "-n", name, "-O", output.NODE_FORMAT))
        if name not in found:
            raise SchedulerRefused(f"Slurm has no node {name} in any partition")
        return found[name]

    async def hosts(self) -> Mapping[str, tuple[str, ...]]:
        """The names or addresses by which Slurm reaches each node."""
        text = await self._run("sinfo", "-h", "-a", "-N", "-O", output.HOST_FORMAT)
        return _read("sinfo", output.parse_hosts, text)

    async def jobs_on(self, node: str) -> tuple[JobView, ...]:
        return self._jobs(await self._run("squeue", "-h", "-a", "-r", "-w", node, "-O", output.JOB_FORMAT))

    async def job(self, job: str) -> JobView | None:
        try:
            text = await self._run("squeue", "-h", "-a", "-r", "-t", "all", "-j", job, "-O", output.JOB_FORMAT)
        except SchedulerRefused:
            return None
        return next((j for j in self._jobs(text) if j.job == job), None)

    async def reservations(self) -> tuple[ReservationView, ...]:
        text = await self._run("scontrol", "show", "reservation", "-o")
        return _read("scontrol show reservation", output.parse_reservations, text)

    async def topology(self) -> Mapping[str, tuple[str, ...]]:
        text = await self._run("scontrol", "show", "topology")
        return _read("scontrol show topology", output.parse_topology, text)

    async def drain(self, nodes: Sequence[str], reason: str) -> None:
        if self._rest is None or not await self._over_rest(self._rest, nodes, "DRAIN", reason):
            await self._run("scontrol", "update", f"nodename={','.join(nodes)}", "state=drain", f"reason={reason}")

    async def undrain(self, node: str) -> None:
        # Not state=resume: it also lifts a DOWN, which is never ours.
        if self._rest is None or not await self._over_rest(self._rest, [node], "UNDRAIN", ""):
            await self._run("scontrol", "update", f"nodename={node}", "state=undrain")

    async def requeue(self, job: str, *, hold: bool) -> None:
        # Incomplete: Slurm leaves a job alone that has ended meanwhile or was already requeued.
        await self._run("scontrol", "requeuehold" if hold else "requeue", "Incomplete", job)

    async def release(self, job: str) -> None:
        await self._run("scontrol", "release", job)

    async def cancel(self, job: str) -> None:
        await self._run("scancel", job)

    async def notify_job(self, job: str, text: str) -> None:
        await self._run("scontrol", "notify", job, text)

    async def signal_job(self, job: str) -> str:
        # slurmctld does not show the --signal of a job; the job's script may.
        wanted = output.parse_signal(await self._run("scontrol", "write", "batch_script", job, "-"))
        if wanted is None:
            return ""
        await self._run("scancel", *(["--batch"] if wanted.batch_only else []), f"--signal={wanted.name}", job)
        return wanted.name

    async def comment_job(self, job: str, text: str) -> None:
        there = await self._run("squeue", "-h", "-a", "-t", "all", "-j", job, "-O", output.COMMENT_FORMAT)
        if all(line.startswith(OUR_COMMENT) for line in output.parse_comments(there)):
            await self._run("scontrol", "update", f"jobid={job}", f"admincomment={OUR_COMMENT}{text}")

    async def _over_rest(self, rest: Slurmrestd, nodes: Sequence[str], state: str, reason: str) -> bool:
        """False where slurmrestd did not do it; the log says why. Raises SchedulerRefused where Slurm refuses."""
        if asyncio.get_running_loop().time() < self._rest_again_s:
            return False
        for node in nodes:
            await wait_for_token(self._calls)
            self._check_lease()
            try:
                async with asyncio.timeout(REST_LIMIT_S):
                    await rest.set_node_state(node, state, reason)
            except (RestUnusable, TimeoutError) as error:
                why = str(error) or f"slurmrestd did not answer within {REST_LIMIT_S:g} s"
                if why != self._rest_why:
                    log.warning("slurmrestd failed, using scontrol", why=why, again_in_s=REST_PAUSE_S)
                self._rest_why = why
                self._rest_again_s = asyncio.get_running_loop().time() + REST_PAUSE_S
                return False
            except RestRefused as error:
                raise SchedulerRefused(str(error)) from error
        self._rest_why = ""
        return True

    def _check_lease(self) -> None:
        if not self.may_act():
            raise SchedulerUnavailable("this controller's lease to act has ended: another one may lead")

    async def _run(self, *argv: str) -> str:
        await wait_for_token(self._calls)
        if argv[:2] not in _READING and argv[0] not in _READERS:
            self._check_lease()
        try:
            answer = await commands.run(argv, self._timeout_s, self._environment)
        except (commands.CommandMissing, TimeoutError, OverflowError) as error:
            raise SchedulerUnavailable(str(error)) from error
        if answer.status == 0:
            return answer.stdout
        said = " ".join(answer.stderr.split()) or f"exit status {answer.status}"
        refused = _REFUSALS.search(said) is not None
        raise (SchedulerRefused if refused else SchedulerUnavailable)(f"{argv[0]} {argv[1]}: {said[:300]}")

    def _nodes(self, text: str) -> dict[str, NodeView]:
        return _read("sinfo", output.parse_nodes, text)

    def _jobs(self, text: str) -> tuple[JobView, ...]:
        return _read("squeue", output.parse_jobs, text)


def _read(command: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except output.Garbled as error:
        raise SchedulerUnavailable(f"{command}: {error}") from error
