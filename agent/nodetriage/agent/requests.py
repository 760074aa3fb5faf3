"""What a controller or a local client asks of the running agent. A refusal is words, never an exception."""

import asyncio
from typing import Any

from nodetriage.agent import heartbeat
from nodetriage.agent.check_scheduler import Rounds
from nodetriage.agent.workers.pool import Workers
from nodetriage.v1 import health_pb2 as pb


async def run(rounds: Rounds, workers: Workers, checks: Any) -> dict[str, Any]:
    """Runs the named checks now, all if none is named; answers what is then known through them."""
    names = checks or list(rounds.checks)
    unknown = [n for n in names if n not in rounds.checks] if isinstance(names, list) else [names]
    if unknown:
        known = ", ".join(sorted(rounds.checks))
        return {"error": f"not enabled here: {', '.join(map(str, unknown))}; enabled checks: {known}"}
    await asyncio.gather(*(rounds.run(name) for name in names))
    status = heartbeat.status(rounds, workers, heartbeat.boottime_s())
    return {**status, "checks": {n: status["checks"][n] for n in names}}


async def obey(rounds: Rounds, workers: Workers, command: pb.Command) -> pb.CommandResult:
    """What a controller commands."""
    if command.HasField("run"):
        answer = await run(rounds, workers, list(command.run.checks))
        message = answer.get("error") or ", ".join(f"{n} {c['outcome']}" for n, c in answer["checks"].items())
        return pb.CommandResult(id=command.id, done="error" not in answer, message=message)
    if command.HasField("clear"):
        clear = command.clear
        done = rounds.clear(clear.check, clear.part, clear.fault, clear.actor)
        return pb.CommandResult(id=command.id, done=done, message="" if done else "no such fault is held")
    return pb.CommandResult(id=command.id, done=False, message="this agent does not know that command")
