"""A scheduler kept in memory that behaves as docs/slurm.md says Slurm does: for tests of what is decided and done."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nodetriage.controller.scheduler import JobView, NodeView, ReservationView, SchedulerRefused, SchedulerUnavailable


class FakeSlurm:
    """`down` makes every call fail, `refuses` each drain; `said` is every changing call that was taken, in order."""

    acts = True

    def __init__(self, *nodes: str, partitions: tuple[str, ...] = ("main",)) -> None:
        self.views = {n: NodeView(n, "idle", partitions=partitions) for n in nodes}
        self.held: dict[str, JobView] = {}  # every job ever
        self.placed: dict[str, tuple[str, ...]] = {}
        self.said: list[str] = []
        self.told: list[str] = []  # what jobs and their users were told
        self.down = False
        self.refuses = ""  # what a change of a node is refused with
        self.reserved: tuple[ReservationView, ...] = ()
        self.places: dict[str, tuple[str, ...]] = {}

    def place(self, job: str, *nodes: str, **facts: object) -> None:
        given = {"state": "RUNNING", "batch": True, "requeueable": True, "restarts": 0, "user": "ann", **facts}
        self.held[job] = JobView(job, node_count=len(nodes), nodes=",".join(nodes), **given)  # type: ignore[arg-type]
        self.placed[job] = nodes
        self._busy()

    def end(self, job: str, state: str = "COMPLETED") -> None:
        self.held[job] = replace(self.held[job], state=state)
        self.placed[job] = ()
        self._busy()

    async def nodes(self) -> Mapping[str, NodeView]:
        self._answer()
        return dict(self.views)

    async def node(self, name: str) -> NodeView:
        self._answer()
        if name not in self.views:
            raise SchedulerRefused(f"Slurm has no node {name} in any partition")
        return self.views[name]

    async def jobs_on(self, node: str) -> tuple[JobView, ...]:
        self._answer()
        return tuple(self.held[j] for j, nodes in self.placed.items() if node in nodes)

    async def job(self, job: str) -> JobView | None:
        self._answer()
        return self.held.get(job)

    async def reservations(self) -> tuple[ReservationView, ...]:
        self._answer()
        return self.reserved

    async def topology(self) -> Mapping[str, tuple[str, ...]]:
        self._answer()
        return self.places

    async def drain(self, nodes: Sequence[str], reason: str) -> None:
        self._answer()
        if self.refuses:
            raise SchedulerRefused(self.refuses)
        self.said.append(f"drain {','.join(nodes)} {reason!r}")
        for name in nodes:
            self.set_drain(name, reason, "root")

    async def undrain(self, node: str) -> None:
        self._answer()
        self.said.append(f"undrain {node}")
        self.resume(node)

    async def requeue(self, job: str, *, hold: bool) -> None:
        self._answer()
        view = self.held[job]
        if not view.batch:
            raise SchedulerRefused(f"Only batch jobs are accepted or processed for job {job}")
        self.said.append(f"requeue{'hold' if hold else ''} {job}")
        if view.active:
            self.held[job] = replace(view, state="PENDING", restarts=view.restarts + 1)
            self.placed[job] = ()
            self._busy()

    async def release(self, job: str) -> None:
        self._answer()
        self.said.append(f"release {job}")

    async def cancel(self, job: str) -> None:
        self._answer()
        self.said.append(f"cancel {job}")
        if self.held[job].active:
            self.end(job, "CANCELLED")

    async def notify_job(self, job: str, text: str) -> None:
        self._answer()
        self.told.append(f"notify {job} {text}")

    async def signal_job(self, job: str) -> str:
        self._answer()
        self.told.append(f"signal {job}")
        return "USR1"

    async def comment_job(self, job: str, text: str) -> None:
        self._answer()
        self.told.append(f"comment {job} {text}")

    def set_drain(self, name: str, reason: str, by: str) -> None:
        view = self.views[name]
        self.views[name] = replace(view, flags=view.flags | {"drain"}, reason=reason, reason_by=by)

    def resume(self, name: str) -> None:
        view = self.views[name]
        self.views[name] = replace(view, flags=view.flags - {"drain"}, reason="", reason_by="")

    def set_down(self, name: str, reason: str) -> None:
        self.views[name] = replace(self.views[name], base="down", reason=reason, reason_by="slurm")

    def set_up(self, name: str) -> None:
        self.views[name] = replace(self.views[name], base="idle")

    def set_flag(self, name: str, flag: str, on: bool) -> None:
        view = self.views[name]
        self.views[name] = replace(view, flags=view.flags | {flag} if on else view.flags - {flag})

    def _answer(self) -> None:
        if self.down:
            raise SchedulerUnavailable("scontrol: Unable to contact slurm controller (connect failure)")

    def _busy(self) -> None:
        for name, view in self.views.items():
            on = any(name in nodes for nodes in self.placed.values())
            self.views[name] = replace(view, base="mixed" if on else "idle")
