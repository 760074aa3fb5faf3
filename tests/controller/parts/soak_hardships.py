"""What a month brings besides: each function plans one hardship on a soak, at a moment that is given in seconds."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from soak_forged import forged_findings
from soak_judge import OWN_LOW

from nodetriage.checks.model import Severity
from nodetriage.controller.policy.agents.resync import StatedFinding, StatedSet, differences
from nodetriage.controller.policy.fleet_state import AgentAhead
from nodetriage.controller.policy.reason import parse_reason
from nodetriage.controller.policy.state import EventKind

if TYPE_CHECKING:
    from soak import Soak

HOUR, DAY = 3600.0, 86400.0
TOOL_EVERY_S = 30.0
DEAD = ("gpu_off_bus", Severity.CRITICAL)


def plan(soak: "Soak", end_s: float) -> None:
    """All of them, each with days of its own where the month is long enough."""
    for share, hardship in (
        (0.03, forged_lines),
        (0.06, clock_steps),
        (0.17, jobs_start_while_the_file_server_is_lost),
        (0.29, partial(scheduler_away, for_s=HOUR)),
        (0.33, partial(scheduler_away, for_s=min(DAY, end_s / 10))),
        (0.45, parts_missing_for_a_week),
        (0.48, nodes_unknown_to_the_scheduler),
        (0.70, another_tool_resumes_nodes),
        (0.85, agents_reinstalled),
        (0.02, database_restored),
    ):
        soak.at(share * end_s, partial(hardship, soak))


def database_restored(soak: "Soak") -> None:
    """A day later the database is the one of now again. Slurm is read, and each agent states what it has open."""
    backup = soak.back_up()
    soak.at(soak.now_s + DAY, partial(_restore, soak, backup))


def _restore(soak: "Soak", backup: Any) -> None:
    open_now = {name: node.open_findings for name, node in soak.state.nodes.items()}
    newest = {name: max((f.seq for f in node.findings), default=0) for name, node in soak.state.nodes.items()}
    soak.restore(backup)
    name = max(newest, key=lambda n: newest[n])
    soak.take(AgentAhead(name, "boot", newest[name], 0))
    soak.look()
    for name, found in open_now.items():
        said = tuple(StatedFinding(*f.key, f.severity, f.confidence) for f in found)
        checks = {f.check: True for f in (*found, *soak.state.nodes[name].findings)} if name in soak.state.nodes else {}
        stated = StatedSet("boot", soak.next(), said, checks)
        for c in differences(soak.state.nodes.get(name), stated):
            about = {"check": c.check, "component": c.component, "fault": c.fault, "severity": c.severity}
            soak.say(name, c.kind, restated=True, confidence=c.confidence, **about)


def forged_lines(soak: "Soak") -> None:
    """A user of each of many nodes makes the kernel quote drivers' lines: the agents report what the checks find."""
    for name in soak.random.sample(soak.names, min(50, len(soak.names) // 4)):
        for check, f in forged_findings():
            soak.figures.forged_findings += 1
            about = {"component": f.component, "fault": f.fault, "severity": f.severity}
            soak.say(name, EventKind.RAISED, check=check, **about)
        soak.figures.forged_nodes += 1


def jobs_start_while_the_file_server_is_lost(soak: "Soak") -> None:
    """Every node loses one mount within two minutes, and jobs start on every node meanwhile."""
    begin_s, about = soak.now_s, {"component": "/scratch", "fault": "mount_hung", "severity": Severity.CRITICAL}
    more = {**about, "check": "fs_mounts", "places": ("mount source fs2:/scratch",)}
    for name in soak.names:
        told_s = begin_s + soak.random.uniform(0, 120)
        soak.at(told_s, partial(soak.say, name, EventKind.RAISED, **more))
        soak.at(begin_s + HOUR + soak.random.uniform(0, 60), partial(soak.say, name, EventKind.CLEARED, **more))
    for k in range(60):
        soak.at(begin_s + 10.0 * k, partial(_start_jobs, soak))


def _start_jobs(soak: "Soak") -> None:
    """A prolog on every node. Only the nodes with a grant may refuse a job; Slurm drains a node that does."""
    for name, hooks in tuple(soak.state.hooks.items()):
        if not hooks.granted or name not in soak.slurm.views or soak.slurm.views[name].draining:
            continue
        refused = hooks.granted[0]
        soak.figures.hook_refusals += 1
        if refused.fault.startswith("mount_"):
            soak.figures.shared_refusals += 1
        about = {"component": refused.component, "fault": refused.fault, "severity": Severity.CRITICAL}
        soak.slurm.set_drain(name, "Prolog error", "slurm")
        soak.say(name, EventKind.REFUSED, **about, check=refused.check, job="77")
    soak.figures.jobs_started += len(soak.names)


def scheduler_away(soak: "Soak", for_s: float) -> None:
    soak.set_down(for_s)
    _break_some(soak, 6, min(for_s / 2, HOUR), for_s + 6 * HOUR)


def parts_missing_for_a_week(soak: "Soak") -> None:
    """A fiftieth of the fleet waits for parts; meanwhile other nodes break and are to be drained as ever."""
    _break_some(soak, max(2, len(soak.names) // 50), DAY, min(7 * DAY, soak.days * DAY / 4))
    _break_some(soak, 10, 2 * DAY, 2 * DAY)


def nodes_unknown_to_the_scheduler(soak: "Soak") -> None:
    for k in range(30):
        name = f"x{k:03d}"
        soak.say(name, EventKind.STARTED, version="1")
        soak.at(soak.now_s + soak.random.uniform(1, HOUR), partial(soak.fail, name, "GPU-x", *DEAD))
    _break_some(soak, 6, HOUR, 6 * HOUR)


def another_tool_resumes_nodes(soak: "Soak") -> None:
    """For a day a tool resumes one dead node every half minute; the other dead nodes are to be drained as ever."""
    name, until_s = soak.names[1], soak.now_s + min(DAY, soak.days * DAY / 10)
    soak.fail(name, "GPU-t", *DEAD)
    soak.at(until_s, partial(soak.mend, name, "GPU-t", *DEAD))
    _every(soak, TOOL_EVERY_S, until_s, partial(_resume_ours, soak, name))
    _break_some(soak, 6, until_s - soak.now_s, 6 * HOUR)


def _resume_ours(soak: "Soak", name: str) -> None:
    view = soak.slurm.views[name]
    if not soak.slurm.down and view.draining and parse_reason(view.reason) is not None:
        soak.slurm.resume(name)
        soak.figures.resumed_by_a_tool += 1
        soak.look()


def clock_steps(soak: "Soak") -> None:
    """The controller's clock steps by an hour to and fro; the clocks of a tenth of the nodes are an hour off."""
    for name in soak.random.sample(soak.names, len(soak.names) // 10):
        soak.node_skew_s[name] = soak.random.choice((-HOUR, HOUR))
    for k, step_s in enumerate((HOUR, -HOUR, -HOUR, HOUR)):
        soak.at(soak.now_s + k * 6 * HOUR, partial(soak.step_clock, step_s))
        _break_some(soak, 3, k * 6 * HOUR + 600, 12 * HOUR)


def agents_reinstalled(soak: "Soak") -> None:
    """Agents lose their state in the same boot, and report as new what is still wrong."""
    broken = sorted({name for name, _ in soak.faulty()})
    for name in dict.fromkeys((*soak.random.sample(soak.names, len(soak.names) // 20), *broken[:20])):
        soak.say(name, EventKind.STARTED)  # its numbers go on after those that the controller's welcome names
        for (node, component), fault in soak.faulty().items():
            if node == name:
                severity = Severity.MAJOR if fault in OWN_LOW else Severity.CRITICAL
                soak.say(name, EventKind.RAISED, component=component, fault=fault, severity=severity)
    _break_some(soak, 4, HOUR, 6 * HOUR)


def _break_some(soak: "Soak", count: int, within_s: float, for_s: float) -> None:
    """Dead GPUs on so many nodes, one by one: with less than 10 an hour the limits hold nothing."""
    for k, name in enumerate(soak.random.sample(soak.names[2:], count)):
        component, begin_s = f"GPU-h{soak.next()}", soak.now_s + within_s * (k + soak.random.random()) / count
        soak.at(begin_s, partial(soak.fail, name, component, *DEAD))
        soak.at(begin_s + for_s, partial(soak.mend, name, component, *DEAD))
        soak.at(begin_s + for_s + HOUR, partial(soak.undrain, name))


def _every(soak: "Soak", every_s: float, until_s: float, happen: Callable[[], None]) -> None:
    def again() -> None:
        happen()
        if soak.now_s + every_s < until_s:
            soak.at(soak.now_s + every_s, again)

    again()
