"""What a hook is told of a node: pure decisions, and the agent's side of the conversation."""

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodetriage.agent.core.verdict import Change, CheckVerdict, OpenFinding, Verdict
from nodetriage.agent.settings.config import HookSettings
from nodetriage.agent.slurm.hook_authority import Authority, NamedFinding, Refusals
from nodetriage.agent.slurm.hooks import JOB_COUNTS_S, HookMemory, Hooks, Jobs
from nodetriage.agent.slurm.known import Known, facts, known, line
from nodetriage.checks.model import Check, Confidence, Host, Outcome, Severity

NOW_S = 1000.0
ENFORCE = HookSettings(mode="enforce")
OBSERVE = HookSettings()
NOTHING = HookMemory()
OFF_BUS = OpenFinding("0000:3a:00.0", "gpu_off_bus", Severity.CRITICAL, {"xid": 79}, NOW_S - 5, NOW_S - 5, NOW_S - 5)


def check(
    name: str = "gpu_xid", every_s: float = 60.0, in_prolog: bool = False, worker: str = "gpu"
) -> Check[Any, Any]:
    def read(host: Host) -> None:
        raise NotImplementedError

    return Check(
        name=name,
        read=read,
        judge=lambda *_: (),
        policy=None,
        faults=(),
        every_s=every_s,
        in_prolog=in_prolog,
        worker=worker,
    )


def seen(
    outcome: Outcome = Outcome.OK, age_s: float = 1.0, held: tuple[OpenFinding, ...] = (), why: str = ""
) -> CheckVerdict:
    return CheckVerdict(outcome, why, NOW_S - age_s, open=held)


def look(verdicts: Mapping[str, CheckVerdict], settings: HookSettings = ENFORCE, late: Iterable[str] = ()) -> Known:
    return known({"gpu_xid": check()}, verdicts, late, NOW_S, settings)


def test_a_node_that_was_looked_at_in_time_and_holds_nothing_is_ok() -> None:
    assert line(look({"gpu_xid": seen()})) == "nodetriage: ok"


def test_a_grave_fault_is_named_with_its_part_its_severity_and_what_it_is() -> None:
    found = look({"gpu_xid": seen(held=(OFF_BUS,))})

    assert line(found) == (
        "nodetriage: gpu_off_bus 0000:3a:00.0 (critical, gpu_xid): a GPU has fallen off the PCIe bus"
    )


def test_only_a_critical_finding_is_grave() -> None:
    major = OpenFinding("p", "gpu_off_bus", Severity.MAJOR, {}, 0, NOW_S, 0)

    assert not look({"gpu_xid": seen(held=(major,))}).grave
    assert look({"gpu_xid": seen(held=(OFF_BUS,))}).grave


def test_a_kernel_line_alone_refuses_no_job_and_one_about_a_device_that_is_here_does() -> None:
    for confidence, grave in ((Confidence.LINE, False), (Confidence.DEVICE, True), (Confidence.WITNESSED, True)):
        known_so = dataclasses.replace(OFF_BUS, confidence=confidence)
        assert bool(look({"gpu_xid": seen(held=(known_so,))}).grave) is grave


def test_a_fault_that_is_never_to_refuse_does_not() -> None:
    assert not look({"gpu_xid": seen(held=(OFF_BUS,))}, HookSettings(never_refuse=("gpu_*",))).grave


def test_what_a_check_found_that_is_switched_off_by_now_is_not_known() -> None:
    assert look({"gpu_xid": seen(held=(OFF_BUS,)), "old": seen(held=(OFF_BUS,))}).grave[1:] == ()
    assert not known({"other": check("other")}, {"gpu_xid": seen(held=(OFF_BUS,))}, (), NOW_S, ENFORCE).grave


def test_an_event_that_stays_true_is_as_old_as_its_checks_last_run_and_a_condition_as_its_last_sight() -> None:
    event = OpenFinding("p", "gpu_off_bus", Severity.CRITICAL, {}, 0, 100, 0)
    condition = OpenFinding("p", "gpu_missing", Severity.CRITICAL, {}, 0, 100, 0)

    assert [g.age_s for g in look({"gpu_xid": seen(held=(event, condition), age_s=2)}).grave] == [2, 900]


@pytest.mark.parametrize(
    ("verdicts", "late", "why"),
    [
        ({}, (), "it has not run yet"),
        ({"gpu_xid": seen()}, ("gpu_xid",), "no answer in time"),
        ({"gpu_xid": seen(Outcome.HUNG, why="no answer for 5.0 s")}, (), "hung: no answer for 5.0 s"),
        ({"gpu_xid": seen(Outcome.BROKEN)}, (), "broken"),
        ({"gpu_xid": seen(age_s=126)}, (), "it last looked 126 s ago"),
    ],
)
def test_what_was_not_looked_at_is_unknown(
    verdicts: Mapping[str, CheckVerdict], late: tuple[str, ...], why: str
) -> None:
    assert look(verdicts, late=late).unknown == {"gpu_xid": why}


