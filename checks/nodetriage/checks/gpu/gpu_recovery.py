"""GPUs for which the driver asks for a reset, a reboot or a drain.

Source: NVML's field NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, since driver 565. The kernel log has the same as Xid 154;
the field also shows what happened while the agent did not run.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Scalar, Unavailable
from nodetriage.checks.readers.gpu import answering, number
from nodetriage.checks.readers.nvidia_log import xids
from nodetriage.checks.rules.gpu import recovery_action


@dataclass(frozen=True, slots=True)
class Policy:
    """No settings: one table has the severity of each action, for Xid 154 too."""


@dataclass(frozen=True, slots=True)
class Action:
    """The action that one GPU needs, as NVML's number."""

    pci: str
    uuid: str
    action: int


def read(host: Host) -> tuple[Action, ...]:
    known = ((gpu, number(gpu, "recovery_action")) for gpu in answering(host))
    found = tuple(Action(gpu.pci, gpu.uuid, action) for gpu, action in known if action is not None)
    if not found:
        raise Unavailable("this driver does not report a GPU's recovery action")
    return found


def judge(now: tuple[Action, ...], before: tuple[Action, ...] | None, policy: Policy) -> Iterator[Finding]:
    for gpu in now:
        if gpu.action != recovery_action.NONE:
            name, severity = recovery_action.worth(gpu.action)
            evidence: dict[str, Scalar] = {"action": name, "recovery_action": gpu.action, "uuid": gpu.uuid}
            yield Finding(gpu.pci, "gpu_recovery_needed", severity, evidence)


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
)
