"""GPUs for which the driver asks for a reset, a reboot or a drain.

Source: NVML's fields NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, since driver 565, and NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION.
The kernel log has the first as Xid 154; the field also shows what happened while the agent did not run.
A GPU that needed a reset and needs nothing more was reset, and so was one whose energy counter starts anew: that ends
what gpu_xid reported of it, also where the driver logs no Xid 154.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Gpu, Host, Scalar, Unavailable
from nodetriage.checks.readers.gpu import answering, number
from nodetriage.checks.readers.nvidia_log import xids
from nodetriage.checks.rules.counters import keep
from nodetriage.checks.rules.gpu import recovery_action
from nodetriage.checks.rules.xid_rules import CURED_BY_RESET


@dataclass(frozen=True, slots=True)
class Policy:
    """No settings: one table has the severity of each action, for Xid 154 too."""


@dataclass(frozen=True, slots=True)
class Action:
    """The action that one GPU needs, as NVML's number, and what it used since the driver started it."""

    pci: str
    uuid: str
    action: int | None  # None: the driver is older
    energy_mj: int | None = None
    persistent: bool = False  # without persistence mode the driver starts the GPU anew for each job


def read(host: Host) -> tuple[Action, ...]:
    """Excludes GPUs of which the driver does not say what they need: their resets alone are seen."""
    found = tuple(_action(gpu) for gpu in answering(host))
    if all(gpu.action is None and gpu.energy_mj is None for gpu in found):
        raise Unavailable("this driver reports neither a GPU's recovery action nor its energy")
    for gpu in found:
        if gpu.action is None:
            host.exclude(gpu.pci)
    return found


def _action(gpu: Gpu) -> Action:
    action, energy_mj, mode = (number(gpu, fact) for fact in ("recovery_action", "energy_mj", "persistence_mode"))
    return Action(gpu.pci, gpu.uuid, action, energy_mj, bool(mode))


def judge(now: tuple[Action, ...], before: tuple[Action, ...] | None, policy: Policy) -> Iterator[Finding]:
    for gpu in now:
        if gpu.action:
            name, severity = recovery_action.worth(gpu.action)
            evidence: dict[str, Scalar] = {"action": name, "recovery_action": gpu.action, "uuid": gpu.uuid}
            yield Finding(gpu.pci, "gpu_recovery_needed", severity, evidence)


def next_state(before: tuple[Action, ...] | None, now: tuple[Action, ...]) -> tuple[Action, ...]:
    """A GPU that is silent, as it is while it is reset, keeps what it last said."""
    return keep(before, now)


def clears(now: tuple[Action, ...], before: tuple[Action, ...] | None) -> Iterable[tuple[str, str]]:
    earlier = {gpu.uuid: gpu for gpu in before or ()}
    for gpu in now:
        if (old := earlier.get(gpu.uuid)) and _was_reset(old, gpu):
            yield from ((gpu.pci, fault) for fault in sorted(CURED_BY_RESET))


def _was_reset(old: Action, gpu: Action) -> bool:
    if gpu.action:
        return False
    if gpu.action is not None and old.action in recovery_action.RESETS:
        return True
    both = old.energy_mj is not None and gpu.energy_mj is not None and old.persistent and gpu.persistent
    return both and (gpu.energy_mj or 0) < (old.energy_mj or 0)


CHECK = Check(
    name="gpu_recovery",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("gpu_recovery_needed",),
    worker="gpu",
    timeout_s=10,
    kernel_wakes=xids(154),
    in_prolog=True,
    next_state=next_state,
    clears=clears,
    ends=tuple(sorted(CURED_BY_RESET)),
)
