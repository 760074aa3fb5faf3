"""What a controller or a local client asks of the running agent. A refusal is words, never an exception."""

import asyncio
from typing import Any

from nodetriage.agent import heartbeat
from nodetriage.agent.check_scheduler import CheckScheduler
from nodetriage.agent.workers.pool import WorkerPool
from nodetriage.v1 import health_pb2 as pb


async def run(scheduler: CheckScheduler, workers: WorkerPool, checks: Any) -> dict[str, Any]:
    """Runs the named checks now, all if none is named; answers what is then known through them."""
    names = checks or list(scheduler.checks)
    unknown = [n for n in names if n not in scheduler.checks] if isinstance(names, list) else [names]
    if unknown:
        known = ", ".join(sorted(scheduler.checks))
        return {"error": f"not enabled here: {', '.join(map(str, unknown))}; enabled checks: {known}"}
    await asyncio.gather(*(scheduler.run(name) for name in names))
    status = heartbeat.status(scheduler, workers, heartbeat.boottime_s())
    return {**status, "checks": {n: status["checks"][n] for n in names}}


async def obey(scheduler: CheckScheduler, workers: WorkerPool, command: pb.Command) -> pb.CommandResult:
    """What a controller commands."""
    if command.HasField("run"):
        answer = await run(scheduler, workers, list(command.run.checks))
        message = answer.get("error") or ", ".join(f"{n} {c['outcome']}" for n, c in answer["checks"].items())
        return pb.CommandResult(id=command.id, done="error" not in answer, message=message)
    if command.HasField("clear"):
        clear = command.clear
        done = scheduler.clear(clear.check, clear.component, clear.fault, clear.actor)
        return pb.CommandResult(id=command.id, done=done, message="" if done else "no such fault is held")
    return pb.CommandResult(id=command.id, done=False, message="this agent does not know that command")
