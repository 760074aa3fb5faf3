"""GPU memory rows that wait for a remap or could not be remapped, and banks with few spare rows.

Source: nvmlDeviceGetRemappedRows and nvmlDeviceGetRowRemapperHistogram (Ampere and later).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, RowRemap, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering
from nodetriage.checks.readers.nvidia_log import xids
from nodetriage.checks.rules.counters import keep


@dataclass(frozen=True, slots=True)
class Policy:
    """From how many banks on a lack of spare rows is a fault."""

    exhausted_banks: int = 1  # banks with no spare row
    low_banks: int = 1  # banks with few spare rows


@dataclass(frozen=True, slots=True)
class Rows:
    """The remap state of one GPU."""

    pci: str
    uuid: str
    remap: RowRemap


def read(host: Host) -> tuple[Rows, ...]:
    """Raises Unavailable where no GPU can remap rows."""
    rows = tuple(Rows(gpu.pci, gpu.uuid, gpu.row_remap) for gpu in answering(host) if gpu.row_remap)
    if not rows:
        raise Unavailable("no GPU here can remap memory rows")
    return rows


def judge(now: tuple[Rows, ...], before: tuple[Rows, ...] | None, policy: Policy) -> Iterator[Finding]:
    for gpu in now:
        rows = gpu.remap
        evidence: dict[str, Scalar] = {
            "uuid": gpu.uuid,
            "correctable_rows": rows.correctable_rows,
            "uncorrectable_rows": rows.uncorrectable_rows,
        }
        if rows.failed:
            yield Finding(gpu.pci, "gpu_remap_failed", Severity.CRITICAL, evidence)
        if rows.pending:
            yield Finding(gpu.pci, "gpu_remap_pending", Severity.MAJOR, evidence)
        none, low = rows.banks_none or 0, rows.banks_low or 0
        if none >= policy.exhausted_banks or low >= policy.low_banks:
            banks = {"banks_none": none, "banks_low": low}
            yield Finding(gpu.pci, "gpu_remap_spares_low", Severity.WARNING, {**evidence, **banks})


def next_state(before: tuple[Rows, ...] | None, now: tuple[Rows, ...]) -> tuple[Rows, ...]:
    return keep(before, now)


def clears(now: tuple[Rows, ...], before: tuple[Rows, ...] | None) -> Iterable[tuple[str, str]]:
    """A row that waited and no longer waits was remapped by a reset: that ends what gpu_xid reported of it."""
    waited = {gpu.uuid for gpu in before or () if gpu.remap.pending}
    return ((gpu.pci, "gpu_row_remap_pending") for gpu in now if gpu.uuid in waited and not gpu.remap.pending)


CHECK = Check(
    name="gpu_remap",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_remap_failed", "gpu_remap_pending", "gpu_remap_spares_low"),
    worker="gpu",
    timeout_s=10,
    kernel_wakes=xids(63, 64),  # the driver says that it marked a row, or could not
    in_prolog=True,
    next_state=next_state,
    clears=clears,
    ends=("gpu_row_remap_pending",),
)
