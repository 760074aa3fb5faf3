"""The agent's state in the forms that others read: heartbeats, the answer to `status`, log lines."""

import time
from typing import Any

from nodetriage.agent.check_scheduler import CheckScheduler
from nodetriage.agent.core.verdict import Change, CheckVerdict, Kind, OpenFinding
from nodetriage.agent.delivery import event, open_set
from nodetriage.agent.delivery.spool import Spool
from nodetriage.agent.machine.port_bytes import PortBytes
from nodetriage.agent.traffic import Traffic
from nodetriage.agent.workers.pool import WorkerPool
from nodetriage.checks.model import Severity
from nodetriage.v1 import health_pb2 as pb

NEVER_MS = 0xFFFFFFFF


class Heartbeats:
    """Makes heartbeats: a whole one at the start of a stream, then only what is new since the last one."""

    def __init__(self, spool: Spool, workers: WorkerPool, traffic: Traffic, boot_id: str) -> None:
        self._spool = spool
        self._workers = workers
        self._traffic = traffic
        self._boot_id = boot_id
        self._sent_s: dict[str, float] = {}  # by check: the time of its last run, as in the last heartbeat

    def make(self, scheduler: CheckScheduler, whole: bool, now_s: float, every_s: float = 0.0) -> pb.Heartbeat:
        """`now_s` is CLOCK_BOOTTIME, `every_s` the interval to announce. Whole too where the set of checks changed."""
        ran_s = {name: c.at_s if (c := scheduler.verdict.checks.get(name)) else -1.0 for name in scheduler.checks}
        whole = whole or ran_s.keys() != self._sent_s.keys()
        names = ran_s if whole else [name for name, at_s in ran_s.items() if at_s != self._sent_s[name]]
        self._sent_s = ran_s
        ports, ports_age_s = self._traffic.ports(whole, time.monotonic())
        at = event.Moment(time.time_ns() // 1000, int(now_s * 1e6))
        return pb.Heartbeat(
            at_unix_us=at.unix_us,
            boot_id=self._boot_id,
            checks=[_check_state(name, scheduler.verdict.checks.get(name), now_s) for name in names],
            abandoned_workers=len(self._workers.abandoned) + self._workers.abandoned_programs,
            spooled_events=self._spool.depth,
            ports=[_port_traffic(port, ports_age_s) for port in ports],
            partial=not whole,
            next_within_ms=round(every_s * 1000),
            open=open_set.stated(scheduler.verdict, self._spool.next_seq - 1, whole, at),
        )


def _port_traffic(port: PortBytes, age_s: float) -> pb.PortTraffic:
    return pb.PortTraffic(port=port.port, rx_bytes=port.rx_bytes, tx_bytes=port.tx_bytes, age_ms=int(age_s * 1000))


def _check_state(name: str, known: CheckVerdict | None, now_s: float) -> pb.CheckState:
    if known is None:
        return pb.CheckState(check=name, age_ms=NEVER_MS)
    age_ms = min(NEVER_MS - 1, max(0, int((now_s - known.at_s) * 1000)))
    return pb.CheckState(check=name, outcome=event.wire_outcome(known.outcome), age_ms=age_ms)


def status(scheduler: CheckScheduler, workers: WorkerPool, now_s: float) -> dict[str, Any]:
    """The control socket's answer to `status`. Ages in seconds; None for a check that has not run yet."""
    names = [*scheduler.checks, *(n for n in scheduler.verdict.checks if n not in scheduler.checks)]
    return {
        "checks": {name: _check(scheduler.verdict.checks.get(name), now_s) for name in names},
        "abandoned_workers": [
            {"class": a.device_class, "pid": a.pid, "check": a.check, "doing": a.doing} for a in workers.abandoned
        ],
        "abandoned_programs": workers.abandoned_programs,
        "pids": workers.pids,
    }


def _check(known: CheckVerdict | None, now_s: float) -> dict[str, Any]:
    if known is None:
        return {"outcome": None, "age_s": None, "why": "it has not run yet", "findings": []}
    return {
        "outcome": str(known.outcome),
        "age_s": round(now_s - known.at_s, 3),
        "why": known.why,
        "took_ms": known.took_ms,
        "findings": [_finding(finding, now_s) for finding in known.open],
    }


def _finding(finding: OpenFinding, now_s: float) -> dict[str, Any]:
    return {
        "component": finding.component,
        "fault": finding.fault,
        "severity": finding.severity.name.lower(),
        "evidence": dict(finding.evidence),
        "open_s": round(now_s - finding.raised_s, 3),
        "occurrences": finding.occurrences,
    }


def summary(scheduler: CheckScheduler, spool: Spool, stream: str) -> str:
    """One line for systemctl status and the log."""
    outcomes = [str(c.outcome) for name, c in scheduler.verdict.checks.items() if name in scheduler.checks]
    counts = ", ".join(f"{outcomes.count(o)} {o}" for o in sorted(set(outcomes)))
    return f"{len(scheduler.checks)} checks: {counts or 'none has run'}; {spool.depth} events to send; {stream}"


def log_change(log: Any, change: Change) -> None:
    """Logs a change for people who read the journal. The record of it is in the spool."""
    grave = change.severity >= Severity.WARNING and change.kind is not Kind.CLEARED
    facts = {"check": change.check, "component": change.component, "fault": change.fault, "outcome": change.outcome}
    write = log.warning if grave else log.info
    write(
        f"{'finding ' if change.fault else ''}{change.kind.name.lower().replace('_', ' ')}",
        **{k: str(v) for k, v in facts.items() if v},
        severity=change.severity.name.lower(),
        **{f"evidence_{k}": v for k, v in change.evidence.items()},
    )
