"""Every fault code, from faults.toml: agent, controller and analysis use the same codes."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from nodetriage.checks.model.settings import ConfigError, decode, load_toml
from nodetriage.checks.model.severity import Severity

Domain = Literal["user", "system", "hardware"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault code. `latching` is "no", "boot" or seconds as "NNNs" (see the head of faults.toml)."""

    title: str
    class_: str
    severity: Severity
    latching: str
    domains: tuple[Domain, ...]
    means: str
    advice: str
    trusted: bool = False  # False: in shadow, it drains no node and refuses no job
    code: str = ""

    def __post_init__(self) -> None:
        if self.latching not in ("no", "boot") and not re.fullmatch(r"\d+s", self.latching, re.ASCII):
            raise ValueError(f'latching: expected "no", "boot" or "NNNs", got {self.latching!r}')

    @property
    def forgotten_after_s(self) -> float | None:
        """Seconds after which the fault ends if it is not reported again; None where time does not end it."""
        return float(self.latching[:-1]) if self.latching.endswith("s") else None


@functools.cache
def faults() -> Mapping[str, Fault]:
    """All fault codes by name. Raises ConfigError where the shipped table is wrong (a test walks it)."""
    with resources.as_file(resources.files("nodetriage.checks.model") / "faults.toml") as path:
        table = load_toml(path)
    found = {}
    for code, entry in table.items():
        entry["class_"] = entry.pop("class", None)
        found[code] = decode(Fault, {**entry, "code": code}, str(path.name), code)
        if not found[code].domains:
            raise ConfigError(f"{path.name}: {code}.domains: expected at least one")
    return found
