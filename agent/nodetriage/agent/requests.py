"""What a controller or a local client may ask of the running agent. A refusal is a text, never an exception."""

import asyncio
import contextlib
from typing import Any

from nodetriage.agent import heartbeat
from nodetriage.agent.check_scheduler import CheckScheduler
from nodetriage.agent.machine.boot import boottime_s
from nodetriage.agent.workers.pool import WorkerPool
from nodetriage.v1 import health_pb2 as pb


async def run(scheduler: CheckScheduler, workers: WorkerPool, checks: Any) -> dict[str, Any]:
    """Runs the named checks now, or all where none is named. Answers as `status` does, for these checks only."""
    names = checks or list(scheduler.checks)
    unknown = [n for n in names if n not in scheduler.checks] if isinstance(names, list) else [names]
    if unknown:
        known = ", ".join(sorted(scheduler.checks))
        return {"error": f"not enabled here: {', '.join(map(str, unknown))}; enabled checks: {known}"}
    await asyncio.gather(*(_run(scheduler, name) for name in names))
    status = heartbeat.status(scheduler, workers, boottime_s())
    return {**status, "checks": {n: status["checks"][n] for n in names if n in status["checks"]}}


async def _run(scheduler: CheckScheduler, name: str) -> None:
    with contextlib.suppress(KeyError):  # a reload has switched the check off meanwhile
        await scheduler.run(name)


async def execute(scheduler: CheckScheduler, workers: WorkerPool, command: pb.Command) -> pb.CommandResult:
    """Does what a controller commands."""
    if command.HasField("run"):
        answer = await run(scheduler, workers, list(command.run.checks))
        message = answer.get("error") or ", ".join(f"{n} {c['outcome']}" for n, c in answer["checks"].items())
        return pb.CommandResult(id=command.id, done="error" not in answer, message=message)
    if command.HasField("clear"):
        clear = command.clear
        done = scheduler.clear(clear.check, clear.component, clear.fault, clear.actor)
        return pb.CommandResult(id=command.id, done=done, message="" if done else "no such finding is open")
    return pb.CommandResult(id=command.id, done=False, message="this version of the agent has no such command")
