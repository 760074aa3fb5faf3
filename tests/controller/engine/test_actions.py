"""An action looks, acts and looks again: done is what the scheduler shows."""

import asyncio
from dataclasses import replace

import pytest
from fake_slurm import FakeSlurm

from nodetriage.checks.model import Severity
from nodetriage.controller.engine.actions import perform
from nodetriage.controller.policy.state import Action, ActionKind, ActionOutcome
from nodetriage.controller.scheduler import SchedulerRefused, SchedulerUnavailable

DRAIN = Action("d", ActionKind.DRAIN, "n1", "i-1", "gpu_off_bus", "GPU-1", Severity.CRITICAL)
OURS = "nodetriage: gpu_off_bus GPU-1 [incident i-1]"
UNDRAIN = replace(DRAIN, id="u", kind=ActionKind.UNDRAIN)
REQUEUE = replace(DRAIN, id="r", kind=ActionKind.REQUEUE, job="11")


class Deaf(FakeSlurm):
    """Takes every word and does nothing."""

    async def drain(self, nodes: object, reason: str) -> None:
        self.said.append("drain")

    async def undrain(self, node: str) -> None:
        self.said.append("undrain")

    async def requeue(self, job: str, *, hold: bool) -> None:
        self.said.append("requeue")


def test_a_drain_gives_back_the_jobs_that_were_there_when_the_door_was_shut() -> None:
    slurm = FakeSlurm("n1")
    slurm.place("11", "n1")
    done = asyncio.run(perform(DRAIN, slurm))
    assert (done.outcome, [j.job for j in done.jobs]) == (ActionOutcome.DONE, ["11"])
    assert slurm.said == [f"drain n1 {OURS!r}"]


def test_a_drain_that_was_done_before_is_found_and_not_repeated() -> None:
    slurm = FakeSlurm("n1")
    slurm.set_drain("n1", OURS + " : reboot issued", "root")
    assert asyncio.run(perform(DRAIN, slurm)).outcome is ActionOutcome.DONE
    assert slurm.said == []


@pytest.mark.parametrize("reason", ["fan", "", "Not responding to ping (bob)", f"{OURS} wait for RMA 12"])
def test_another_drain_stays_as_it_is_and_is_not_ours(reason: str) -> None:
    slurm = FakeSlurm("n1")
    slurm.set_drain("n1", reason, "olga")
    before = slurm.views["n1"]
    assert asyncio.run(perform(DRAIN, slurm)).outcome is ActionOutcome.THEIRS
    assert asyncio.run(perform(UNDRAIN, slurm)).outcome is ActionOutcome.THEIRS
    assert (slurm.views["n1"], slurm.said) == (before, [])


@pytest.mark.parametrize("again", [True, False])
def test_only_a_drain_that_was_ours_gets_its_reason_back_after_slurm_switched_the_node_on(again: bool) -> None:
    """22.05 takes the reason of every drained node then, also of one that a person drained."""
    slurm = FakeSlurm("n1")
    slurm.set_drain("n1", "", "root")
    slurm.set_flag("n1", "powering_up", True)
    done = asyncio.run(perform(replace(DRAIN, text="the scheduler took it away" if again else ""), slurm))
    assert done.outcome is (ActionOutcome.DONE if again else ActionOutcome.THEIRS)
    assert slurm.views["n1"].reason == (OURS if again else "")


def test_a_drain_of_ours_that_another_incident_began_is_taken_over_but_not_lifted() -> None:
    slurm = FakeSlurm("n1")
    slurm.set_drain("n1", "nodetriage: gpu_off_bus GPU-1 [incident i-2]", "root")
    assert asyncio.run(perform(UNDRAIN, slurm)).outcome is ActionOutcome.THEIRS
    assert asyncio.run(perform(DRAIN, slurm)).outcome is ActionOutcome.DONE
    assert slurm.views["n1"].reason == OURS


