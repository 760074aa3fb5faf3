"""Whether a hook refuses a job for a finding: by the controller's word, its age, and the limits of this node. Pure.

A hook never waits for the network: the word was there before the job, or the rules for an absent controller hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from nodetriage.agent.settings.config import HookSettings
from nodetriage.agent.slurm.known import Grave
from nodetriage.checks.model.faults import faults

REFUSAL_LASTS_S = 10.0  # until Slurm drains the node; jobs that start together are refused together
# Whose cause other nodes may share, whatever the controller's own list says.
SHARED = (
    "mount_*", "reach_*", "ib_*", "eth_*", "clock_*", "service_*", "version_*", "gpu_fabric_*",
    "gpu_nvlink_*", "node_lost",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NamedFinding:
    """A finding of this node, by name. `incident` is the controller's, if one is open; `why` it is held."""

    component: str
    fault: str
    incident: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Authority:
    """The controller's last word, as it is kept on disk. `received_s` is CLOCK_BOOTTIME of `boot_id`."""

    version: int
    mode: Literal["observe", "recommend", "enforce"]
    valid_s: float
    brought_by: str  # the stream: its address, and how the controller showed there who it is
    boot_id: str
    received_s: float
    received_unix_s: int
    breaker_why: str = ""
    shared_faults: tuple[str, ...] = ()  # patterns
    excluded_faults: tuple[str, ...] = ()
    excluded_checks: tuple[str, ...] = ()
    incident_faults: tuple[str, ...] = ()
    granted: tuple[NamedFinding, ...] = ()
    held: tuple[NamedFinding, ...] = ()

    def is_fresh(self, boot_id: str, now_s: float) -> bool:
        return self.boot_id == boot_id and now_s - self.received_s <= self.valid_s


@dataclass(frozen=True, slots=True)
class Refusals:
    """For what a hook of this node has refused a job in this boot, and when it first did (CLOCK_BOOTTIME)."""

    boot_id: str
    first_s: Mapping[str, float] = field(default_factory=dict)  # by "FAULT COMPONENT"

    def with_one(self, grave: Grave, now_s: float) -> "Refusals":
        return Refusals(self.boot_id, {key(grave): now_s, **self.first_s})


@dataclass(frozen=True, slots=True)
class Ruling:
    """`refuse`: the job is refused. `would`: only the mode lets it in. `why`: what else does."""

    refuse: bool
    would: bool
    why: str = ""
    incident: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a ruling rests on besides the finding. `word` is None where no controller has ever said anything."""

    alone: bool  # no controller is set: the local settings decide
    word: Authority | None
    refusals: Refusals
    settings: HookSettings
    boot_id: str
    now_s: float

    @property
    def mode(self) -> str:
        if self.alone:
            return self.settings.mode
        return self.word.mode if self.word else "observe"

    @property
    def is_heard(self) -> bool:
        return not self.alone and self.word is not None and self.word.is_fresh(self.boot_id, self.now_s)


def rule(grave: Grave, standing: Standing) -> Ruling:
    """What becomes of a job for one critical finding."""
    if standing.mode != "enforce":
        why = _own_why(grave, standing)
        mode = "no controller has said otherwise" if not standing.alone and not standing.word else standing.mode
        return Ruling(False, not why, why or f"the hooks' mode is observe ({mode})")
    if standing.is_heard and standing.word is not None:
        granted = _named(standing.word.granted, grave)
        why = _common_why(grave, standing) or _heard_why(grave, standing.word)
        return Ruling(not why, False, why, granted.incident if granted else "")
    why = _own_why(grave, standing)
    return Ruling(not why, False, why)


def _common_why(grave: Grave, standing: Standing) -> str:
    """What holds in every case."""
    if grave.age_s > standing.settings.fresh_s:
        return f"it was last seen {grave.age_s:.0f} s ago"
    first_s = standing.refusals.first_s.get(key(grave))
    if first_s is not None and standing.now_s - first_s > REFUSAL_LASTS_S:
        return "a job was refused for it in this boot already"
    if standing.word is not None and not standing.alone and standing.word.breaker_why:
        return standing.word.breaker_why
    return ""


def _heard_why(grave: Grave, word: Authority) -> str:
    """By a fresh word only what is granted counts."""
    if _named(word.granted, grave):
        return ""
    held = _named(word.held, grave)
    return held.why if held else "the controller has granted no refusal for it"


def _own_why(grave: Grave, standing: Standing) -> str:
    """Without a fresh word only this node's own hardware counts, and what the last word excluded stays excluded."""
    if why := _common_why(grave, standing):
        return why
    fault, word = grave.finding.fault, None if standing.alone else standing.word
    if not is_own_hardware(fault, standing.settings, word.shared_faults if word else ()):
        return "without the controller's word only a fault of this node's own hardware refuses a job"
    if word is not None and (fault in word.excluded_faults or grave.check in word.excluded_checks):
        return "the controller's policy excludes it"
    if word is not None and fault in word.incident_faults:
        return "it was part of a fleet incident by the controller's last word"
    return ""


def is_own_hardware(fault: str, settings: HookSettings, shared: tuple[str, ...] = ()) -> bool:
    """Nothing but hardware of this node can be its cause; or the site says so of a fault of its own check."""
    if any(fnmatchcase(fault, pattern) for pattern in (*SHARED, *shared)):
        return False
    entry = faults().get(fault)
    if entry is None or not entry.trusted:
        return fault in settings.trusted
    return entry.domains == ("hardware",) and entry.class_ not in ("fabric", "agent")


def key(grave: Grave) -> str:
    return f"{grave.finding.fault} {grave.finding.component}"


def _named(findings: tuple[NamedFinding, ...], grave: Grave) -> NamedFinding | None:
    of = grave.finding
    return next((f for f in findings if (f.component, f.fault) == (of.component, of.fault)), None)
