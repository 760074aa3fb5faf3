"""What one line of the NVIDIA driver is worth: the catalogue's word, corrected by what the text of the line says."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from nodetriage.checks.model import Scalar, Severity
from nodetriage.checks.readers.nvidia_log import Sign, XidLine, catalogue, explain, explain_switch
from nodetriage.checks.rules import nvlink5
from nodetriage.checks.rules.gpu import recovery_action

PREEMPTED = 45  # a victim: its channel was torn down for what came before
APPLICATION = "gpu_xid_application"
_CAUSE = re.compile(r"caused by previous (?:Xid )?(\d{1,6})")
_FLAGS = re.compile(r"RST: (Yes|No), D-RST: (Yes|No)")
_ACTION = re.compile(r"from 0x([0-9a-fA-F]{1,8})\b.{0,80}?\bto 0x([0-9a-fA-F]{1,8})\b")
_PLACE = re.compile(r"GPC (\d{1,3}), TPC (\d{1,3})")
_NVLINK4 = re.compile(r"detected on link (\d{1,3})\s*\(0x([0-9a-fA-F]{1,8})")
_PENDING = re.compile(r"already pending remapping", re.IGNORECASE)
_WORD = re.compile(r"\b(Non-fatal|Fatal)\b", re.IGNORECASE)
_DETAIL = re.compile(r"Severity (\d) Engine")
_ON_PURPOSE = re.compile(r"brought down intentionally")

# Register bits of an NVLink error up to generation 4 that mean nothing, and those that a victim shows.
_IDLE_BITS = 1 << 0 | 1 << 23 | 1 << 30
_VICTIM_BITS = 1 << 1 | 1 << 20

# What a line without a code is worth: fault, severity, and the Xid whose advice holds.
_SIGNS: dict[Sign, tuple[str, Severity, int]] = {
    "off_bus": ("gpu_off_bus", Severity.CRITICAL, 79),
    "init_failed": ("gpu_init_failed", Severity.CRITICAL, 143),
    "gsp_heartbeat": ("gpu_gsp_timeout", Severity.MAJOR, 120),
    "reset_required": ("gpu_reset_required", Severity.MAJOR, 46),
}
# A program whose library is older or newer than the driver causes it, also in a container on a node that is well.
_MISMATCH = "gpu_driver_mismatch"
_MISMATCH_ADVICE = (
    "Finish the driver's upgrade (reload or reboot), or correct the library in the container that made the call."
)
# A reset of the GPU ends these: its memory, engines and links start anew. What stays broken, NVML still shows.
CURED_BY_RESET = frozenset((
    "gpu_off_bus", "gpu_recovery_action", "gpu_ecc_uncorrectable", "gpu_ecc_uncontained", "gpu_ecc_contained",
    "gpu_ecc_corrected_storm", "gpu_row_remap_pending", "gpu_row_remap_failed", "gpu_gsp_timeout", "gpu_init_failed",
    "gpu_reset_required", "gpu_context_switch_timeout", "gpu_nvlink_error", "gpu_chip_link_error", "gpu_xid_fatal",
    "gpu_xid_service",
))  # fmt: skip
# Loading the driver initialises every GPU that is on the bus; it brings none back to the bus.
_ENDS: dict[Sign, frozenset[str]] = {
    "driver_loaded": CURED_BY_RESET - {"gpu_off_bus"},
    "found_again": CURED_BY_RESET,
}


@dataclass(frozen=True, slots=True)
class Assessment:
    """What one line is worth. `ends`: the faults of its device that the line takes back; it then reports none."""

    fault: str
    severity: Severity
    advice: str
    evidence: dict[str, Scalar] = field(default_factory=dict)
    ends: frozenset[str] = frozenset()

    @property
    def over(self) -> bool:
        return bool(self.ends)


def assess(line: XidLine) -> Assessment | None:
    """The worth of a line; None where it says nothing of the machine's health (the address of a GPU's UUID)."""
    if line.sign is not None:
        return _companion(line.sign)
    assert line.code is not None
    if line.kind == "sxid":
        return _switch(line.code, line.rest)
    known = explain(line.code)
    worth = Assessment(known.fault, known.severity, known.advice)
    rule = _RULES.get(line.code)
    return rule(line, worth) if rule else worth


def _companion(sign: Sign) -> Assessment | None:
    if sign == "api_mismatch":
        return Assessment(_MISMATCH, Severity.WARNING, _MISMATCH_ADVICE)
    if sign not in _SIGNS:
        return None
    fault, severity, like = _SIGNS[sign]
    return Assessment(fault, severity, explain(like).advice)


def cure(line: XidLine) -> Assessment | None:
    """What a line ends that reports no fault itself: the driver was loaded, or a GPU was found on the bus anew."""
    ends = _ENDS.get(line.sign) if line.sign else None
    return Assessment("gpu_recovery_action", Severity.INFO, "", ends=ends) if ends else None


def is_detail(line: XidLine) -> bool:
    """Whether an SXid line is the second or third of one event: its engine, or its registers."""
    return line.kind == "sxid" and line.rest.startswith(("Severity ", "Data {"))


def caused_by(line: XidLine) -> int | None:
    """The Xid that an Xid 45 names as its cause; None where it names none."""
    found = _CAUSE.search(line.rest) if line.code == PREEMPTED else None
    return int(found[1]) if found else None


def of_cause(code: int) -> Assessment | None:
    """What a cause of which only an Xid 45 is left is worth; None where it is no fault, or not in the catalogue."""
    known = catalogue().get(code)
    if known is None or known.severity is Severity.INFO:
        return None
    return Assessment(known.fault, known.severity, known.advice, {"xid": code, "told_by_xid": PREEMPTED})


def _recovery_action(line: XidLine, worth: Assessment) -> Assessment:
    found = _ACTION.search(line.rest)
    if not found:  # cut short: something changed, nobody can say what
        return Assessment(worth.fault, Severity.WARNING, worth.advice)
    action = int(found[2], 16)
    evidence: dict[str, Scalar] = {"recovery_action": action, "recovery_action_before": int(found[1], 16)}
    if action == recovery_action.NONE:
        ends = CURED_BY_RESET if int(found[1], 16) in recovery_action.RESETS else frozenset((worth.fault,))
        return Assessment(worth.fault, Severity.INFO, "Nothing: the driver needs no action any more.", evidence, ends)
    name, severity = recovery_action.worth(action)
    return Assessment(worth.fault, severity, worth.advice, {"action": name, **evidence})


def _memory_error(line: XidLine, worth: Assessment) -> Assessment:
    """94 and 95: the line may ask for a reset, or for a drain and a reset."""
    flags = _FLAGS.search(line.rest)
    if not flags:
        return worth
    wanted = "Yes" in flags.groups()
    evidence: dict[str, Scalar] = {"reset": flags[1] == "Yes", "drain_and_reset": flags[2] == "Yes"}
    return Assessment(worth.fault, Severity.CRITICAL if wanted else worth.severity, worth.advice, evidence)


def _row_remap(line: XidLine, worth: Assessment) -> Assessment:
    """64 is printed too where the row already waits for a reset, which is no failure."""
    if not _PENDING.search(line.rest):
        return worth
    pending = explain(63)
    return Assessment(pending.fault, pending.severity, pending.advice)


def _preempted(line: XidLine, worth: Assessment) -> Assessment:
    cause = caused_by(line)
    return Assessment(worth.fault, Severity.INFO, worth.advice, {} if cause is None else {"cause_xid": cause})


def _link_down(line: XidLine, worth: Assessment) -> Assessment:
    """155: the peers of a GPU that somebody resets print it too."""
    return replace(worth, severity=Severity.INFO) if _ON_PURPOSE.search(line.rest) else worth


def _exception(line: XidLine, worth: Assessment) -> Assessment:
    found = _PLACE.search(line.rest)
    return Assessment(
        worth.fault, worth.severity, worth.advice, {"gpc": int(found[1]), "tpc": int(found[2])} if found else {}
    )


def _nvlink(line: XidLine, worth: Assessment) -> Assessment:
    found = _NVLINK4.search(line.rest)
    if not found:
        return worth
    bits = int(found[2], 16)
    mild = bits != 0 and bits & ~(_IDLE_BITS | _VICTIM_BITS) == 0
    evidence: dict[str, Scalar] = {"link": int(found[1]), "register": f"0x{bits:x}"}
    if mild and bits & _VICTIM_BITS:
        evidence["victim"] = True
    return Assessment(worth.fault, Severity.WARNING if mild else worth.severity, worth.advice, evidence)


def _nvlink5(line: XidLine, worth: Assessment) -> Assessment:
    assert line.code is not None
    severity, evidence = nvlink5.judge_line(line.code, line.rest, worth.severity)
    return Assessment(worth.fault, severity, worth.advice, evidence)


def _memory_kind(line: XidLine, worth: Assessment) -> Assessment:
    return Assessment(worth.fault, worth.severity, worth.advice, {"memory": "DRAM" if line.code == 171 else "SRAM"})


def _smoothing_back(line: XidLine, worth: Assessment) -> Assessment:
    fault = "gpu_power_smoothing_off"
    return Assessment(fault, Severity.INFO, worth.advice, ends=frozenset((fault,)))


_RULES: dict[int, Callable[[XidLine, Assessment], Assessment]] = {
    13: _exception,
    PREEMPTED: _preempted,
    64: _row_remap,
    74: _nvlink,
    94: _memory_error,
    95: _memory_error,
    154: _recovery_action,
    155: _link_down,
    162: _smoothing_back,
    171: _memory_kind,
    172: _memory_kind,
    **dict.fromkeys(range(144, 151), _nvlink5),
}


def _switch(code: int, rest: str) -> Assessment:
    """An SXid. The guide's class first; then the line's word; then the table."""
    known = explain_switch(code)
    word, detail = _WORD.search(rest), _DETAIL.search(rest)
    fatal = (word is not None and word[1].lower() == "fatal") or (detail is not None and detail[1] == "1")
    if known is None:
        severity, advice = Severity.WARNING, "Look it up in NVIDIA's Fabric Manager guide."
    else:
        severity, advice = known.severity, known.advice
    if fatal and (known is None or not known.guide):
        severity, advice = (
            Severity.CRITICAL,
            "Drain the node and reset switches and GPUs together; reboot if that fails.",
        )
    return Assessment("nvswitch_fatal" if severity is Severity.CRITICAL else "nvswitch_error", severity, advice)