@pytest.mark.parametrize(
    ("reason", "by", "outcome"),
    [
        ("Not responding", "slurm", ActionOutcome.DONE),
        ("Not responding", "bob", ActionOutcome.THEIRS),
        ("Not responding to ping since the PSU swap, ticket 4711 (bob)", "root", ActionOutcome.THEIRS),
        ("bad", "slurm", ActionOutcome.THEIRS),
    ],
)
def test_a_down_node_is_drained_unless_a_person_set_it_down(reason: str, by: str, outcome: ActionOutcome) -> None:
    slurm = FakeSlurm("n1")
    slurm.views["n1"] = replace(slurm.views["n1"], base="down", reason=reason, reason_by=by)
    assert asyncio.run(perform(DRAIN, slurm)).outcome is outcome


@pytest.mark.parametrize(("by", "outcome"), [("slurm", ActionOutcome.DONE), ("bob", ActionOutcome.THEIRS)])
def test_slurms_own_text_over_our_reason_owns_nothing(by: str, outcome: ActionOutcome) -> None:
    """Slurm 24.11 writes it when a node registers with a GPU less."""
    slurm = FakeSlurm("n1")
    slurm.set_drain("n1", "gres/gpu count reported lower than configured (7 < 8)", by)
    assert asyncio.run(perform(DRAIN, slurm)).outcome is outcome
    slurm.set_drain("n1", "gres/gpu count reported lower than configured (7 < 8)", by)
    assert asyncio.run(perform(UNDRAIN, slurm)).outcome is outcome
    assert slurm.views["n1"].draining is (outcome is ActionOutcome.THEIRS)


def test_what_the_scheduler_does_not_show_is_not_done() -> None:
    slurm = Deaf("n1", "n2")
    slurm.place("11", "n1")
    slurm.set_drain("n2", OURS, "root")
    for action in (DRAIN, REQUEUE, replace(UNDRAIN, node="n2")):
        with pytest.raises(SchedulerUnavailable, match="after the"):
            asyncio.run(perform(action, slurm))
    assert slurm.said == ["drain", "requeue", "undrain"]


def test_a_job_is_requeued_once() -> None:
    slurm = FakeSlurm("n1", "n2")
    slurm.place("11", "n1")
    assert asyncio.run(perform(REQUEUE, slurm)).outcome is ActionOutcome.DONE
    slurm.place("11", "n2", restarts=1)  # it runs again, elsewhere
    assert asyncio.run(perform(REQUEUE, slurm)).outcome is ActionOutcome.GONE
    assert slurm.said == ["requeue 11"]
    assert slurm.held["11"].state == "RUNNING"


def test_a_job_that_ended_or_is_unknown_is_left_alone() -> None:
    slurm = FakeSlurm("n1")
    assert asyncio.run(perform(REQUEUE, slurm)).text == "the scheduler no longer knows it"
    slurm.place("11", "n1")
    slurm.end("11")
    assert asyncio.run(perform(REQUEUE, slurm)).text == "it is COMPLETED"
    assert slurm.said == []


def test_a_job_that_slurm_will_not_requeue_is_said() -> None:
    slurm = FakeSlurm("n1")
    slurm.place("11", "n1", batch=False)
    done = asyncio.run(perform(REQUEUE, slurm))
    assert (done.outcome, "Only batch jobs" in done.text) == (ActionOutcome.REFUSED, True)


def test_an_undrain_lifts_our_own_and_finds_it_lifted() -> None:
    slurm = FakeSlurm("n1")
    slurm.set_drain("n1", OURS, "root")
    assert asyncio.run(perform(UNDRAIN, slurm)).outcome is ActionOutcome.DONE
    assert asyncio.run(perform(UNDRAIN, slurm)).outcome is ActionOutcome.GONE
    assert slurm.said == ["undrain n1"]


