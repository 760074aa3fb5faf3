"""What a known machine should have: one TOML file for each product, chosen by DMI product and GPU name."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any

from nodetriage.checks.model.settings import decode, load_toml

GENERIC = "generic"
DMI_PRODUCT = "/sys/class/dmi/id/product_name"


@dataclass(frozen=True, slots=True)
class Match:
    """Shell patterns; case does not matter. An empty list matches anything; all other lists must match."""

    dmi_product: tuple[str, ...] = ()
    gpu_name: tuple[str, ...] = ()  # NVML's name of each GPU
    rank: int = 0  # of several profiles that match, the highest rank wins


@dataclass(frozen=True, slots=True)
class Profile:
    """`checks` has, by check, the settings that differ from the check's defaults, as TOML tables."""

    match: Match
    checks: Mapping[str, Any] = field(default_factory=dict)
    name: str = GENERIC


def load(path: Path) -> Profile:
    """The profile in a file. Raises ConfigError."""
    return decode(Profile, {**load_toml(path), "name": path.stem}, str(path))


@functools.cache
def profiles() -> Mapping[str, Profile]:
    """The shipped profiles, by name. Raises ConfigError."""
    with resources.as_file(resources.files("nodetriage.checks") / "profiles") as folder:
        found = [load(path) for path in sorted(folder.glob("*.toml"))]
    return {profile.name: profile for profile in found}


def choose(dmi_product: str, gpu_names: tuple[str, ...], among: Iterable[Profile] | None = None) -> Profile:
    """The profile of a machine; `generic` where no other matches. `dmi_product` is the content of DMI_PRODUCT.

    Where NVML does not answer, `gpu_names` is empty, and the product alone has to match.
    """
    known = profiles()
    fits = [p for p in (known.values() if among is None else among) if _fits(p.match, dmi_product, gpu_names)]
    return max(fits, key=lambda p: (p.match.rank, p.name), default=known[GENERIC])


def _fits(match: Match, dmi_product: str, gpu_names: tuple[str, ...]) -> bool:
    if match.dmi_product and not _any(match.dmi_product, dmi_product):
        return False
    if match.gpu_name:
        if not gpu_names:
            return bool(match.dmi_product)
        return all(_any(match.gpu_name, name) for name in gpu_names)
    return True


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)
