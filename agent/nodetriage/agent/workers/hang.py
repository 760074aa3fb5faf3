"""What the kernel says about a process that does not answer. Reads only files of /proc that cannot hang."""

import re
from pathlib import Path

from nodetriage.checks.model import Check, Confidence, Finding, Scalar, Severity
from nodetriage.checks.model.faults import faults

STACK_FRAMES = 12
# What a hang means depends on how much hangs. So many in a row in one worker, with no answer between them, or one that
# lasts so long, are no slow call about one device: its driver answers nobody, and jobs cannot start.
IN_A_ROW = 3
LASTING_S = 120.0
_DRIVERS = {"gpu": ("nvidia-driver", "gpu_driver_hung")}  # by worker: component and fault
_NOT_WAITING = ("R", "T", "t")  # states of proc_pid_stat(5)
_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_OCTAL = re.compile(r"\\([0-7]{3})")


def evidence(pid: int, doing: str, waited_s: float, proc: Path = Path("/proc")) -> dict[str, Scalar]:
    """State, wchan and stack (root only) from proc(5). Not /proc/PID/cmdline: it blocks for a D-state process."""
    seen: dict[str, Scalar] = {"doing": doing, "waited_s": round(waited_s, 3), "pid": pid}
    stat, wchan, stack = (_text(proc / str(pid) / name) for name in ("stat", "wchan", "stack"))
    seen |= _mount(_target(seen), proc)
    if state := stat.rpartition(")")[2].split():
        seen["state"] = state[0]
    if wchan and wchan != "0":
        seen["wchan"] = wchan
    if frames := [line.split()[-1].partition("+")[0] for line in stack.splitlines() if line.strip()]:
        seen["stack"] = " < ".join(frames[:STACK_FRAMES])
    return seen


def finding(check: Check[object, object], seen: dict[str, Scalar], in_a_row: int = 1) -> Finding:
    """The hang as a finding. Its component is the path or PCI device of the call that hangs, else the check.

    `in_a_row`: how many runs of the worker hung, or ended it, since it last answered.

    The kernel is the second witness: it says whether the process waits in it. One that runs or was stopped is slow for
    another reason, as on an overloaded node, and is no reason to remove the node at once.
    """
    target = _target(seen)
    if check.worker in _DRIVERS and (in_a_row >= IN_A_ROW or float(seen["waited_s"]) >= LASTING_S):
        component, code = _DRIVERS[check.worker]
        return Finding(component, code, faults()[code].severity, {**seen, "in_a_row": in_a_row}, _confidence(seen))
    fault = faults().get(check.hung_fault)
    severity = fault.severity if fault else Severity.WARNING
    return Finding(
        component=target if target.startswith("/") or _PCI.fullmatch(target) else check.name,
        fault=check.hung_fault,
        severity=min(severity, Severity.MAJOR) if seen.get("state") in _NOT_WAITING else severity,
        evidence=seen,
        confidence=_confidence(seen),
    )


def _confidence(seen: dict[str, Scalar]) -> Confidence:
    return Confidence.WITNESSED if seen.get("state") == "D" else Confidence.STATE


def _target(seen: dict[str, Scalar]) -> str:
    return str(seen["doing"]).partition(" ")[2].removeprefix("/proc/1/root")


def _mount(point: str, proc: Path) -> dict[str, Scalar]:
    """Source ("fs1:/home") and type of what is mounted there, by process 1's mount table (proc_pid_mountinfo(5)).

    The table is the kernel's own: reading it asks no file system. Empty where nothing is mounted there.
    """
    found: dict[str, Scalar] = {}
    for line in _text(proc / "1" / "mountinfo").split("\n"):
        left, _, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if len(fields) > 5 and len(rest) > 1 and _plain(fields[4]) == point:
            found = {"source": _plain(rest[1]), "fstype": rest[0]}  # the last one lies over the others
    return found


def _plain(word: str) -> str:
    """Undoes the octal escapes for white space and backslash."""
    return _OCTAL.sub(lambda m: chr(int(m[1], 8)), word)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
