"""Keeps one worker for each device class, with deadlines and back-off. The event loop never blocks here."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from nodetriage.agent.core.result import Result
from nodetriage.agent.settings.config import AgentSettings
from nodetriage.agent.workers.handle import KILL_LIMIT_S, Abandoned, Records, WorkerHandle, within
from nodetriage.agent.workers.process import ForkServer
from nodetriage.agent.workers.worker import Setup
from nodetriage.checks.model import Check


def setup_from(settings: AgentSettings) -> Setup:
    """The settings that workers need."""
    policies = {name: dict(one.overrides) for name, one in settings.checks.items()}
    return Setup(
        str(settings.agent.root),
        policies,
        programs=settings.programs.by_name(),
        commands=dict(settings.commands),
        reach=settings.reach,
        redfish=settings.redfish if settings.redfish.address else None,
    )


class WorkerPool:
    """Calls `on_free` with a device class when its abandoned worker has ended."""

    def __init__(self, setup: Setup, catalogue: str, on_free: Callable[[str], None]) -> None:
        self._server = ForkServer(catalogue)
        self._setup = setup
        self._on_free = on_free
        self._classes: dict[str, WorkerHandle] = {}

    async def run(self, check: Check[Any, Any], records: Records = (), memory: bytes | None = None) -> Result:
        """Runs the check once in the worker of its class. Both memories are JSON. Never raises, and is never late.

        Runs for one class that are asked for in one turn of the loop go there together. If the caller is cancelled, the
        run still ends by itself.
        """
        return await asyncio.shield(self._class(check.worker).ask(check, records, memory))

    def configure(self, setup: Setup) -> None:
        """Uses new settings from the next run on. The quarantine stays as it is."""
        self._setup = msgspec.structs.replace(setup, quarantined=self._setup.quarantined)
        for device_class in self._classes.values():
            device_class.setup = self._setup

    def quarantine(self, addresses: tuple[str, ...]) -> None:
        """From the next run on no worker asks NVML about these GPUs."""
        if addresses != self._setup.quarantined:
            self._setup = msgspec.structs.replace(self._setup, quarantined=addresses)
            self.configure(self._setup)

    @property
    def abandoned(self) -> tuple[Abandoned, ...]:
        return tuple(c.abandoned for c in self._classes.values() if c.abandoned)

    @property
    def abandoned_programs(self) -> int:
        """How many programs that checks started still sleep in the kernel, where no signal ends them."""
        return sum(c.abandoned_programs for c in self._classes.values())

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by device class; the fork server's as "forkserver"."""
        living = {name: c.child.pid for name, c in self._classes.items() if c.child}
        return {"forkserver": self._server.pid, **living}

    async def close(self) -> None:
        """Kills all workers, and waits KILL_LIMIT_S for them at most."""
        await asyncio.gather(*(c.stop() for c in self._classes.values()))
        children = [c.child for c in self._classes.values() if c.child]
        for child in children:
            child.kill()
        if children:
            await within(asyncio.gather(*(c.ended.wait() for c in children)), KILL_LIMIT_S)
        for child in children:
            child.forget()
        self._server.stop()

    def _class(self, name: str) -> "WorkerHandle":
        if name not in self._classes:
            self._classes[name] = WorkerHandle(name, self._server, self._setup, self._on_free)
        return self._classes[name]
