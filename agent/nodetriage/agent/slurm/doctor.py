"""What slurm.conf lacks, or says that is dangerous, for nodetriage to do its work. Pure; changes nothing.

Defaults and meanings are those of slurm.conf(5) for 22.05 to 25.05; docs/slurm.md says what was tried.
"""

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nodetriage.agent.slurm.conf import SlurmConf

NO_LIMIT_S = 65534  # what Slurm writes for "none"


class Level(enum.IntEnum):
    """The exit code that the gravest advice gives."""

    NOTE = 0
    MISSING = 1  # something of nodetriage does not work without it
    DANGER = 2  # jobs or nodes are lost to it


@dataclass(frozen=True, slots=True)
class Advice:
    level: Level
    key: str
    text: str
    set: str = ""  # the line for slurm.conf


Hooked = Callable[[str], bool]  # whether a script, or one of those that a pattern names, is a hook of ours


def examine(conf: SlurmConf, hooked: Hooked) -> tuple[Advice, ...]:
    """The gravest first."""
    found = [
        *_scripts(conf, hooked),
        *_prolog_failure(conf),
        *_health_check(conf, hooked),
        *_time_limits(conf),
        *_requeue(conf),
        *_silence(conf),
        *_reboot(conf),
        *_facts(conf),
    ]
    return tuple(sorted(found, key=lambda a: -a.level))


def _scripts(conf: SlurmConf, hooked: Hooked) -> Iterator[Advice]:
    for key, loss in (("Prolog", "no job is refused on a faulty node"), ("Epilog", "no fault is tied to its job")):
        value, line = conf.get(key), f"{key}=/etc/slurm/{key.lower()}.d/*"
        if not value:
            yield Advice(Level.MISSING, key, f"not set: {loss}", line)
        elif not hooked(value):
            yield Advice(Level.MISSING, key, f"{value} has no nodetriage script: {loss}", line)
    flags = conf.words("PrologFlags")
    if conf.get("Prolog") and not flags & {"alloc", "contain", "x11"}:
        text = "without Alloc the prolog runs at a job's first step: the allocation begins without a check"
        yield Advice(Level.DANGER, "PrologFlags", text, "PrologFlags=Alloc")
    if "serial" in flags:
        yield Advice(Level.NOTE, "PrologFlags", "Serial starts jobs on a node one after the other: each prolog waits")


def _prolog_failure(conf: SlurmConf) -> Iterator[Advice]:
    if conf.get("Prolog") and "nohold_on_prolog_fail" not in conf.words("SchedulerParameters"):
        text = "a job whose prolog fails is requeued held, and stays so until somebody releases it"
        yield Advice(Level.DANGER, "SchedulerParameters", text, "SchedulerParameters=...,nohold_on_prolog_fail")


def _health_check(conf: SlurmConf, hooked: Hooked) -> Iterator[Advice]:
    program = conf.get("HealthCheckProgram")
    if not program:
        text = "not set: slurmd's log does not show what the agent knows, and nobody notices a slurmd without an agent"
        yield Advice(Level.NOTE, "HealthCheckProgram", text, "HealthCheckProgram=/etc/slurm/nodetriage-healthcheck")
        return
    interval_s = conf.seconds("HealthCheckInterval", 0)
    if not interval_s:
        text = f"{program} never runs: the interval is 0"
        yield Advice(Level.MISSING, "HealthCheckInterval", text, "HealthCheckInterval=300")
    elif interval_s < 60 and hooked(program):
        yield Advice(Level.NOTE, "HealthCheckInterval", f"every {interval_s} s on every node; 300 is enough")
    if interval_s and "cycle" not in conf.words("HealthCheckNodeState"):
        text = "without CYCLE slurmctld starts the program on all nodes at the same moment"
        yield Advice(Level.DANGER, "HealthCheckNodeState", text, "HealthCheckNodeState=CYCLE,ANY")


