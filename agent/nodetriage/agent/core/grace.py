"""Just after boot, while drivers start, a missing GPU is unknown and not lost. Pure.

An eight-GPU node can take half a minute and more to bring up its driver, persistence mode and fabric manager.
"""

import dataclasses

from nodetriage.agent.core.result import Result
from nodetriage.checks.model import Outcome

# The faults of GPUs that are still starting; a broken GPU shows them too.
STARTING = frozenset(
    {
        "gpu_missing",
        "gpu_not_enumerated",
        "gpu_not_answering",
        "gpu_driver_unusable",
        "gpu_fabric_incomplete",
        "gpu_persistence_off",
    }
)


def spared(result: Result, uptime_s: float, grace_s: float) -> Result:
    """A `broken` result where drivers that still start may explain a finding. The next run shows the rest."""
    early = [f for f in result.findings if f.fault in STARTING]
    if uptime_s >= grace_s or not early:
        return result
    shown = ", ".join(f"{f.fault} {f.component}" for f in early[:4])
    why = f"{uptime_s:.0f} s after boot, drivers may still be starting (boot_grace_s = {grace_s:g}): {shown}"
    return dataclasses.replace(result, outcome=Outcome.BROKEN, findings=(), cleared=(), why=why)
