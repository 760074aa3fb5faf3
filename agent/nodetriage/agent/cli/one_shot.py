"""One look, or several, of each check for the command line: in this process on a recorded tree, else in workers."""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from nodetriage.agent.core.result import Result
from nodetriage.agent.machine.host import Host
from nodetriage.agent.settings.config import AgentSettings
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Check, KernelRecord, Outcome

CATALOGUE = "nodetriage.agent.installed_checks:CHECKS"
AnyCheck = Check[Any, Any]

NEEDS, UNCONFIRMED = "needs ", "not confirmed: "


@dataclasses.dataclass(frozen=True, slots=True)
class Looks:
    """How often each check looks, and the pause in between. What the kernel's log says needs no second look."""

    times: int = 1
    pause_s: float = 60.0

    def of(self, check: AnyCheck) -> int:
        return self.times if check.kernel_pattern is None else 1


ONE = Looks()


def on_tree(checks: Sequence[AnyCheck], root: Path, before: Path | None, looks: Looks = ONE) -> list[Result]:
    """Runs each check in this process; first on `before`, where given, for faults that show only as a change.

    Each further look sees the same tree, so it tells what the checks say of a machine that stays like this.
    """
    host = Host(root)
    earlier = Host(before) if before is not None else None
    results = []
    for check in checks:
        memory = None
        if earlier is not None:
            memory = run(check, earlier.for_check(check), check.policy, None).memory
        seen = []
        for _ in range(looks.of(check)):
            seen.append(run(check, host.for_check(check), check.policy, memory))
            memory = seen[-1].memory
        results.append(summed(check, seen, looks.times + (earlier is not None)))
    return results


async def on_this_machine(
    checks: Sequence[AnyCheck], settings: AgentSettings, looks: Looks = ONE, say: Callable[[str], None] = lambda _: None
) -> list[Result]:
    """Runs each check in the worker of its class, so that none can hang the caller. The classes run in parallel."""
    import msgspec

    from nodetriage.agent.core import quarantine
    from nodetriage.agent.workers.pool import WorkerPool, setup_from
    from nodetriage.checks.gpu import gpu_xid

    log = kernel_log(settings)
    setup = msgspec.structs.replace(setup_from(settings), root="/")
    workers = WorkerPool(setup, CATALOGUE, on_free=lambda _: None)

    async def one(check: AnyCheck, memory: bytes | None) -> Result:
        if check.kernel_pattern is None:
            return await workers.run(check, (), memory)
        if isinstance(log, OSError):
            outcome = Outcome.SKIPPED if isinstance(log, FileNotFoundError) else Outcome.BROKEN
            hint = ": run it as root" if isinstance(log, PermissionError) else ""
            return Result(check.name, outcome, why=f"{settings.kernel_log.path}: {log.strerror}{hint}")
        mine = Host("/", records=log, pattern=check.kernel_pattern).kernel_log()
        return await workers.run(check, mine)

    try:
        if not isinstance(log, OSError):  # asking NVML about a GPU that is off the bus may hang
            xid = gpu_xid.CHECK
            careful = dataclasses.replace(xid.policy, any_device=True)  # NVML may list what the bus does not
            said = run(xid, Host("/", records=log, pattern=xid.kernel_pattern), careful, None)
            workers.quarantine(quarantine.addresses(said.findings))
        return await _looked(checks, one, looks, say)
    finally:
        await workers.close()


async def _looked(
    checks: Sequence[AnyCheck],
    run_once: Callable[[AnyCheck, bytes | None], Awaitable[Result]],
    looks: Looks,
    say: Callable[[str], None],
) -> list[Result]:
    import asyncio

    seen: dict[str, list[Result]] = {check.name: [] for check in checks}
    for look in range(looks.times):
        again = [check for check in checks if look < looks.of(check)]
        if look:
            say(f"look {look + 1} of {looks.times}, in {looks.pause_s:g} s")
            await asyncio.sleep(looks.pause_s)
        memories = [seen[check.name][-1].memory if look else None for check in again]
        for check, result in zip(again, await asyncio.gather(*map(run_once, again, memories)), strict=True):
            seen[check.name].append(result)
    return [summed(check, seen[check.name], looks.times) for check in checks]


def summed(check: AnyCheck, seen: Sequence[Result], runs: int) -> Result:
    """The last look, with what `runs` looks cannot tell. A finding counts where the last `raise_after` looks agree."""
    last = seen[-1]
    latest = seen[-check.raise_after :]
    keys = [{(f.component, f.fault) for f in result.findings} for result in latest]
    agree = len(latest) == check.raise_after and all(found == keys[-1] for found in keys)
    return last if agree and last.findings else qualified(check, last, runs)


def qualified(check: AnyCheck, result: Result, runs: int) -> Result:
    """The result with what so few runs cannot tell: `ok` is then `skipped`, and a finding is not confirmed."""
    needed = check.runs_needed(check.policy) if check.runs_needed else 1
    if result.outcome is Outcome.OK and runs < needed:
        why = f"{NEEDS}{needed} runs in a row, {check.every_s:g} s apart; this was {_count(runs)}"
        return dataclasses.replace(result, outcome=Outcome.SKIPPED, why=why)
    if result.outcome is Outcome.FINDINGS and check.raise_after > 1:
        why = f"{UNCONFIRMED}{check.raise_after} runs in a row must agree"
        return dataclasses.replace(result, why="; ".join(filter(None, (result.why, why))))
    return result


def looks_needed(checks: Sequence[AnyCheck], results: Sequence[Result]) -> int:
    """The most looks that a check still asks for; 0 where none does."""
    wanted = [
        max(check.raise_after, check.runs_needed(check.policy) if check.runs_needed else 1)
        for check, result in zip(checks, results, strict=True)
        if NEEDS in result.why or UNCONFIRMED in result.why
    ]
    return max(wanted, default=0)


def _count(runs: int) -> str:
    return "one" if runs == 1 else str(runs)


def kernel_log(settings: AgentSettings) -> tuple[KernelRecord, ...] | OSError:
    """All records of this boot that the kernel still has, or the error that prevents reading them."""
    from nodetriage.agent.machine import kmsg

    try:
        return kmsg.whole_log(str(settings.kernel_log.path), settings.kernel_log.accept_user_records)
    except OSError as error:
        return error
