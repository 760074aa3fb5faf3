"""One round of checks for the command line: in this process on a recorded tree, in workers on the live machine."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodetriage.agent.config import AgentSettings
from nodetriage.agent.host import Host
from nodetriage.agent.run import Result, run
from nodetriage.checks import profiles
from nodetriage.checks.model import Check, KernelRecord, Outcome, Unavailable
from nodetriage.checks.settings import ConfigError

CATALOGUE = "nodetriage.agent.catalogue:CHECKS"
AnyCheck = Check[Any, Any]
Tables = Mapping[str, Mapping[str, Any]]


def choose_profile(host: Host, settings: AgentSettings, wanted: str) -> profiles.Profile:
    """The one that is asked for by name or as a file, else by the settings, else what the machine looks like.

    Raises ConfigError for a name that nobody knows.
    """
    name = wanted or settings.profile.name
    if name.endswith(".toml"):
        return profiles.load(Path(name))
    if name:
        known = profiles.profiles()
        if name not in known:
            raise ConfigError(f"profile {name!r}: unknown; known profiles: {', '.join(sorted(known))}")
        return known[name]
    try:
        product = host.text(profiles.DMI_PRODUCT)
    except OSError:
        product = ""
    return profiles.choose(product, _gpu_names(host))


def _gpu_names(host: Host) -> tuple[str, ...]:
    """On the live machine from the driver's own files: NVML may hang, and this process must not."""
    if host.is_tree:
        try:
            return tuple(gpu.name for gpu in host.gpus() if gpu.name)
        except (Unavailable, OSError, ValueError):
            return ()  # whoever asks for the GPUs themselves will say so
    names = []
    for path in host.glob("/proc/driver/nvidia/gpus/*/information"):
        fields = dict(line.split(":", 1) for line in host.text(path).splitlines() if ":" in line)
        names.append(fields.get("Model", "").strip())
    return tuple(name for name in names if name)


def tables(settings: AgentSettings, profile: profiles.Profile) -> dict[str, dict[str, Any]]:
    """The keys of each check's policy that differ from its defaults: the profile's, then the configuration's."""
    names = {*profile.checks, *settings.checks}
    return {
        name: {**profile.checks.get(name, {}), **(settings.checks[name].overrides if name in settings.checks else {})}
        for name in names
    }


def on_tree(
    checks: Sequence[AnyCheck], root: Path, before: Path | None, settings: AgentSettings, profile: profiles.Profile
) -> list[Result]:
    """Runs each check here; on `before` first, where there is such a tree, for what shows only as a change."""
    host = Host(root)
    earlier = Host(before) if before is not None else None
    known, where = settings.checks, ", ".join(map(str, settings.files))
    overrides = {name: dict(one.overrides) for name, one in known.items()}
    policies = profiles.policies(profile, overrides, where, [one.check for one in known.values()])
    results = []
    for check in checks:
        policy, memory = policies[check.name], None
        if earlier is not None:
            memory = run(check, earlier.for_check(check), policy, None).memory
        results.append(run(check, host.for_check(check), policy, memory))
    return results


async def on_this_machine(
    checks: Sequence[AnyCheck], settings: AgentSettings, profile: profiles.Profile
) -> list[Result]:
    """Runs each check in the worker of its class, so that none can hang the caller; the classes side by side."""
    import asyncio

    from nodetriage.agent.worker import Setup
    from nodetriage.agent.workers import Workers

    log = kernel_log(settings)
    workers = Workers(Setup(root="/", policies=tables(settings, profile)), CATALOGUE, on_free=lambda _: None)

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
        return list(await asyncio.gather(*map(one, checks)))
    finally:
        await workers.close()


def kernel_log(settings: AgentSettings) -> tuple[KernelRecord, ...] | OSError:
    """All that the kernel still holds of this boot, or why it cannot be read."""
    from nodetriage.agent import kmsg

    try:
        return kmsg.whole_log(str(settings.kernel_log.path), settings.kernel_log.accept_user_records)
    except OSError as error:
        return error
