"""The text that marks a drain as ours: `nodetriage: FAULT PART [incident ID]`."""

import re
from dataclasses import dataclass

from nodetriage.controller.scheduler import NodeView

# What slurmctld writes by itself about a node that does not answer, or registers with less than slurm.conf says
# (22.05 to 24.11: node_mgr.c, gres.c). It is a measurement and nobody's decision: it owns no drain and may be replaced.
_MEASURED = (
    r"Not responding",
    r"Node unexpectedly rebooted",
    r"ResumeTimeout reached",
    r"Low RealMemory(?: \(reported:\d+ < [\d.]+% of configured:\d+\))?",
    r"Low (?:TmpDisk|CPUs|socket\*core\*thread count)",
    r"gres/[\w:-]+ count (?:reported lower than configured|too low)(?: \(\d+ < \d+\))?",
)
_ONE = "(?:" + "|".join(_MEASURED) + ")"
# Slurm appends what becomes of a reboot, and from 23.11 on what it measures; scontrol appends who set the reason, and
# when. More words are a person's.
_APPENDED = (
    r"(?: : (?:reboot (?:requested|issued|complete|canceled|timed out)|" + _ONE + r"))*(?: \[[^\[\]\s]+@[0-9T:-]+\])?"
)
_OURS = re.compile(
    r"nodetriage: (?P<fault>\S+) (?P<component>\S+) \[incident (?P<incident>[\w-]+)\]" + _APPENDED, re.ASCII
)
_SLURMS_OWN = re.compile(_ONE + "(?:, " + _ONE + ")*" + _APPENDED, re.ASCII)
# Who slurmctld is: SlurmUser. Where slurm.conf names another user, Slurm's texts count as that person's.
_SLURM_USERS = ("slurm", "root")

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
    """None where the reason is someone else's, be it only for words that someone added to ours."""
    match = _OURS.fullmatch(text)
    return Ours(match["fault"], match["component"], match["incident"]) if match else None


def is_schedulers_own(view: NodeView) -> bool:
    """The node's reason is slurmctld's own, word for word, and slurmctld set it."""
    return view.reason_by in _SLURM_USERS and _SLURMS_OWN.fullmatch(view.reason) is not None


def lost_to_power_saving(view: NodeView) -> bool:
    """Slurm itself ended the node's drain, or took the reason from it: at POWER_DOWN_ASAP, and 22.05 at POWER_UP."""
    return view.power_saving and not (view.draining and view.reason)


def is_hook_error(text: str) -> bool:
    return text in _HOOK_ERRORS
