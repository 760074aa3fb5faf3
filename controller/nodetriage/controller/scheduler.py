"""What the controller asks of a batch scheduler: a view of nodes, jobs and reservations, and eight verbs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol


class SchedulerError(Exception):
    """The scheduler did not do it; the text says why. The action stays pending."""


class SchedulerUnavailable(SchedulerError):
    """No answer: commands missing, too slow, the scheduler down, or an answer that makes no sense."""


class SchedulerRefused(SchedulerError):
    """The scheduler refused: permission, an unknown node, a job that may not be requeued."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as the scheduler has it. `base` and `flags` are Slurm's words in lower case ("mixed"; "drain", ...)."""

    name: str
    base: str
    flags: frozenset[str] = frozenset()
    reason: str = ""
    reason_by: str = ""
    partitions: tuple[str, ...] = ()

    @property
    def draining(self) -> bool:
        """Someone drained it: no new job starts here. In Slurm that is a flag beside the node's state."""
        return "drain" in self.flags or "fail" in self.flags

    @property
    def down(self) -> bool:
        return self.base in ("down", "error")

    @property
    def busy(self) -> bool:
        """A job runs on it, or Slurm cleans up after one."""
        return self.base in ("allocated", "mixed") or "completing" in self.flags

    @property
    def in_maintenance(self) -> bool:
        """A MAINT reservation holds it now."""
        return "maint" in self.flags

    @property
    def rebooting(self) -> bool:
        """Someone asked for a reboot. ASAP drains the node until then, and NextState may lift any drain."""
        return bool(self.flags & {"reboot_requested", "reboot_issued"})

    @property
    def restarting(self) -> bool:
        """The reboot is under way; one that is only asked for waits for the node's jobs."""
        return "reboot_issued" in self.flags

    @property
    def power_saving(self) -> bool:
        """Slurm switches it off or on to save power: its silence says nothing about its health."""
        return bool(self.flags & {"power_down", "powering_down", "powered_down", "power_up", "powering_up"})

    @property
    def planned(self) -> bool:
        """Idle, and reserved by Slurm for a job that starts soon."""
        return "planned" in self.flags or self.base == "planned"

    @property
    def exists(self) -> bool:
        """False for a FUTURE node: a line in slurm.conf and nothing else."""
        return self.base != "future"


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with an allocation, or waiting for one. `state` is Slurm's word in upper case."""

    job: str  # as an operator writes it: 123, 123_4 (array task), the leader's id for a part of a het job
    state: str
    batch: bool
    requeueable: bool
    restarts: int
    user: str = ""
    partition: str = ""
    qos: str = ""
    nodes: str = ""  # the scheduler's own notation, n[1-2]
    node_count: int = 0
    gpus: int = 0
    submitted_at: datetime | None = None
    eligible_at: datetime | None = None
    started_at: datetime | None = None

    @property
    def active(self) -> bool:
        """It holds its nodes and has not ended."""
        return self.state in ("RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED")


@dataclass(frozen=True, slots=True)
class ReservationView:
    """A reservation that is running now. `nodes` are its nodes' names, `maintenance` is Slurm's flag MAINT."""

    name: str
    nodes: tuple[str, ...]
    maintenance: bool = False


def with_maintenance(nodes: Mapping[str, NodeView], reservations: Sequence[ReservationView]) -> Mapping[str, NodeView]:
    """Marks the nodes of MAINT reservations: Slurm 24.11 sets its own mark some time after the start."""
    inside = {name for r in reservations if r.maintenance for name in r.nodes}
    return {n: replace(v, flags=v.flags | {"maint"}) if n in inside else v for n, v in nodes.items()}


class Scheduler(Protocol):
    """Every method raises SchedulerUnavailable or SchedulerRefused. Node names are the scheduler's own."""

    acts: bool  # False: it answers nothing and does nothing

    async def nodes(self) -> Mapping[str, NodeView]: ...

    async def node(self, name: str) -> NodeView: ...

    async def jobs_on(self, node: str) -> tuple[JobView, ...]:
        """Jobs that hold this node, one entry for each array task and for each het job."""
        ...

    async def job(self, job: str) -> JobView | None:
        """None where the scheduler no longer knows it."""
        ...

    async def reservations(self) -> tuple[ReservationView, ...]:
        """Those that are running now."""
        ...

    async def topology(self) -> Mapping[str, tuple[str, ...]]:
        """Node -> what it shares with others, as "switch leaf3"; empty where the scheduler knows of no topology."""
        ...

    async def drain(self, nodes: Sequence[str], reason: str) -> None:
        """Lets no new job start there; sets state and reason in one call."""
        ...

    async def undrain(self, node: str) -> None: ...

    async def requeue(self, job: str, *, hold: bool) -> None:
        """Ends a batch job that has not ended and puts it back into the queue under the same id. Else does nothing."""
        ...

    async def release(self, job: str) -> None: ...

    async def cancel(self, job: str) -> None:
        """Ends a job for good. Does nothing where it has ended."""
        ...

    async def notify_job(self, job: str, text: str) -> None:
        """Writes one line to the output of a running job, or to its user's terminal."""
        ...

    async def signal_job(self, job: str) -> str:
        """Sends a job the signal that it asked for before its end; gives its name, "" where it asked for none."""
        ...

    async def comment_job(self, job: str, text: str) -> None:
        """Leaves a line on the job's record for its user, unless someone else's line is there."""
        ...


class NoScheduler:
    """For machines without a batch scheduler: the controller records what it would do."""

    acts = False

    async def nodes(self) -> Mapping[str, NodeView]:
        return {}

    async def node(self, name: str) -> NodeView:
        raise SchedulerRefused("there is no scheduler")

    async def jobs_on(self, node: str) -> tuple[JobView, ...]:
        return ()

    async def job(self, job: str) -> JobView | None:
        return None

    async def reservations(self) -> tuple[ReservationView, ...]:
        return ()

    async def topology(self) -> Mapping[str, tuple[str, ...]]:
        return {}

    async def drain(self, nodes: Sequence[str], reason: str) -> None:
        raise SchedulerRefused("there is no scheduler")

    async def undrain(self, node: str) -> None:
        raise SchedulerRefused("there is no scheduler")

    async def requeue(self, job: str, *, hold: bool) -> None:
        raise SchedulerRefused("there is no scheduler")

    async def release(self, job: str) -> None:
        raise SchedulerRefused("there is no scheduler")

    async def cancel(self, job: str) -> None:
        raise SchedulerRefused("there is no scheduler")

    async def notify_job(self, job: str, text: str) -> None:
        raise SchedulerRefused("there is no scheduler")

    async def signal_job(self, job: str) -> str:
        raise SchedulerRefused("there is no scheduler")

    async def comment_job(self, job: str, text: str) -> None:
        raise SchedulerRefused("there is no scheduler")
