"""One run of each check for the command line: in this process on a recorded tree, in workers on the live machine."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nodetriage.agent.core.result import Result
from nodetriage.agent.machine.host import Host
from nodetriage.agent.settings.config import AgentSettings
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Check, KernelRecord, Outcome

CATALOGUE = "nodetriage.agent.installed_checks:CHECKS"
AnyCheck = Check[Any, Any]


def on_tree(checks: Sequence[AnyCheck], root: Path, before: Path | None) -> list[Result]:
    """Runs each check in this process; first on `before`, where given, for faults that show only as a change."""
    host = Host(root)
    earlier = Host(before) if before is not None else None
    results = []
    for check in checks:
        memory = None
        if earlier is not None:
            memory = run(check, earlier.for_check(check), check.policy, None).memory
        runs = 1 if earlier is None else 2
        results.append(qualified(check, run(check, host.for_check(check), check.policy, memory), runs))
    return results


async def on_this_machine(checks: Sequence[AnyCheck], settings: AgentSettings) -> list[Result]:
    """Runs each check in the worker of its class, so that none can hang the caller. The classes run in parallel."""
    import asyncio

    import msgspec

    from nodetriage.agent.core import quarantine
    from nodetriage.agent.workers.pool import WorkerPool, setup_from
    from nodetriage.checks.gpu import gpu_xid

    log = kernel_log(settings)
    setup = msgspec.structs.replace(setup_from(settings), root="/")
    workers = WorkerPool(setup, CATALOGUE, on_free=lambda _: None)

    async def one(check: AnyCheck) -> Result:
        if check.kernel_pattern is None:
            return qualified(check, await workers.run(check), runs=1)
        if isinstance(log, OSError):
            outcome = Outcome.SKIPPED if isinstance(log, FileNotFoundError) else Outcome.BROKEN
            hint = ": run it as root" if isinstance(log, PermissionError) else ""
            return Result(check.name, outcome, why=f"{settings.kernel_log.path}: {log.strerror}{hint}")
        mine = Host("/", records=log, pattern=check.kernel_pattern).kernel_log()
        return qualified(check, await workers.run(check, mine), runs=1)

    try:
        if not isinstance(log, OSError):  # asking NVML about a GPU that is off the bus may hang
            xid = gpu_xid.CHECK
            careful = dataclasses.replace(xid.policy, any_device=True)  # NVML may list what the bus does not
            said = run(xid, Host("/", records=log, pattern=xid.kernel_pattern), careful, None)
            workers.quarantine(quarantine.addresses(said.findings))
        return list(await asyncio.gather(*map(one, checks)))
    finally:
        await workers.close()


def qualified(check: AnyCheck, result: Result, runs: int) -> Result:
    """The result with what so few runs cannot tell: `ok` is then `skipped`, and a finding is not confirmed."""
    needed = check.runs_needed(check.policy) if check.runs_needed else 1
    if result.outcome is Outcome.OK and runs < needed:
        why = f"needs {needed} runs in a row, {check.every_s:g} s apart; this was {_count(runs)}"
        return dataclasses.replace(result, outcome=Outcome.SKIPPED, why=why)
    if result.outcome is Outcome.FINDINGS and check.raise_after > 1:
        why = f"not confirmed: {check.raise_after} runs in a row must agree"
        return dataclasses.replace(result, why="; ".join(filter(None, (result.why, why))))
    return result


def _count(runs: int) -> str:
    return "one" if runs == 1 else str(runs)


def kernel_log(settings: AgentSettings) -> tuple[KernelRecord, ...] | OSError:
    """All records of this boot that the kernel still has, or the error that prevents reading them."""
    from nodetriage.agent.machine import kmsg

    try:
        return kmsg.whole_log(str(settings.kernel_log.path), settings.kernel_log.accept_user_records)
    except OSError as error:
        return error
