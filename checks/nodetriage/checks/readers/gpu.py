"""What the checks of GPUs have in common: which GPUs a run can judge, and counters that may start anew."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from nodetriage.checks.model import Gpu, Host, Unavailable


class Named(Protocol):
    """A reading of one GPU. The UUID outlives a renumbering; a counter belongs to it, never to an index."""

    @property
    def uuid(self) -> str: ...


N = TypeVar("N", bound=Named)


def answering(host: Host, whole: bool = False) -> tuple[Gpu, ...]:
    """GPUs that answered. The others are gpu_lost's, and named as not looked at. Raises Unavailable where none did.

    A GPU with MIG is here as itself: errors, links and temperatures are the parent's.
    """
    gpus = []
    for gpu in host.gpus(whole):
        if gpu.failure is None and gpu.uuid:
            gpus.append(gpu)
        else:
            host.exclude(gpu.pci)
    if not gpus:
        raise Unavailable("no GPU here answers NVML")
    return tuple(gpus)


def number(gpu: Gpu, fact: str, least: int = 0) -> int | None:
    """A fact as a whole number; None where NVML does not know it. Raises ValueError for what cannot be one."""
    value = gpu.facts.get(fact)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least):
        return value
    raise ValueError(f"{gpu.pci}: {fact}: expected a whole number from {least} on, got {value!r}")


def increase(before: int | None, now: int | None) -> int:
    """How much a counter grew. One that fell was reset, with the driver or the GPU: what it shows happened since."""
    if before is None or now is None:
        return 0
    return now - before if now >= before else now


def keep(before: Iterable[N] | None, now: Iterable[N]) -> tuple[N, ...]:
    """The newest reading of every GPU that was seen in this boot: one that is silent for a round keeps its counts."""
    return tuple({gpu.uuid: gpu for gpu in (*(before or ()), *now)}.values())
