"""Memory pages that GPUs older than Ampere took out of use, or will take out of use at the next reset.

Source: NVML's fields NVML_FI_DEV_RETIRED_SBE, _DBE and _PENDING. Newer GPUs remap rows instead: gpu_remap.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.gpu import answering, number
from nodetriage.checks.readers.nvidia_log import xids


@dataclass(frozen=True, slots=True)
class Policy:
    """A board can retire 64 pages."""

    most_pages: int = 60  # from so many on the board qualifies for return
    most_double_bit_pages: int = 15  # the same, for more pages than this with double-bit errors


@dataclass(frozen=True, slots=True)
class Pages:
    """Retired pages of one GPU, by the kind of error. `pending`: a page waits for the next reset."""

    pci: str
    uuid: str
    single_bit: int
    double_bit: int
    pending: bool


def read(host: Host) -> tuple[Pages, ...]:
    found = []
    for gpu in answering(host, whole=True):
        single, double = number(gpu, "retired_pages_single_bit"), number(gpu, "retired_pages_double_bit")
        if single is not None and double is not None and gpu.row_remap is None:
            found.append(Pages(gpu.pci, gpu.uuid, single, double, bool(number(gpu, "retired_pages_pending"))))
    if not found:
        raise Unavailable("no GPU here retires pages")
    return tuple(found)


def judge(now: tuple[Pages, ...], before: tuple[Pages, ...] | None, policy: Policy) -> Iterator[Finding]:
    for gpu in now:
        evidence: dict[str, Scalar] = {"single_bit": gpu.single_bit, "double_bit": gpu.double_bit, "uuid": gpu.uuid}
        if gpu.pending:
            yield Finding(gpu.pci, "gpu_page_retirement_pending", Severity.MAJOR, evidence)
        many = gpu.single_bit + gpu.double_bit >= policy.most_pages
        if many or gpu.double_bit > policy.most_double_bit_pages:
            yield Finding(gpu.pci, "gpu_pages_retired_many", Severity.MAJOR, evidence)


CHECK = Check(
    name="gpu_retired_pages",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_page_retirement_pending", "gpu_pages_retired_many"),
    worker="gpu",
    timeout_s=10,
    kernel_wakes=xids(63, 64),
)
