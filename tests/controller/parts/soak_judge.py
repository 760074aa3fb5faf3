"""Compares what a soak did with the rules: which node was faulty, which was drained, how many, and whose drain."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from soak_parts import WatchfulSlurm

from nodetriage.controller.policy import common_mode
from nodetriage.controller.policy.notices import Notice
from nodetriage.controller.policy.reason import parse_reason
from nodetriage.controller.policy.state import Action, FleetState, NodeState
from nodetriage.controller.settings.limits import DrainLimits

OWN_HIGH = ("gpu_off_bus", "gpu_ecc_uncontained", "gpu_gsp_timeout", "pcie_fatal", "nvswitch_fatal", "gpu_init_failed")
OWN_LOW = ("gpu_remap_pending", "gpu_nvlink_down")
FLAPPING = "gpu_recovery_needed"
HOUR = 3600.0
REPAIR_AFTER_S = DrainLimits().repair_after_s
HELD_NOTICE_S = DrainLimits().held_notice_s


@dataclass
class Figures:
    faults: int = 0  # of single nodes, high
    acted_on: int = 0
    in_common_mode: int = 0  # and so rightly left alone
    ended_while_held: int = 0  # by drain limits or breaker, or while Slurm was away
    not_acted_on: int = 0
    worst_minutes_to_drain: float = 0.0
    drains: int = 0
    most_drains_in_an_hour: int = 0
    most_drained_at_once: int = 0
    fleet_event_nodes: int = 0  # hit by what was no fault of theirs
    fleet_event_drains: int = 0
    healthy_drains: int = 0
    requeues: int = 0
    requeued_twice: int = 0
    operator_drains: int = 0
    operator_drains_touched: int = 0
    kills: int = 0
    flapping_drains: int = 0
    flapping_is_lemon: bool = False
    restored_databases: int = 0
    forged_nodes: int = 0  # whose users had drivers' lines quoted by the kernel
    forged_findings: int = 0  # that came of it
    jobs_started: int = 0  # while a file server was away
    hook_refusals: int = 0
    shared_refusals: int = 0  # for what was no fault of the node's own
    resumed_by_a_tool: int = 0
    told_or_drained_in_a_minute: int = 0  # critical findings
    left_in_silence: int = 0
    broken_rules: list[str] = field(default_factory=list)


class Judge:
    """`true` is what is really wrong: (node, component) -> fault, of nodes' own critical and major faults."""

    def __init__(self, figures: Figures, slurm: WatchfulSlurm) -> None:
        self.figures, self.slurm = figures, slurm
        self.true: dict[tuple[str, str], str] = {}
        self.common: set[tuple[str, str]] = set()  # that were a part of a fleet incident
        self._begun: dict[tuple[str, str], float] = {}
        self._drained: dict[tuple[str, str], float] = {}  # when the first drain of ours met the fault
        self._last: dict[str, float] = {}  # when each node was last drained by us
        self._ours: list[tuple[float, str]] = []  # when each drain of ours of the last hour was made, and of which node
        self._given: dict[str, str] = {}  # incident -> the node for which Slurm got it
        self._told: dict[str, float] = {}  # when operators last heard of each node, or of a fleet incident by its id

    def begins(self, name: str, component: str, fault: str, now_s: float) -> None:
        self.true[name, component] = fault
        self._begun[name, component] = now_s
        if self._is_out(name):
            self._drained[name, component] = now_s

    def told(self, notices: Iterable[Notice], now_s: float) -> None:
        """What operators learn: notices about a node, and those about a fleet incident that covers it."""
        for notice in notices:
            self._told[notice.node or notice.incident] = now_s

    def after_a_minute(self, name: str, component: str, state: FleetState, begin_s: float) -> None:
        """A critical finding that still stands drained its node by now, or its operators know why not."""
        if (name, component) not in self.true:
            return
        node = state.nodes[name]
        covering = common_mode.covering(state, node)
        known = max(self._told.get(about, -HOUR) for about in (name, *(i.id for i in covering)))
        if self._is_out(name) or known >= begin_s - HELD_NOTICE_S or node.maintenance is not None:
            self.figures.told_or_drained_in_a_minute += 1
            return
        self.figures.left_in_silence += 1
        drain = f"{node.drain.status} {node.drain.queued_reason}" if node.drain else "no drain is wanted"
        self.figures.broken_rules.append(f"{name} has been broken for a minute and nobody knows: {drain}, {node.state}")

    def forgets(self) -> None:
        """The database is yesterday's: what was let through within the hour is not in it."""
        self._ours.clear()
        self.figures.restored_databases += 1

    def _is_out(self, name: str) -> bool:
        return name in self.slurm.views and self.slurm.views[name].draining

    def ends(self, name: str, component: str, state: FleetState, now_s: float) -> None:
        """A high fault ends, or the month does: was it acted on?"""
        own, begin_s = self.figures, self._begun[name, component]
        own.faults += 1
        if name not in self.slurm.views:
            return
        if self.slurm.views[name].draining or (name, component) in self._drained:
            own.acted_on += 1
            waited_s = self._drained.get((name, component), begin_s) - begin_s
            own.worst_minutes_to_drain = max(own.worst_minutes_to_drain, round(waited_s / 60, 1))
        elif (name, component) in self.common or common_mode.covering(state, state.nodes[name]):
            own.in_common_mode += 1
        elif _held(name, state) or self.slurm.down or now_s - begin_s < 900:
            own.ended_while_held += 1
        else:
            own.not_acted_on += 1
            own.broken_rules.append(f"{name} was broken for {(now_s - begin_s) / 60:.0f} min, and not drained")

    def asked(self, name: str, clock_s: float) -> None:
        """A drain of the node was let through at this time of the controller's clock, which measures the hour.

        What is let through while Slurm is away is done when it is back. A node that Slurm lacks counts for nothing.
        """
        if name not in self.slurm.views:
            return
        self._ours = [(at, node) for at, node in self._ours if clock_s - at < HOUR] + [(clock_s, name)]
        most = len({node for _, node in self._ours})
        self.figures.most_drains_in_an_hour = max(self.figures.most_drains_in_an_hour, most)

    def drained(self, action: Action, state: FleetState, now_s: float) -> None:
        """A drain of ours was made."""
        own = self.figures
        name = action.node
        own.drains += 1
        self._last[name] = now_s
        if self._given.setdefault(action.incident, name) != name:
            own.broken_rules.append(
                f"incident {action.incident} is given to {name}, and was {self._given[action.incident]}'s"
            )
        for key in self.true:
            if key[0] == name:
                self._drained.setdefault(key, now_s)
        # What has been out for longer than `repair_after_s` is in the repair pool, as far as that reaches.
        ours = [n for n, v in self.slurm.views.items() if v.draining and parse_reason(v.reason) is not None]
        new = sum(now_s - self._last.get(n, now_s) < REPAIR_AFTER_S for n in ours)
        own.most_drained_at_once = max(own.most_drained_at_once, new)
        own.flapping_drains += action.fault == FLAPPING
        if action.fault in ("mount_hung", "gpu_missing", "node_lost", "agent_silent"):
            own.fleet_event_drains += 1
        if not any(node == name for node, _ in self.true) and not _is_lemon(name, state):
            own.healthy_drains += 1
            own.broken_rules.append(f"{name} drained for {action.fault} although nothing was wrong with it")

    def sum_up(self, flapping: str, limits: DrainLimits, state: FleetState, now_s: float) -> None:
        own = self.figures
        for (name, component), fault in self.true.items():
            if fault in OWN_HIGH:
                self.ends(name, component, state, now_s)
        own.requeues = sum(self.slurm.requeued.values())
        own.requeued_twice = sum(n > 1 for n in self.slurm.requeued.values())
        own.operator_drains_touched = len(self.slurm.touched)
        own.broken_rules += self.slurm.touched
        own.flapping_is_lemon = _is_lemon(flapping, state)
        if own.most_drains_in_an_hour > limits.max_drains_per_hour or own.most_drained_at_once > limits.max_nodes:
            own.broken_rules.append("more drains than the drain limits allow")
        if own.fleet_event_drains:
            own.broken_rules.append("nodes were drained for what was no fault of theirs")
        if own.shared_refusals:
            own.broken_rules.append("jobs were refused for what was no fault of their node's own")
        if own.requeued_twice:
            own.broken_rules.append("a run of a job was requeued twice")


def _held(name: str, state: FleetState) -> bool:
    drain = state.nodes[name].drain
    return state.breaker.is_open or (drain is not None and bool(drain.queued_reason))


def _is_lemon(name: str, state: FleetState) -> bool:
    return state.nodes[name].state is NodeState.LEMON