def test_a_result_counts_for_two_periods_and_the_time_that_a_run_may_take() -> None:
    assert not look({"gpu_xid": seen(age_s=124)}).unknown


def test_a_check_for_which_there_is_nothing_here_is_not_unknown() -> None:
    assert not look({"gpu_xid": seen(Outcome.SKIPPED)}).unknown


def test_what_slurmd_says_of_a_job_is_taken_as_short_plain_text_under_names_of_ours() -> None:
    said = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,1\x1b[2J" + "x" * 1000, "SLURM_JOB_UID": 3, "LD_PRELOAD": "x"}

    taken = facts(said)

    assert taken.keys() == {"job_id", "job_gpus"}
    assert taken["job_gpus"].startswith("0,1?[2Jxxx")  # type: ignore[union-attr]
    assert len(str(taken["job_gpus"])) == 400


class FakeRounds:
    """A check scheduler whose runs end when the test says so."""

    def __init__(self, verdicts: Mapping[str, CheckVerdict], *checks: Check[Any, Any]) -> None:
        self.checks = {c.name: c for c in checks}
        self.verdict = Verdict("boot", verdicts)
        self.ran: list[str] = []
        self.answers = asyncio.Event()
        self.behind: set[str] = set()

    def is_behind(self, name: str) -> bool:
        return name in self.behind

    async def run(self, name: str) -> None:
        self.ran.append(name)
        await self.answers.wait()
        self.verdict = Verdict("boot", {**self.verdict.checks, name: seen(age_s=0)})


class Desk:
    """A Hooks with what it records; without a controller, unless the test says so."""

    def __init__(
        self,
        scheduler: FakeRounds,
        run_dir: Path,
        settings: HookSettings = ENFORCE,
        memory: HookMemory = NOTHING,
        *,
        alone: bool = True,
    ):
        self.changes: list[Change] = []
        self.kept: dict[str, bytes] = {}
        self.scheduler = scheduler
        self.now_s = NOW_S
        self.hooks = Hooks(settings, scheduler, self._record, lambda: self.now_s, run_dir, memory, alone=alone)  # type: ignore[arg-type]

    def _record(self, changes: Iterable[Change], keep: Mapping[str, bytes]) -> None:
        self.changes += changes
        self.kept |= keep

    def ask(self, verb: str, job: str = "7", **said: str) -> str:
        return asyncio.run(self.hooks.answer(verb, {"SLURM_JOB_ID": job, **said}))

    def memory(self) -> HookMemory:
        """What another run of the agent starts with."""
        kinds = {"jobs": Jobs, "hook_refusals": Refusals, "hook_authority": Authority}
        jobs, refusals, word = (
            msgspec.json.decode(self.kept[key], type=kind) if key in self.kept else None for key, kind in kinds.items()
        )
        return HookMemory(jobs, refusals, word)


def test_a_prolog_runs_the_cheap_checks_anew_and_takes_the_others_as_they_are(tmp_path: Path) -> None:
    verdicts = {"cheap": seen(age_s=50), "slow": seen(age_s=50)}
    desk = Desk(FakeRounds(verdicts, check("cheap", in_prolog=True), check("slow")), tmp_path)
    desk.scheduler.answers.set()

    assert desk.ask("prolog") == "0 nodetriage: ok"
    assert desk.scheduler.ran == ["cheap"]
    assert desk.changes == []


def test_a_result_of_this_very_moment_serves_the_next_job_too(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({"cheap": seen(age_s=0.5)}, check("cheap", in_prolog=True)), tmp_path)

    assert desk.ask("prolog") == "0 nodetriage: ok"
    assert desk.scheduler.ran == []


def test_a_check_with_lines_of_the_kernel_log_to_judge_judges_them_first(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({"gpu_xid": seen(age_s=0.1)}, check()), tmp_path)
    desk.scheduler.behind.add("gpu_xid")
    desk.scheduler.answers.set()

    assert desk.ask("prolog") == "0 nodetriage: ok"
    assert desk.scheduler.ran == ["gpu_xid"]


def test_jobs_that_start_together_share_one_look(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({}, check("cheap", in_prolog=True)), tmp_path)

    async def two() -> list[str]:
        asks = [asyncio.create_task(desk.hooks.answer("prolog", {"SLURM_JOB_ID": job})) for job in ("1", "2")]
        await asyncio.sleep(0)
        desk.scheduler.answers.set()
        return await asyncio.gather(*asks)

    assert asyncio.run(two()) == ["0 nodetriage: ok"] * 2
    assert desk.scheduler.ran == ["cheap"]


def test_a_check_that_does_not_answer_in_time_refuses_no_job_and_that_is_told(tmp_path: Path) -> None:
    settings = HookSettings(mode="enforce", deadline_s=0.05)
    desk = Desk(FakeRounds({"cheap": seen(age_s=9)}, check("cheap", in_prolog=True)), tmp_path, settings)

    assert desk.ask("prolog") == "0 nodetriage: not known: cheap: no answer in time"
    (change,) = desk.changes
    assert change.outcome is Outcome.HUNG
    assert change.evidence["job_id"] == "7"
    assert change.evidence["refused"] is False


def test_a_refused_job_is_told_with_its_fault_and_its_owner_learns_what_becomes_of_it(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({"gpu_xid": seen(held=(OFF_BUS,))}, check()), tmp_path)

    answer = desk.ask("prolog", SLURM_JOB_GPUS="0,1")

    assert answer == (
        "1 nodetriage: gpu_off_bus 0000:3a:00.0 (critical, gpu_xid): a GPU has fallen off the PCIe bus; "
        "this job did not start here, and Slurm puts it back into the queue"
    )
    (change,) = desk.changes
    assert (change.check, change.fault, change.component) == ("prolog", "gpu_off_bus", "0000:3a:00.0")
    assert (change.severity, change.evidence["refused"]) == (Severity.WARNING, True)
    assert change.evidence["job_gpus"] == "0,1"


def test_an_observing_agent_refuses_nothing_and_tells_of_each_job_that_it_would_have_refused(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({"gpu_xid": seen(held=(OFF_BUS,))}, check()), tmp_path, OBSERVE)

    assert [desk.ask("prolog", job)[0] for job in ("7", "8")] == ["0", "0"]
    assert [(c.fault, c.evidence["job_id"], c.evidence["would_refuse"]) for c in desk.changes] == [
        ("gpu_off_bus", "7", True),
        ("gpu_off_bus", "8", True),
    ]


def test_a_fault_refuses_jobs_once_in_a_boot_and_those_that_start_together_with_the_first(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({"gpu_xid": seen(held=(OFF_BUS,), age_s=0)}, check()), tmp_path)

    assert desk.ask("prolog", "1").startswith("1 ")
    desk.now_s += 5
    assert desk.ask("prolog", "2").startswith("1 ")
    desk.now_s += 6
    assert "a job was refused for it in this boot already" in desk.ask("prolog", "3")
    again = Desk(desk.scheduler, tmp_path, memory=desk.memory())
    again.now_s = desk.now_s
    assert again.ask("prolog", "4").startswith("0 ")
    desk.scheduler.verdict = Verdict("another boot", desk.scheduler.verdict.checks)
    booted = Desk(desk.scheduler, tmp_path, memory=desk.memory())
    assert booted.ask("prolog", "5").startswith("1 ")


def test_where_a_controller_is_set_its_word_decides_and_survives_a_restart(tmp_path: Path) -> None:
    scheduler = FakeRounds({"gpu_xid": seen(held=(OFF_BUS,))}, check())
    desk = Desk(scheduler, tmp_path, ENFORCE, alone=False)
    assert desk.ask("prolog").startswith("0 ")
    granted = (NamedFinding("0000:3a:00.0", "gpu_off_bus", "261201-1"),)
    desk.hooks.take_word(Authority(1, "enforce", 300, "ctl:1, tls", "boot", NOW_S, 0, granted=granted))

    after = Desk(scheduler, tmp_path, OBSERVE, desk.memory(), alone=False)

    assert after.ask("prolog").startswith("1 ")
    assert after.changes[0].evidence["incident"] == "261201-1"
    assert after.hooks.status() == {
        "mode": "enforce", "rests_on": "controller", "fresh": True, "brought_by": "ctl:1, tls", "said_unix_s": 0
    }  # fmt: skip


def test_the_reason_why_a_job_is_let_in_is_told_once_in_five_minutes(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({"gpu_xid": seen(held=(OFF_BUS,))}, check()), tmp_path, ENFORCE, alone=False)
    desk.hooks.take_word(Authority(1, "enforce", 300, "ctl", "boot", NOW_S, 0))

    for job in ("1", "2", "3"):
        assert desk.ask("prolog", job).startswith("0 ")

    (change,) = desk.changes
    assert change.evidence["let_in_because"] == "the controller has granted no refusal for it"


def test_the_same_reason_not_to_know_is_told_once_in_five_minutes(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({"gpu_xid": seen(Outcome.BROKEN)}, check()), tmp_path)

    for _ in range(4):
        desk.ask("prolog")
    desk.now_s += 301
    desk.ask("prolog")

    assert [c.evidence["same_before"] for c in desk.changes] == [0, 3]


def test_an_epilog_ties_the_faults_of_its_time_to_the_job(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({"gpu_xid": seen()}, check()), tmp_path)
    desk.now_s = NOW_S - 60
    desk.ask("prolog")
    desk.now_s = NOW_S
    earlier = OpenFinding("p", "ib_link_down", Severity.MAJOR, {}, NOW_S - 500, NOW_S - 400, 0)
    desk.scheduler.verdict = Verdict("boot", {"gpu_xid": seen(held=(OFF_BUS, earlier))})

    assert desk.ask("epilog").startswith("1 nodetriage: gpu_off_bus")

    tied = [c for c in desk.changes if "seen_by" in c.evidence]
    assert [(c.fault, c.component, c.evidence["job_id"], c.evidence["raised_in_job"]) for c in tied] == [
        ("gpu_off_bus", "0000:3a:00.0", "7", True)
    ]


def test_when_a_job_began_outlives_the_agent(tmp_path: Path) -> None:
    scheduler = FakeRounds({"gpu_xid": seen(held=(OFF_BUS,))}, check())
    desk = Desk(scheduler, tmp_path, memory=HookMemory(Jobs("boot", {"7": NOW_S - 60})))

    desk.ask("epilog")

    assert [c.evidence["job_id"] for c in desk.changes if "seen_by" in c.evidence] == ["7"]


def test_a_job_of_an_earlier_boot_ties_nothing(tmp_path: Path) -> None:
    scheduler = FakeRounds({"gpu_xid": seen(held=(OFF_BUS,))}, check())
    desk = Desk(scheduler, tmp_path, memory=HookMemory(Jobs("another", {"7": 0.0})))

    desk.ask("epilog")

    assert not [c for c in desk.changes if "seen_by" in c.evidence]


def test_the_epilog_runs_its_own_checks_too(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({}, check("gpu_processes"), check("cheap", in_prolog=True)), tmp_path)
    desk.scheduler.answers.set()

    desk.ask("epilog")

    assert desk.scheduler.ran == ["gpu_processes", "cheap"]


def test_a_health_check_answers_at_once_from_what_is_known(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({"cheap": seen(held=(OFF_BUS,), age_s=50)}, check("cheap", in_prolog=True)), tmp_path)

    assert desk.ask("health").startswith("1 nodetriage: gpu_off_bus")
    assert desk.scheduler.ran == []


def test_hooks_that_got_no_answer_are_reported_when_the_agent_is_back(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({"gpu_xid": seen()}, check()), tmp_path)
    (tmp_path / "unanswered").write_text(
        '{"hook": "prolog", "at": 1796016456, "why": "no answer in time", "job": "77"}\n{"hook": "pro'
    )

    desk.ask("health")

    told, lost = desk.changes
    assert (told.check, told.severity) == ("hook_unanswered", Severity.WARNING)
    assert told.evidence == {
        "hook": "prolog", "why": "no answer in time", "at_unix_s": 1796016456, "job_id": "77"
    }  # fmt: skip
    assert lost.evidence["why"] == "more hooks had no answer than could be noted"
    assert not (tmp_path / "unanswered").exists()


def test_the_hooks_know_their_deadline_while_nobody_answers(tmp_path: Path) -> None:
    Desk(FakeRounds({}, check()), tmp_path / "run", HookSettings(deadline_s=0.25))

    written = tmp_path / "run/hooks"
    assert written.read_text() == "deadline_ms=250\n"
    assert written.stat().st_mode & 0o777 == 0o600


def test_each_hook_runs_the_checks_of_its_list(tmp_path: Path) -> None:
    checks = (check("cheap", in_prolog=True), check("slow"), check("mine", worker="site"))
    settings = HookSettings(prolog_checks=("slow",), epilog_checks=("commands",))
    desk = Desk(FakeRounds({}, *checks), tmp_path, settings)
    desk.scheduler.answers.set()

    desk.ask("prolog")
    desk.ask("epilog")

    assert desk.scheduler.ran == ["slow", "mine"]


def test_a_job_is_known_from_its_prolog_to_its_epilog(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({}), tmp_path)
    begun: list[bool] = []
    desk.hooks.on_begin = lambda: begun.append(True)
    assert not desk.hooks.has_job

    desk.ask("prolog")
    assert (desk.hooks.has_job, begun) == (True, [True])

    desk.ask("epilog")
    assert (desk.hooks.has_job, begun) == (False, [True])


def test_a_job_whose_epilog_never_comes_does_not_count_for_ever(tmp_path: Path) -> None:
    desk = Desk(FakeRounds({}), tmp_path)
    desk.ask("prolog")

    desk.now_s += JOB_COUNTS_S + 1

    assert not desk.hooks.has_job
