"""PCIe replays."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.gpu.gpu_pcie import Policy, Replays, judge, next_state
from nodetriage.checks.model import Gpu, Severity
from nodetriage.checks.rules.gpu import pcie_counts

GEN5 = Replays("0000:1b:00.0", "GPU-1", 1000.0, 0, 5, 16)  # may replay 30.72 times a minute


def found(now: Replays, before: Replays | None, policy: Policy | None = None) -> list[str]:
    return [f.fault for f in judge((now,), (before,) if before else None, policy or Policy())]


@pytest.mark.parametrize(
    ("generation", "lanes", "per_min", "fault"),
    [(5, 16, 30, False), (5, 16, 31, True), (3, 16, 8, True), (3, 16, 7, False), (4, 8, 8, True), (4, 8, 7, False)],
)
def test_how_many_replays_are_too_many_depends_on_generation_and_lanes(
    generation: int, lanes: int, per_min: int, fault: bool
) -> None:
    old = replace(GEN5, generation=generation, lanes=lanes)
    now = replace(old, at_s=1000.0 + 600, replays=per_min * 10)

    assert found(now, old) == (["gpu_pcie_replays"] if fault else [])


def test_an_idle_link_at_gen1_is_judged_by_what_it_can() -> None:
    """The limit is that of pcie_generation_max: read() never sees the current generation."""
    assert found(replace(GEN5, at_s=1300.0, replays=12), GEN5) == []


def test_a_few_replays_in_a_short_time_are_no_rate() -> None:
    assert found(replace(GEN5, at_s=1000.5, replays=9), GEN5) == []


def test_a_counter_that_was_reset_and_a_clock_that_stood_still_say_nothing() -> None:
    assert found(replace(GEN5, at_s=1300.0, replays=3), replace(GEN5, replays=900_000)) == []
    assert found(replace(GEN5, replays=900_000), GEN5) == []
    assert found(replace(GEN5, replays=900_000), None) == []


def looks(*readings: Replays) -> list[list[str]]:
    memory, said = None, []
    for reading in readings:
        said.append([f.fault for f in judge((reading,), memory, Policy())])
        memory = next_state(memory, (reading,))
    return said


def test_a_storm_of_replays_under_load_is_over_at_a_look_with_load_and_without_it() -> None:
    idle = [replace(GEN5, at_s=at_s, replays=9_000, idle=True) for at_s in (1600.0, 1900.0)]
    work = [replace(GEN5, at_s=at_s, replays=9_000) for at_s in (2200.0, 2500.0)]
    storm = replace(GEN5, at_s=1300.0, replays=9_000)

    assert looks(GEN5, storm, *idle, *work) == [[], *[["gpu_pcie_replays"]] * 4, []]


def errors(at_s: float, **counts: int) -> Replays:
    return replace(GEN5, at_s=at_s, errors=counts)


def test_where_aer_is_hidden_the_gpu_s_own_counts_of_errors_are_judged() -> None:
    old = errors(1000.0, lcrc_errors=5, bad_tlps=0, recoveries=0)

    assert found(errors(1300.0, lcrc_errors=14, bad_tlps=9, recoveries=0), old) == ["gpu_pcie_errors"]
    assert found(errors(1300.0, lcrc_errors=13, bad_tlps=8, recoveries=0), old) == []
    assert found(errors(1300.0, lcrc_errors=5, bad_tlps=0, recoveries=9_000), old) == []  # changes of speed


@pytest.mark.parametrize(("kind", "severity"), [("nonfatal", Severity.MAJOR), ("fatal", Severity.CRITICAL)])
def test_an_uncorrected_error_is_one_finding_whatever_comes_with_it(kind: str, severity: Severity) -> None:
    old, now = errors(1000.0, nonfatal=2, fatal=0, correctable=0), {"nonfatal": 2, "fatal": 0, "correctable": 900}

    (finding,) = judge((errors(1300.0, **{**now, kind: 3}),), (old,), Policy())
    assert (finding.fault, finding.severity) == ("gpu_pcie_uncorrected", severity)


def test_where_the_machine_shows_aer_the_gpu_s_own_counts_are_left_to_pcie_aer(hosts: Path, tmp_path: Path) -> None:
    gpu = Gpu(0, "0000:1b:00.0", "GPU-1", facts={"pcie_lcrc_errors": 4, "pcie_nonfatal": 0})

    assert pcie_counts.read(Host(tmp_path), gpu) == {"lcrc_errors": 4, "nonfatal": 0}
    assert pcie_counts.read(Host(hosts / "dgx-h100"), gpu) == {}
