"""One round of checks for the command line: in this process on a recorded tree, in workers on the live machine."""

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
    """Runs each check here; on `before` first, where there is such a tree, for what shows only as a change."""
    host = Host(root)
    earlier = Host(before) if before is not None else None
    results = []
    for check in checks:
        memory = None
        if earlier is not None:
            memory = run(check, earlier.for_check(check), check.policy, None).memory
        results.append(run(check, host.for_check(check), check.policy, memory))
    return results


async def on_this_machine(checks: Sequence[AnyCheck], settings: AgentSettings) -> list[Result]:
    """Runs each check in the worker of its class, so that none can hang the caller; the classes side by side."""
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
            return await workers.run(check)
        if isinstance(log, OSError):
            outcome = Outcome.SKIPPED if isinstance(log, FileNotFoundError) else Outcome.BROKEN
            hint = ": run it as root" if isinstance(log, PermissionError) else ""
            return Result(check.name, outcome, why=f"{settings.kernel_log.path}: {log.strerror}{hint}")
        mine = Host("/", records=log, pattern=check.kernel_pattern).kernel_log()
        return await workers.run(check, mine)

    try:
        if not isinstance(log, OSError):  # a GPU that fell off the bus must not be asked anything
            xid = gpu_xid.CHECK
            said = run(xid, Host("/", records=log, pattern=xid.kernel_pattern), xid.policy, None)
            workers.quarantine(quarantine.addresses(said.findings))
        return list(await asyncio.gather(*map(one, checks)))
    finally:
        await workers.close()


def kernel_log(settings: AgentSettings) -> tuple[KernelRecord, ...] | OSError:
    """All that the kernel still holds of this boot, or why it cannot be read."""
    from nodetriage.agent.machine import kmsg

    try:
        return kmsg.whole_log(str(settings.kernel_log.path), settings.kernel_log.accept_user_records)
    except OSError as error:
        return error
