"""What this machine should have: chooses its profile and puts the profile's settings below the configuration's."""

import dataclasses
from pathlib import Path
from types import MappingProxyType

from nodetriage.agent.machine.host import Host
from nodetriage.agent.settings.config import AgentSettings, CheckSettings, Profile
from nodetriage.checks.model import Unavailable
from nodetriage.checks.model.settings import ConfigError, merged, replace_from
from nodetriage.checks.profiles import catalogue

NAMES_TIMEOUT_S = 2.0


def with_profile(settings: AgentSettings, host: Host, wanted: str = "") -> AgentSettings:
    """The settings on this machine. Their `profile.name` is the profile that was chosen.

    Raises ConfigError for an unknown profile, or one with a key that its check does not have.
    """
    profile = _choose(settings, host, wanted)
    unknown = profile.checks.keys() - settings.checks.keys()
    if unknown and profile.name not in catalogue.profiles():  # a test makes sure that our own name only our checks
        known = ", ".join(sorted(settings.checks))
        raise ConfigError(f"profile {profile.name}: checks.{min(unknown)}: unknown check; known checks: {known}")
    checks = {name: _under(one, profile) for name, one in settings.checks.items()}
    return dataclasses.replace(settings, profile=Profile(profile.name), checks=MappingProxyType(checks))


def _under(one: CheckSettings, profile: catalogue.Profile) -> CheckSettings:
    """Default, then profile, then configuration."""
    name = one.check.name
    overrides = merged(profile.checks.get(name, {}), one.overrides)
    where = f"profile {profile.name}"
    policy = replace_from(type(one.check.policy), one.check.policy, overrides, where, f"checks.{name}")
    return dataclasses.replace(one, check=dataclasses.replace(one.check, policy=policy), overrides=overrides)


def _choose(settings: AgentSettings, host: Host, wanted: str) -> catalogue.Profile:
    """The profile named in `wanted` (or a file), else in the settings, else the one that fits the machine."""
    name = wanted or settings.profile.name
    if name.endswith(".toml"):
        return catalogue.load(Path(name))
    if name:
        known = catalogue.profiles()
        if name not in known:
            raise ConfigError(f"profile {name!r}: unknown; known profiles: {', '.join(sorted(known))}")
        return known[name]
    try:
        product = host.text(catalogue.DMI_PRODUCT)
    except OSError:
        product = ""
    return catalogue.choose(product, _gpu_names(host))


def _gpu_names(host: Host) -> tuple[str, ...]:
    """On the live machine a program reads the driver's files: NVML may hang, and this process must not."""
    if host.is_tree:
        try:
            return tuple(gpu.name for gpu in host.gpus() if gpu.name)
        except (Unavailable, OSError, ValueError):
            return ()  # the checks of GPUs report it
    paths = host.glob("/proc/driver/nvidia/gpus/*/information")
    if not paths:
        return ()
    try:
        return gpu_models(host.run(("cat", *map(str, paths)), NAMES_TIMEOUT_S).stdout)
    except (Unavailable, OSError):
        return ()


def gpu_models(information: str) -> tuple[str, ...]:
    """The GPUs' names as NVML gives them, from the text of /proc/driver/nvidia/gpus/*/information."""
    fields = (line.partition(":") for line in information.splitlines())
    return tuple(value.strip() for key, _, value in fields if key.strip() == "Model" and value.strip())