def test_only_a_waiting_job_is_released() -> None:
    slurm = FakeSlurm("n1")
    release = replace(REQUEUE, kind=ActionKind.RELEASE)
    assert asyncio.run(perform(release, slurm)).outcome is ActionOutcome.GONE
    slurm.place("11", "n1")
    assert asyncio.run(perform(release, slurm)).outcome is ActionOutcome.GONE
    slurm.place("11", state="PENDING")
    assert asyncio.run(perform(release, slurm)).outcome is ActionOutcome.DONE
    assert slurm.said == ["release 11"]


def test_a_job_that_its_node_has_not_let_go_yet_is_released_later_and_not_forgotten() -> None:
    slurm = FakeSlurm("n1")
    release = replace(REQUEUE, kind=ActionKind.RELEASE)
    slurm.place("11", "n1", state="COMPLETING")
    with pytest.raises(SchedulerRefused, match="COMPLETING"):
        asyncio.run(perform(release, slurm))
    slurm.place("11", state="PENDING")
    assert asyncio.run(perform(release, slurm)).outcome is ActionOutcome.DONE


@pytest.mark.parametrize("action", [DRAIN, UNDRAIN, REQUEUE])
def test_a_scheduler_that_is_down_or_does_not_know_the_node_is_an_error(action: Action) -> None:
    slurm = FakeSlurm()
    if action is not REQUEUE:
        with pytest.raises(SchedulerRefused, match="n1"):
            asyncio.run(perform(action, slurm))
    slurm.down = True
    with pytest.raises(SchedulerUnavailable):
        asyncio.run(perform(action, slurm))


WARN = replace(DRAIN, id="w", kind=ActionKind.WARN, job="11")
LEAVES = "n1 takes no job after this one: gpu_off_bus, incident i-1"


async def test_a_requeued_jobs_user_reads_on_the_job_why() -> None:
    slurm = FakeSlurm("n1")
    slurm.place("11", "n1")
    assert (await perform(REQUEUE, slurm)).outcome is ActionOutcome.DONE
    assert slurm.told == ["comment 11 requeued from n1, gpu_off_bus, incident i-1"]


async def test_a_job_whose_node_leaves_after_it_is_told_and_signalled_and_goes_on() -> None:
    slurm = FakeSlurm("n1")
    slurm.place("11", "n1")
    done = await perform(WARN, slurm)
    assert (done.outcome, done.text) == (ActionOutcome.DONE, LEAVES)
    assert slurm.told == [
        f"notify 11 nodetriage: {LEAVES}. Save what you need.",
        f"comment 11 {LEAVES}",
        "signal 11",
    ]
    assert slurm.held["11"].active


async def test_a_job_that_has_ended_or_is_not_a_batch_job_gets_no_signal() -> None:
    slurm = FakeSlurm("n1")
    slurm.place("11", "n1", batch=False)
    assert (await perform(WARN, slurm)).outcome is ActionOutcome.DONE
    assert "signal 11" not in slurm.told
    slurm.told.clear()
    slurm.end("11")
    assert (await perform(WARN, slurm)).outcome is ActionOutcome.REFUSED
    assert slurm.told == []


class Silent(FakeSlurm):
    """Requeues, and answers nothing about comments and notices."""

    async def comment_job(self, job: str, text: str) -> None:
        await asyncio.Event().wait()

    async def notify_job(self, job: str, text: str) -> None:
        raise SchedulerUnavailable("scontrol notify: no answer after 10 s")


async def test_what_a_job_is_told_holds_up_no_removal_and_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodetriage.controller.engine.actions.NOTICE_LIMIT_S", 0.05)
    slurm = Silent("n1")
    slurm.place("11", "n1")
    warned = await perform(WARN, slurm)
    assert (warned.outcome, warned.text) == (ActionOutcome.REFUSED, "scontrol notify: no answer after 10 s")
    assert (await perform(REQUEUE, slurm)).outcome is ActionOutcome.DONE
