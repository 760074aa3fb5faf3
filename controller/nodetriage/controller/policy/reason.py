"""The text that marks a drain as ours: `nodetriage: FAULT PART [incident ID]`."""

import re
from dataclasses import dataclass

_OURS = re.compile(r"nodetriage: (?P<fault>\S+) (?P<component>\S+) \[incident (?P<incident>[\w-]+)\]")
# The scheduler's own words for a node that fell away; they are nobody's decision and may be replaced.
_SLURMS_OWN = re.compile(r"Not responding|Node unexpectedly rebooted|Node .*not responding", re.IGNORECASE)

# What slurmd has slurmctld write when a hook fails, whosever hook it was.
_HOOK_ERRORS = ("Prolog error", "Epilog error")


@dataclass(frozen=True, slots=True)
class Ours:
    fault: str
    component: str
    incident: str


def reason_text(fault: str, component: str, incident: str) -> str:
    """One line that survives a shell, slurmctld's log and sinfo; what a part name cannot have becomes "_"."""
    clean = re.sub(r"[^A-Za-z0-9_.:/@+-]", "_", component)[:80] or "-"
    return f"nodetriage: {fault} {clean} [incident {incident}]"


def parse_reason(text: str) -> Ours | None:
    """None where the reason is someone else's. What Slurm appends (" : reboot issued", " [root@...]") is tolerated."""
    match = _OURS.match(text)
    return Ours(match["fault"], match["component"], match["incident"]) if match else None


def is_schedulers_own(text: str) -> bool:
    return _SLURMS_OWN.match(text) is not None


def is_hook_error(text: str) -> bool:
    return text in _HOOK_ERRORS
