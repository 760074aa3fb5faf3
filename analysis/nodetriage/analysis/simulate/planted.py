"""What the simulator plants: the fleet, the mix of job sizes, the kinds of fault. Values only."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from nodetriage.checks.model import Severity

DAY_US = 86_400_000_000
EPOCH_DAYS = 7  # nodes are dealt out anew each epoch; it is also the longest life of a job


class Size(NamedTuple):
    """A class of jobs: GPUs of each, its share of all jobs, its share of all GPU time."""

    gpus: int
    job_share: float
    gpu_time_share: float


# The research cluster of arXiv 2410.21680, figure 6: over 40 % of jobs use one GPU, over 90 % fewer than 8 (with less
# than 10 % of GPU time), 66 % of GPU time goes to jobs of 256 GPUs and more, 12 % to those of 4,096.
RESEARCH_MIX = (
    Size(4096, 0.0001, 0.12),
    Size(2048, 0.0003, 0.10),
    Size(1024, 0.0006, 0.16),
    Size(512, 0.0010, 0.13),
    Size(256, 0.0020, 0.15),
    Size(128, 0.0040, 0.05),
    Size(64, 0.0060, 0.05),
    Size(32, 0.0090, 0.05),
    Size(16, 0.0120, 0.04),
    Size(8, 0.0450, 0.06),
    Size(4, 0.2200, 0.035),
    Size(2, 0.2500, 0.025),
    Size(1, 0.4500, 0.03),
)


class Kind(NamedTuple):
    """One kind of infrastructure fault and how it shows itself. An empty `check` is a node that falls silent."""

    category: str
    share: float
    check: str = ""
    component: str = ""
    fault: str = ""
    severity: Severity = Severity.CRITICAL
    xid: int | None = None
    state: str = "FAILED"  # what Slurm calls the end of the job


KINDS = (
    Kind("node_lost", 0.18, state="NODE_FAIL"),
    Kind("gpu_missing", 0.14, "gpu_xid", "gpu", "gpu_off_bus", xid=79, state="NODE_FAIL"),
    Kind("gpu_memory", 0.14, "gpu_xid", "gpu", "gpu_ecc_uncorrectable", xid=48),
    Kind("row_remap", 0.06, "gpu_xid", "gpu", "gpu_row_remap_failed", xid=64),
    Kind("nvlink", 0.09, "gpu_xid", "gpu", "gpu_nvlink_error", xid=74),
    Kind("gsp_timeout", 0.06, "gpu_xid", "gpu", "gpu_gsp_timeout", xid=119, state="NODE_FAIL"),
    Kind("driver", 0.04, "gpu_lost", "driver", "gpu_driver_unusable", state="NODE_FAIL"),
    Kind("nic_missing", 0.05, "ib_link", "mlx5", "ib_port_missing"),
    Kind("ib_link", 0.16, "ib_link", "mlx5", "ib_link_down"),
    Kind("mount", 0.08, "fs_mounts", "/checkpoints", "mount_missing"),
)
SECOND_SIGHT = Kind("gpu_missing", 0.5, "gpu_lost", "gpu", "gpu_not_answering")  # beside "gpu_off_bus"
USER_XID = Kind("user_program", 1.0, "gpu_xid", "gpu", "gpu_xid_application", severity=Severity.INFO)

# What checks report day by day without any job being hurt by it; the last one is a plain false alarm.
NOISE = (
    Kind("ecc_corrected", 0.55, "gpu_xid", "gpu", "gpu_xid_warning", severity=Severity.WARNING, xid=92),
    Kind("ib_flap", 0.35, "ib_link", "mlx5", "ib_link_flapping", severity=Severity.WARNING),
    Kind("false_alarm", 0.10, "fs_mounts", "/datasets", "mount_stale", severity=Severity.CRITICAL),
)

APPLICATION_XIDS = (13, 31, 43)  # printed by programs at fault in their own memory accesses


def lemon_hazard_ratio(failed_before: float, failed_after: float, lemon_share: float) -> float:
    """How much likelier than others the removed nodes failed, if removing them lowered failed jobs by so much.

    With hazards h = -ln(1 - p): ((h0 - h1) / f) / (h1 / (1 - f)).
    """
    before, after = -math.log1p(-failed_before), -math.log1p(-failed_after)
    return (before - after) / lemon_share / (after / (1 - lemon_share))


@dataclass(frozen=True, slots=True)
class Fleet:
    """What to plant. The rate is the mean over all nodes and all time, lemons included.

    Rack events come on top of `rf_per_1000_node_days`: each takes all nodes of one rack at once.
    """

    nodes: int = 2000
    days: int = 335
    jobs: int = 4_000_000  # about; failures and requeues change it a little
    rf_per_1000_node_days: float = 6.50
    gpus_per_node: int = 8
    mix: tuple[Size, ...] = RESEARCH_MIX
    utilisation: float = 0.9
    lemon_share: float = 0.012
    # Failed large jobs fell from 14 % to 4 % when 1.2 % of the nodes left.
    lemon_hazard_ratio: float = lemon_hazard_ratio(0.14, 0.04, 0.012)
    nodes_per_rack: int = 16
    racks_per_switch: int = 4
    rack_events_per_1000_rack_days: float = 0.25
    late_event_share: float = 0.02  # evidence that comes after the attribution window
    user_xid_share: float = 0.03  # of users' own failures
    noise_per_1000_node_days: float = 120.0
    start: datetime = datetime(2025, 1, 6, tzinfo=UTC)

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.days < 1 or self.jobs < 1:
            raise ValueError("nodes, days and jobs: expected at least 1 of each")
        if not 0 <= self.lemon_share < 1 or self.lemon_hazard_ratio < 1:
            raise ValueError("lemon_share: expected 0 to 1; lemon_hazard_ratio: expected at least 1")
        if self.rf_per_1000_node_days < 0 or not 0 < self.utilisation <= 1:
            raise ValueError("rf_per_1000_node_days: expected 0 or more; utilisation: expected above 0, up to 1")
        if not any(s.gpus <= self.largest_gpus for s in self.mix):
            raise ValueError(f"mix: expected a size of at most {self.largest_gpus} GPUs, half the fleet")

    @property
    def largest_gpus(self) -> int:
        """The largest jobs take half the fleet."""
        return max(self.nodes // 2, 1) * self.gpus_per_node

    def sizes(self) -> tuple[Size, ...]:
        """The classes of the mix that fit into half the fleet, largest first; GPU time shares add up to 1."""
        fitting = [s for s in self.mix if s.gpus <= self.largest_gpus]
        total = sum(s.gpu_time_share for s in fitting)
        return tuple(
            s._replace(gpu_time_share=s.gpu_time_share / total) for s in sorted(fitting, key=lambda s: -s.gpus)
        )

    def mean_run_days(self, size: Size) -> float:
        """Mean run time of a class, so that job count and GPU time come out as the mix says."""
        gpu_days = size.gpu_time_share * self.nodes * self.gpus_per_node * self.days * self.utilisation
        return min(gpu_days / (size.job_share * self.jobs * size.gpus), 1.5)
