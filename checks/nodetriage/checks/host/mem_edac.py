"""Memory errors that the CPU's memory controllers counted: uncorrected ones, and DIMMs that correct too many.

Reads /sys/devices/system/edac/mc (Documentation/ABI/testing/sysfs-devices-edac): dimm*, the older rank* and csrow*.
Where the firmware handles memory errors first there is no such driver, and the check is skipped: then cpu_mce and the
BMC's log tell. Many corrected errors over a machine's life are normal, so their rate is judged and never their total.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.edac import FOLDER, Dimm, read_dimms
from nodetriage.checks.rules.counters import per_hour


@dataclass(frozen=True, slots=True)
class Policy:
    """Corrected errors of one DIMM are a storm at both limits."""

    corrected_per_h: float = 100.0  # between two looks
    corrected_at_least: int = 20  # errors between two looks; below that a rate is chance
    corrected: Severity = Severity.WARNING
    uncorrected: Severity = Severity.CRITICAL


def read(host: Host) -> tuple[Dimm, ...]:
    """Raises Unavailable where no EDAC driver is loaded."""
    dimms = read_dimms(host)
    if not dimms:
        raise Unavailable(
            f"no memory controller in {FOLDER}: no EDAC driver, or the firmware keeps memory errors to itself"
        )
    return dimms


def judge(now: tuple[Dimm, ...], before: tuple[Dimm, ...] | None, policy: Policy) -> Iterator[Finding]:
    """At the first look uncorrected errors count from boot on: data was lost in this boot."""
    old = {dimm.place: dimm for dimm in before or ()}
    for dimm in now:
        facts: dict[str, Scalar] = {"place": dimm.place}
        if dimm.error:
            yield Finding(dimm.name, "mem_counter_unreadable", Severity.WARNING, {**facts, "error": dimm.error})
            continue
        earlier = old.get(dimm.place)
        if earlier is not None and earlier.error:
            continue  # what it was is not known: this look is the new beginning
        lost = dimm.uncorrected - (earlier.uncorrected if earlier else 0)
        if lost > 0:
            yield Finding(dimm.name, "mem_uncorrected", policy.uncorrected, {**facts, "errors": lost})
        if earlier is not None:
            yield from _storm(dimm, earlier, policy)


def _storm(dimm: Dimm, earlier: Dimm, policy: Policy) -> Iterator[Finding]:
    rise, waited_s = dimm.corrected - earlier.corrected, dimm.at_s - earlier.at_s
    if rise < policy.corrected_at_least or waited_s <= 0 or per_hour(rise, waited_s) < policy.corrected_per_h:
        return
    evidence: dict[str, Scalar] = {
        "place": dimm.place, "errors": rise, "over_s": round(waited_s), "per_h": round(per_hour(rise, waited_s), 1),
    }  # fmt: skip
    yield Finding(dimm.name, "mem_corrected_storm", policy.corrected, evidence)


CHECK = Check(
    name="mem_edac",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("mem_uncorrected", "mem_corrected_storm", "mem_counter_unreadable"),
    every_s=300,
)
