"""Heat and throttling: gpu_thermal and gpu_throttle."""

from dataclasses import replace
from typing import Any

import pytest

from nodetriage.checks.gpu import gpu_thermal, gpu_throttle
from nodetriage.checks.gpu.gpu_thermal import Heat
from nodetriage.checks.gpu.gpu_throttle import Clocks
from nodetriage.checks.model import Gpu, Severity

COOL = Heat("0000:1b:00.0", "GPU-1", 40, 50, 45)
IDLE, POWER_CAP, BRAKE, THERMAL = 0x1, 0x4, 0x88, 0x48


def rounds(module: Any, samples: list[Any], policy: Any = None) -> list[list[str]]:
    """The faults found in each of these rounds."""
    memory, said = None, []
    for sample in samples:
        said.append([f.fault for f in module.judge((sample,), memory, policy or module.Policy())])
        memory = module.next_state(memory, (sample,))
    return said


def test_one_hot_sample_is_no_fault_and_three_in_a_row_are() -> None:
    hot = replace(COOL, margin_c=2)

    assert rounds(gpu_thermal, [hot, hot, COOL, hot, hot, hot, COOL]) == [[], [], [], [], [], ["gpu_hot"], []]


def test_a_high_temperature_far_from_the_board_s_limit_is_no_fault() -> None:
    assert rounds(gpu_thermal, [replace(COOL, temperature_c=91, margin_c=14)] * 5)[-1] == []


@pytest.mark.parametrize(
    ("facts", "margin_c", "memory_margin_c"),
    [
        ({"temperature_c": 80, "temperature_slowdown_c": 87}, 7, None),
        ({"temperature_c": 80, "temperature_slowdown_c": 87, "temperature_margin_c": -3}, -3, None),
        ({"memory_temperature_c": 94, "temperature_memory_max_c": 95}, None, 1),
        ({"temperature_c": 80, "temperature_slowdown_c": 87, "memory_temperature_c": 0}, 7, None),
    ],
)
def test_the_margin_is_the_driver_s_own_or_the_distance_to_the_limit(
    facts: dict[str, int], margin_c: int | None, memory_margin_c: int | None
) -> None:
    heat = gpu_thermal._heat(Gpu(0, "0000:1b:00.0", "GPU-1", facts=facts))

    assert heat
    assert (heat.margin_c, heat.memory_margin_c) == (margin_c, memory_margin_c)


def test_a_gpu_that_tells_no_limit_is_not_judged() -> None:
    assert gpu_thermal._heat(Gpu(0, "0000:1b:00.0", "GPU-1", facts={"temperature_c": 99})) is None


def test_hot_memory_is_found_too() -> None:
    found = rounds(gpu_thermal, [replace(COOL, memory_margin_c=0)] * 3, gpu_thermal.Policy(samples=2))

    assert found == [[], ["gpu_hot"], ["gpu_hot"]]


def clocks(reasons: int, at_s: float = 0.0, **times_ns: float) -> Clocks:
    return Clocks("0000:1b:00.0", "GPU-1", at_s, reasons, {name: int(time) for name, time in times_ns.items()})


def test_a_power_cap_under_full_load_is_no_fault_however_long_it_lasts() -> None:
    assert rounds(gpu_throttle, [clocks(POWER_CAP)] * 10 + [clocks(IDLE)] * 3) == [[]] * 13


def test_a_power_brake_must_last_for_several_samples() -> None:
    said = rounds(gpu_throttle, [clocks(r) for r in (BRAKE, BRAKE, IDLE, BRAKE, BRAKE, THERMAL, POWER_CAP)])

    assert said == [[], [], [], [], [], ["gpu_throttled"], []]


def test_a_power_brake_in_most_samples_is_found_though_never_three_in_a_row() -> None:
    most = rounds(gpu_throttle, [clocks(r) for r in (BRAKE, BRAKE, IDLE) * 4])
    half = rounds(gpu_throttle, [clocks(r) for r in (BRAKE, IDLE) * 8])

    assert most[-2] == ["gpu_throttled"]
    assert half == [[]] * 16


def test_the_finding_names_the_hardware_s_reasons_and_is_a_warning() -> None:
    memory = (replace(clocks(BRAKE), slow=(True,) * 5),)
    (finding,) = gpu_throttle.judge((clocks(BRAKE | POWER_CAP),), memory, gpu_throttle.Policy())

    assert finding.severity is Severity.WARNING
    assert (finding.evidence["reasons"], finding.evidence["looks"]) == ("hw_slowdown,hw_power_brake", 6)


def test_software_that_slows_a_hot_gpu_is_found_by_samples_too() -> None:
    assert rounds(gpu_throttle, [clocks(0x20)] * 3) == [[], [], ["gpu_throttled"]]


def test_the_driver_s_own_times_decide_where_it_counts_them_and_not_the_samples() -> None:
    slow = [clocks(0, at_s=300.0 * n, sw_thermal_slowdown=31e9 * n, hw_power_brake=0) for n in range(3)]
    seldom = [clocks(THERMAL, at_s=300.0 * n, sw_thermal_slowdown=29e9 * n, hw_power_brake=0) for n in range(5)]

    assert rounds(gpu_throttle, slow) == [[], ["gpu_throttled"], ["gpu_throttled"]]
    assert rounds(gpu_throttle, seldom) == [[]] * 5


def test_old_slow_times_at_the_first_look_and_a_reset_of_the_counters_are_no_news() -> None:
    hour_ns = 3600e9

    assert rounds(gpu_throttle, [clocks(0, 0.0, thermal=hour_ns), clocks(0, 300.0, thermal=hour_ns)]) == [[], []]
    assert rounds(gpu_throttle, [clocks(0, 0.0, thermal=hour_ns), clocks(0, 300.0, thermal=2e9)]) == [[], []]


def test_a_slow_gpu_is_not_well_again_because_it_idles() -> None:
    readings = [
        clocks(0),
        clocks(0, 300.0, thermal=0),
        clocks(0, 600.0, thermal=60e9),
        clocks(IDLE, 900.0, thermal=60e9),
    ]
    idle = [*readings, clocks(IDLE, 1200.0, thermal=60e9)]
    worked = [*idle, clocks(0, 1500.0, thermal=60e9), clocks(0, 1800.0, thermal=60e9)]

    assert rounds(gpu_throttle, worked)[2:] == [["gpu_throttled"]] * 4 + [[]]