def _time_limits(conf: SlurmConf) -> Iterator[Advice]:
    if not (conf.get("Prolog") or conf.get("Epilog")):
        return
    for key in ("PrologTimeout", "EpilogTimeout"):  # 24.11 and later; before that one key for both
        limit_s = conf.seconds(key, conf.seconds("PrologEpilogTimeout", NO_LIMIT_S) or NO_LIMIT_S)
        if limit_s is None or limit_s == 0 or limit_s >= NO_LIMIT_S:
            text = "a prolog or epilog has no time limit: a node where one hangs stays CONFIGURING or COMPLETING"
            yield Advice(Level.DANGER, "PrologEpilogTimeout", text, "PrologEpilogTimeout=120")
            return
        if limit_s < 10:
            text = f"{limit_s} s is short: a slow script drains its node"
            yield Advice(Level.DANGER, key, text, "PrologEpilogTimeout=120")


def _requeue(conf: SlurmConf) -> Iterator[Advice]:
    if conf.get("JobRequeue", "1") == "0":
        text = "batch jobs are not requeued unless they ask for it: a faulty node ends them"
        yield Advice(Level.DANGER, "JobRequeue", text, "JobRequeue=1")
    most = conf.seconds("MaxBatchRequeue", 5)
    if most is not None and most < 3:
        text = f"a batch job is held after {most} failed launches: two bad nodes are enough"
        yield Advice(Level.DANGER, "MaxBatchRequeue", text, "MaxBatchRequeue=5")


def _silence(conf: SlurmConf) -> Iterator[Advice]:
    timeout_s = conf.seconds("SlurmdTimeout", 300)
    if timeout_s == 0:
        text = "a node that is gone is never set DOWN: its jobs hang until their time limit"
        yield Advice(Level.DANGER, "SlurmdTimeout", text, "SlurmdTimeout=300")
    elif timeout_s and timeout_s > 900:
        yield Advice(Level.NOTE, "SlurmdTimeout", f"a dead node's jobs are requeued only after {timeout_s} s")
    if conf.get("ReturnToService", "0") == "2":
        text = "a node that was DOWN for whatever reason takes jobs again as soon as its slurmd is back"
        yield Advice(Level.DANGER, "ReturnToService", text, "ReturnToService=1")
    if conf.seconds("SuspendTime", 0) not in (0, None) and conf.get("SuspendProgram"):
        yield Advice(Level.NOTE, "SuspendProgram", "nodes that are powered down are silent to the controller too")


def _reboot(conf: SlurmConf) -> Iterator[Advice]:
    if not conf.get("RebootProgram"):
        text = "not set: `scontrol reboot`, which many faults call for, does nothing"
        yield Advice(Level.NOTE, "RebootProgram", text, "RebootProgram=/usr/sbin/reboot")
        return
    resume_s = conf.seconds("ResumeTimeout", 60)
    if resume_s is not None and 0 < resume_s < 300:
        text = f"a node that takes more than {resume_s} s to boot is set DOWN; one with eight GPUs takes minutes"
        yield Advice(Level.DANGER, "ResumeTimeout", text, "ResumeTimeout=900")


def _facts(conf: SlurmConf) -> Iterator[Advice]:
    if "gpu" not in conf.words("GresTypes"):
        yield Advice(Level.NOTE, "GresTypes", "no gpu: hooks do not learn which GPUs a job has", "GresTypes=gpu")
    if not conf.get("ProctrackType").lower().endswith("cgroup"):
        text = "without cgroups a job's processes can outlive it, and keep its GPUs busy"
        yield Advice(Level.NOTE, "ProctrackType", text, "ProctrackType=proctrack/cgroup")
    if conf.get("AccountingStorageType", "none").lower().endswith("none"):
        text = "no accounting: nodetriagectl report has no jobs"
        yield Advice(Level.NOTE, "AccountingStorageType", text, "AccountingStorageType=accounting_storage/slurmdbd")
