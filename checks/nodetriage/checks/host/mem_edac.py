"""Memory errors that the CPU's memory controllers counted: uncorrected errors, and DIMMs that correct too many.

Reads /sys/devices/system/edac/mc (Documentation/ABI/testing/sysfs-devices-edac): dimm*, the older rank* and csrow*.
Where the firmware handles memory errors there is no such driver, and the check is skipped; cpu_mce and bmc_sel then
report them. Many corrected errors in a machine's life are normal, so their rate counts and their total does not.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.edac import FOLDER, Dimm, read_dimms
from nodetriage.checks.rules.counters import per_hour


@dataclass(frozen=True, slots=True)
class Policy:
    """Corrected errors of one DIMM are a fault where they pass both limits."""

    corrected_per_h: float = 100.0  # errors an hour between two runs
    corrected_at_least: int = 20  # errors between two runs, below which the rate is chance
    corrected: Severity = Severity.WARNING  # of too many corrected errors
    uncorrected: Severity = Severity.CRITICAL  # of an uncorrected error


def read(host: Host) -> tuple[Dimm, ...]:
    """Raises Unavailable where no EDAC driver is loaded."""
    dimms = read_dimms(host)
    if not dimms:
        raise Unavailable(
            f"no memory controller in {FOLDER}: no EDAC driver, or the firmware handles memory errors itself"
        )
    return dimms


def judge(now: tuple[Dimm, ...], before: tuple[Dimm, ...] | None, policy: Policy) -> Iterator[Finding]:
    """In the first run the uncorrected errors since boot count: data was lost in this boot."""
    old = {dimm.place: dimm for dimm in before or ()}
    for dimm in now:
        facts: dict[str, Scalar] = {"place": dimm.place}
        if dimm.error:
            yield Finding(dimm.name, "mem_counter_unreadable", Severity.WARNING, {**facts, "error": dimm.error})
            continue
        earlier = old.get(dimm.place)
        if earlier is not None and earlier.error:
            continue  # its value is not known, so this run is the first to compare with
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
