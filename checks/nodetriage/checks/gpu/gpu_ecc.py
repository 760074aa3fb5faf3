"""Uncorrectable memory errors that GPUs counted since the driver was loaded or the GPU was reset.

Source: nvmlDeviceGetTotalEccErrors (volatile), nvmlDeviceGetSramEccErrorStatus, nvmlDeviceGetEccMode. The lifetime
counts of a board play no part: they still count rows that were replaced long ago. One error is one verdict: where the
driver logged an Xid for it, the rule of that Xid gives the severity, and the count is the second witness.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Confidence, Finding, Gpu, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number
from nodetriage.checks.rules.counters import increase, keep
from nodetriage.checks.rules.gpu import ecc_lines
from nodetriage.checks.rules.gpu.ecc_lines import EccLine

_UNCORRECTED = "gpu_ecc_uncorrected"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is a fault, and how grave the errors are that the first run finds."""

    expect_ecc: bool = False  # ECC should be on
    first_look: Severity = Severity.MAJOR  # of uncorrected errors from before the first run: a job survived them


@dataclass(frozen=True, slots=True)
class Errors:
    """Counts of one GPU since the driver was loaded or the GPU was reset; None where NVML does not count."""

    pci: str
    uuid: str
    at_s: float  # since boot
    enabled: bool | None
    uncorrected: int | None
    sram_uncorrected: int | None
    sram_threshold: bool | None
    lines: tuple[EccLine, ...] = ()  # what the driver logged about its memory, of this run and kept from earlier ones


def read(host: Host) -> tuple[Errors, ...]:
    at_s = host.boottime_s()
    lines = ecc_lines.read(host)
    found = (_errors(gpu, at_s, lines.get(gpu.pci, ())) for gpu in answering(host, whole=True))
    judged = tuple(gpu for gpu in found if gpu.enabled is False or gpu.uncorrected is not None)
    if not judged:
        raise Unavailable("no GPU here counts memory errors")
    return judged


def _errors(gpu: Gpu, at_s: float, lines: tuple[EccLine, ...]) -> Errors:
    parity, secded = (number(gpu, f"sram_uncorrected_{kind}") for kind in ("parity", "secded"))
    enabled, over = (number(gpu, fact) for fact in ("ecc_enabled", "sram_threshold_exceeded"))
    return Errors(
        gpu.pci,
        gpu.uuid,
        at_s,
        bool(enabled) if enabled is not None else None,
        number(gpu, "ecc_uncorrected_volatile"),
        None if parity is None and secded is None else (parity or 0) + (secded or 0),
        None if over is None else bool(over),
        lines,
    )


def judge(now: tuple[Errors, ...], before: tuple[Errors, ...] | None, policy: Policy) -> Iterator[Finding]:
    earlier = {gpu.uuid: gpu for gpu in before or ()}
    for gpu in now:
        old = earlier.get(gpu.uuid)
        if gpu.enabled is False and policy.expect_ecc:
            yield Finding(gpu.pci, "gpu_ecc_off", Severity.MAJOR, {"uuid": gpu.uuid})
        if gpu.sram_threshold:
            yield Finding(gpu.pci, "gpu_sram_threshold", Severity.CRITICAL, {"uuid": gpu.uuid})
        yield from _uncorrected(gpu, old, policy)


def _uncorrected(gpu: Errors, old: Errors | None, policy: Policy) -> Iterator[Finding]:
    """The total counts DRAM and SRAM; some drivers also count SRAM by itself."""
    counts: dict[str, Scalar] = {"since_reset": gpu.uncorrected or 0, "sram_since_reset": gpu.sram_uncorrected or 0}
    if old is None:
        if gpu.uncorrected or gpu.sram_uncorrected:
            yield Finding(gpu.pci, _UNCORRECTED, policy.first_look, {**counts, "uuid": gpu.uuid, "first_look": True})
        return
    sram = increase(old.sram_uncorrected, gpu.sram_uncorrected)
    if new := max(sram, increase(old.uncorrected, gpu.uncorrected)):
        memory = "SRAM" if sram else "DRAM or SRAM"
        evidence = {**counts, "new": new, "memory": memory, "uuid": gpu.uuid}
        logged = ecc_lines.gravest((*old.lines, *gpu.lines), old.at_s)
        if logged:
            yield Finding(gpu.pci, _UNCORRECTED, logged.severity, {**evidence, "xid": logged.xid}, Confidence.WITNESSED)
        else:
            yield Finding(gpu.pci, _UNCORRECTED, Severity.CRITICAL, evidence)


def clears(now: tuple[Errors, ...], before: tuple[Errors, ...] | None) -> Iterable[tuple[str, str]]:
    """A count that fell shows that the GPU was reset, which repairs it."""
    for gpu in now:
        old = next((old for old in before or () if old.uuid == gpu.uuid), None)
        if old and gpu.uncorrected is not None and gpu.uncorrected < (old.uncorrected or 0):
            yield gpu.pci, _UNCORRECTED


def next_state(before: tuple[Errors, ...] | None, now: tuple[Errors, ...]) -> tuple[Errors, ...]:
    old = {gpu.uuid: gpu.lines for gpu in before or ()}
    return keep(before, (replace(gpu, lines=ecc_lines.extend(old.get(gpu.uuid, ()), gpu.lines)) for gpu in now))


CHECK = Check(
    name="gpu_ecc",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=(_UNCORRECTED, "gpu_sram_threshold", "gpu_ecc_off"),
    worker="gpu",
    timeout_s=10,
    next_state=next_state,
    clears=clears,
    kernel_pattern=ecc_lines.PATTERN,
)
