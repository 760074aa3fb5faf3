"""What befalls a fleet in any month: half of it falls silent, a file server dies, a bad version comes, a node flaps."""

from functools import partial
from typing import TYPE_CHECKING, Any

from soak_judge import FLAPPING, OWN_LOW

from nodetriage.checks.model import Severity
from nodetriage.controller.policy.reason import parse_reason
from nodetriage.controller.policy.state import ContactChanged, EventKind, Tick

if TYPE_CHECKING:
    from soak import Soak

HOUR = 3600.0


def plan(soak: "Soak", end_s: float) -> None:
    for share, upset in ((0.1, half_vanish), (0.24, file_server), (0.38, rollout), (0.52, restart_storm)):
        soak.at(share * end_s, partial(upset, soak))
    for k in range(12):
        _plan_flapping(soak, 0.6 * end_s + k * 2 * HOUR)


def half_vanish(soak: "Soak") -> None:
    lost = tuple(soak.random.sample(soak.names, len(soak.names) // 2))
    soak.figures.fleet_event_nodes += len(lost)
    soak.take(ContactChanged(lost=lost))
    soak.at(soak.now_s + HOUR, lambda: soak.take(ContactChanged(back=lost)))


def file_server(soak: "Soak") -> None:
    _shake(soak, 0.3, 120.0, 2 * HOUR, "mount_hung", check="fs_mounts", places=("mount source fs1:/home",))


def rollout(soak: "Soak") -> None:
    _shake(soak, 0.15, 1800.0, 3 * HOUR, "gpu_missing", check="gpu_count", version="2")


def restart_storm(soak: "Soak") -> None:
    """Every agent starts anew and reports again what it finds."""
    for (name, component), fault in soak.faulty().items():
        severity = Severity.MAJOR if fault in OWN_LOW else Severity.CRITICAL
        again = {"component": component, "fault": fault, "severity": severity}
        soak.at(soak.now_s + 1, partial(soak.say, name, EventKind.REPEATED, **again))
    for name in soak.names:
        soak.say(name, EventKind.STARTED)


def operator(soak: "Soak") -> None:
    """Drains a node, often a faulty one, or resumes one; hours later lets go of what is theirs."""
    faulty = [name for name, _ in soak.faulty() if name in soak.slurm.views]
    name = soak.random.choice(faulty if faulty and soak.random.random() < 0.5 else soak.names)
    if soak.slurm.down:
        return
    view = soak.slurm.views[name]
    if soak.random.random() < 0.15:
        soak.slurm.resume(name)
        return
    if view.draining and parse_reason(view.reason) is None:
        return
    soak.figures.operator_drains += 1
    soak.slurm.set_drain(name, f"looked at by hand, {soak.next()}", "otto")
    mine = soak.slurm.views[name].reason
    soak.at(soak.now_s + soak.random.uniform(60, 8 * HOUR), partial(_let_go, soak, name, mine))


def _let_go(soak: "Soak", name: str, mine: str) -> None:
    if soak.slurm.down:  # nobody's command is taken
        soak.at(soak.now_s + 600, partial(_let_go, soak, name, mine))
    elif soak.slurm.views[name].reason == mine:
        soak.slurm.resume(name)


def _plan_flapping(soak: "Soak", when_s: float) -> None:
    about = (soak.names[0], "flap", FLAPPING, Severity.CRITICAL)
    soak.at(when_s, partial(soak.fail, *about))
    soak.at(when_s + 300, partial(soak.mend, *about, judged=False))
    soak.at(when_s + 1000, lambda: soak.take(Tick()))


def _shake(soak: "Soak", share: float, within_s: float, for_s: float, fault: str, **more: Any) -> None:
    hit = soak.random.sample(soak.names[1:], int(len(soak.names) * share))
    soak.figures.fleet_event_nodes += len(hit)
    about = {"component": "shared", "fault": fault, "severity": Severity.CRITICAL, **more}
    for name in hit:
        at_s = soak.now_s + soak.random.uniform(0, within_s)
        soak.at(at_s, partial(soak.say, name, EventKind.RAISED, **about))
        soak.at(at_s + for_s, partial(soak.say, name, EventKind.CLEARED, **about))
