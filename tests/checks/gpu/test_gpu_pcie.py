"""PCIe replays."""

from dataclasses import replace

import pytest

from nodetriage.checks.gpu.gpu_pcie import Policy, Replays, judge

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
