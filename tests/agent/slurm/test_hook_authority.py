"""For which findings a hook refuses a job: by the controller's word, and without one."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.core.verdict import OpenFinding
from nodetriage.agent.settings.config import HookSettings
from nodetriage.agent.slurm.hook_authority import (
    Authority,
    NamedFinding,
    Refusals,
    Ruling,
    Standing,
    is_own_hardware,
    rule,
)
from nodetriage.agent.slurm.hook_word import MOST, authority_from
from nodetriage.agent.slurm.known import Grave
from nodetriage.checks.model import Severity
from nodetriage.checks.model.faults import faults
from nodetriage.v1 import health_pb2 as pb

NOW_S = 1000.0
WORD = Authority(1, "enforce", 300, "ctl:1, tls", "boot", NOW_S - 10, 0, shared_faults=("mount_*",))
OFF_BUS = ("gpu_off_bus", "0000:3a:00.0")
MOUNT = ("mount_missing", "/data")


def grave(fault: str = "gpu_off_bus", component: str = "0000:3a:00.0", age_s: float = 1.0) -> Grave:
    return Grave("a_check", OpenFinding(component, fault, Severity.CRITICAL, {}, 0, NOW_S, 0), age_s)


def standing(word: Authority | None = WORD, **more: Any) -> Standing:
    usual = {
        "alone": False,
        "word": word,
        "refusals": Refusals("boot"),
        "settings": HookSettings(),
        "boot_id": "boot",
        "now_s": NOW_S,
    }
    return Standing(**{**usual, **more})


def granting(fault: str, component: str, **more: Any) -> Authority:
    return dataclasses.replace(WORD, granted=(NamedFinding(component, fault, "261201-1"),), **more)


def stale(word: Authority = WORD) -> Authority:
    return dataclasses.replace(word, received_s=NOW_S - 301)


def test_a_fresh_word_refuses_what_it_grants_and_names_the_incident() -> None:
    assert rule(grave(), standing(granting(*OFF_BUS))) == Ruling(True, False, "", "261201-1")


@pytest.mark.parametrize("fault", ["gpu_off_bus", "mount_missing"])
def test_a_fresh_word_refuses_nothing_else(fault: str) -> None:
    assert rule(grave(fault), standing()).why == "the controller has granted no refusal for it"


def test_what_the_controller_holds_is_let_in_with_its_reason() -> None:
    word = dataclasses.replace(WORD, held=(NamedFinding("0000:3a:00.0", "gpu_off_bus", why="3 nodes already"),))
    assert rule(grave(), standing(word)) == Ruling(False, False, "3 nodes already")


def test_a_shared_fault_refuses_only_by_a_fresh_grant() -> None:
    granted = granting(*MOUNT)
    assert rule(grave(*MOUNT), standing(granted)).refuse
    assert not rule(grave(*MOUNT), standing(stale(granted))).refuse


@pytest.mark.parametrize(
    "word", [stale(), dataclasses.replace(WORD, boot_id="another")], ids=["too old", "of another boot"]
)
def test_without_a_fresh_word_only_the_nodes_own_hardware_refuses(word: Authority) -> None:
    assert rule(grave(), standing(word)).refuse
    assert not rule(grave("gpu_driver_unusable"), standing(word)).refuse
    assert not rule(grave("ib_link_down"), standing(word)).refuse
    assert not rule(grave("a_site_fault"), standing(word)).refuse


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"mode": "observe"}, "observe"),
        ({"mode": "recommend"}, "recommend"),
        ({"breaker_why": "the breaker is open (x)"}, "the breaker is open (x)"),
        ({"excluded_faults": ("gpu_off_bus",)}, "excludes"),
        ({"excluded_checks": ("a_check",)}, "excludes"),
        ({"incident_faults": ("gpu_off_bus",)}, "fleet incident"),
        ({"shared_faults": ("gpu_*",)}, "own hardware"),
    ],
)
def test_what_the_last_word_kept_back_stays_kept_back_when_it_is_old(changed: dict[str, Any], why: str) -> None:
    ruling = rule(grave(), standing(dataclasses.replace(stale(), **changed)))
    assert not ruling.refuse
    assert why in ruling.why


def test_an_open_breaker_holds_even_what_was_granted() -> None:
    assert not rule(grave(), standing(granting(*OFF_BUS, breaker_why="open"))).refuse


def test_a_node_whose_controller_never_said_anything_only_observes() -> None:
    ruling = rule(grave(), standing(None, settings=HookSettings(mode="enforce")))
    assert (ruling.refuse, ruling.would) == (False, True)


def test_an_agent_without_a_controller_goes_by_its_own_settings() -> None:
    alone = standing(None, alone=True, settings=HookSettings(mode="enforce"))
    assert rule(grave(), alone).refuse
    assert not rule(grave(*MOUNT), alone).refuse
    assert rule(grave(), standing(None, alone=True)).would
    assert not rule(grave(*MOUNT), standing(None, alone=True)).would


def test_a_fault_of_a_sites_own_check_refuses_where_the_site_trusts_it() -> None:
    settings = HookSettings(mode="enforce", trusted=("my_fault", "mount_mine"))
    alone = standing(None, alone=True, settings=settings)
    assert rule(grave("my_fault"), alone).refuse
    assert not rule(grave("mount_mine"), alone).refuse


@pytest.mark.parametrize("word", [granting(*OFF_BUS), stale()])
def test_an_old_finding_refuses_no_job(word: Authority) -> None:
    assert rule(grave(age_s=599), standing(word)).refuse
    assert rule(grave(age_s=601), standing(word)).why == "it was last seen 601 s ago"


@pytest.mark.parametrize("word", [granting(*OFF_BUS), stale()])
def test_a_fault_refuses_once_in_a_boot_whatever_the_word(word: Authority) -> None:
    refusals = Refusals("boot").with_one(grave(), NOW_S - 60)
    assert rule(grave(), standing(word, refusals=refusals)).why == "a job was refused for it in this boot already"
    assert rule(grave(component="0000:3b:00.0"), standing(stale(), refusals=refusals)).refuse


def test_no_fault_whose_cause_may_be_elsewhere_is_a_nodes_own_hardware() -> None:
    own = {fault for fault in faults() if is_own_hardware(fault, HookSettings())}
    assert {"gpu_off_bus", "mem_uncorrected", "disk_dead", "pcie_fatal"} <= own
    assert not {f for f in own if f.startswith(("mount_", "ib_", "eth_", "clock_", "service_", "kernel_log_"))}


words = st.builds(
    Authority,
    version=st.just(1),
    mode=st.sampled_from(["observe", "recommend", "enforce"]),
    valid_s=st.floats(0, 3600),
    brought_by=st.just("x"),
    boot_id=st.sampled_from(["boot", "another"]),
    received_s=st.floats(0, NOW_S),
    received_unix_s=st.just(0),
    breaker_why=st.sampled_from(["", "open"]),
    granted=st.sampled_from([(), (NamedFinding("0000:3a:00.0", "gpu_off_bus"),), (NamedFinding("/data", MOUNT[0]),)]),
)


@given(words, st.sampled_from([OFF_BUS, MOUNT, ("gpu_driver_unusable", "gpu")]), st.floats(0, 2000))
def test_whatever_the_word_a_refusal_is_enforced_fresh_and_granted_or_the_nodes_own(
    word: Authority, named: tuple[str, str], age_s: float
) -> None:
    ruling = rule(grave(*named, age_s=age_s), standing(word))
    assert not (ruling.refuse and ruling.would)
    if ruling.refuse:
        heard = word.is_fresh("boot", NOW_S)
        granted = (named[1], named[0]) in {(f.component, f.fault) for f in word.granted}
        assert word.mode == "enforce"
        assert not word.breaker_why
        assert age_s <= HookSettings().fresh_s
        assert granted if heard else is_own_hardware(named[0], HookSettings())


def test_a_word_from_the_wire_is_bounded_and_an_unknown_mode_observes() -> None:
    word = pb.HookAuthority(version=3, valid_ms=2**32 - 1, mode=9, breaker_why="x" * 9999)  # type: ignore[arg-type]
    word.excluded_faults.extend(["y" * 9999] * (MOST + 5))
    found = authority_from(word, "ctl", "boot", NOW_S)
    assert (found.mode, found.valid_s, len(found.breaker_why)) == ("observe", 3600, 300)
    assert (len(found.excluded_faults), len(found.excluded_faults[0])) == (MOST, 300)
