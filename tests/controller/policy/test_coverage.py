"""Who should report is known from Slurm, agents and settings, and survives a restart."""

from datetime import UTC, datetime, timedelta
from typing import Any

from nodetriage.controller.policy.agents.coverage import FORGOTTEN_AFTER, Known, Presence, World, counts, survey
from nodetriage.controller.scheduler import NodeView

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def listed(*names: str, **flags: str) -> dict[str, NodeView]:
    return {name: NodeView(name, "idle", frozenset(flags.get(name, "").split())) for name in names}


def presence(world: World, before: dict[str, Known] | None = None) -> dict[str, str]:
    return {name: str(known.presence) for name, known in survey(before or {}, world, NOW).items()}


def world(views: dict[str, NodeView] | None, **more: Any) -> World:
    return World(views, **more)


def test_known_are_the_nodes_of_slurm_of_agents_and_of_the_settings() -> None:
    assert presence(world(listed("n1", "n2"), spoken={"n1", "x1"}, silent={"x1"}, expected={"n3"})) == {
        "n1": "heard",
        "n2": "never",
        "n3": "never",
        "x1": "decommissioned",
    }


def test_a_node_is_silent_only_after_its_agent_reported_once() -> None:
    assert presence(world(listed("n1", "n2"), spoken={"n1"}, silent={"n1"})) == {"n1": "silent", "n2": "never"}


def test_a_refused_agent_is_refused_until_it_reports_or_its_node_is_gone() -> None:
    refused = survey({}, world(listed("n1"), refused={"n1": "version 9 does not match"}), NOW)
    assert (refused["n1"].presence, refused["n1"].why) == (Presence.REFUSED, "version 9 does not match")

    assert presence(world(listed("n1")), refused) == {"n1": "refused"}  # after a restart
    assert presence(world(listed("n1"), spoken={"n1"}), refused) == {"n1": "heard"}
    assert presence(world(listed("n2")), refused)["n1"] == "decommissioned"


def test_an_operators_word_that_a_node_is_retired_stands_whatever_its_agent_does() -> None:
    assert presence(world(listed("n1"), spoken={"n1"}, retired={"n1"})) == {"n1": "retired"}


def test_a_node_that_is_switched_off_is_not_missing() -> None:
    views = listed("n1", "n2", n1="powered_down", n2="reboot_issued")
    assert presence(world(views, spoken={"n1", "n2"}, silent={"n1", "n2"})) == {"n1": "asleep", "n2": "asleep"}


def test_before_the_first_reading_of_slurm_nothing_is_decommissioned() -> None:
    before = survey({}, world(listed("n1", "n2"), spoken={"n1"}, silent={"n1"}), NOW)
    assert presence(world(None, spoken={"n1"}, silent={"n1"}), before) == {"n1": "silent", "n2": "never"}
    assert presence(world({}, spoken={"n1"}, silent={"n1"}), before) == {"n1": "silent", "n2": "never"}


def test_a_future_node_is_a_line_in_slurm_conf_and_should_not_report() -> None:
    assert presence(world({"n1": NodeView("n1", "future")})) == {}


def test_since_is_when_the_presence_began_and_an_entry_without_change_is_the_same_object() -> None:
    first = survey({}, world(listed("n1")), NOW)
    later = survey(first, world(listed("n1")), NOW + timedelta(hours=1))
    assert later["n1"] is first["n1"]

    heard = survey(later, world(listed("n1"), spoken={"n1"}), NOW + timedelta(hours=2))
    assert (heard["n1"].presence, heard["n1"].since) == (Presence.HEARD, NOW + timedelta(hours=2))


def test_slurms_state_and_reason_are_kept_with_who_set_it() -> None:
    view = NodeView("n1", "down", frozenset({"drain"}), "gres/gpu count too low (7 < 8)", "slurm")
    known = survey({}, world({"n1": view}), NOW)["n1"]
    assert (known.slurm, known.reason, known.reason_by) == ("down+drain", view.reason, "slurm")


def test_a_node_that_nobody_names_any_more_is_forgotten_in_the_end() -> None:
    gone = survey({}, world(listed("n2"), spoken={"n1"}, silent={"n1"}), NOW)
    assert survey(gone, world(listed("n2")), NOW + FORGOTTEN_AFTER + timedelta(days=1)).keys() == {"n2"}


def test_counts_name_every_presence() -> None:
    found = counts(survey({}, world(listed("n1", "n2"), spoken={"n1"}), NOW))
    assert (found[Presence.HEARD], found[Presence.NEVER], found[Presence.SILENT]) == (1, 1, 0)
