"""The links between GPU and Grace CPU."""

from dataclasses import replace

from nodetriage.checks.gpu.gpu_c2c import C2c, Policy, judge

WELL = C2c("0008:01:00.0", "GPU-1", 1000.0, 10, 0, 44_712, 44_712, 0, 3)


def found(now: C2c, before: C2c | None = None) -> list[tuple[str, str]]:
    return [(f.fault, f.severity.name) for f in judge((now,), (before,) if before else None, Policy())]


def later(**fields: int) -> C2c:
    return replace(WELL, at_s=1300.0, **fields)


def test_links_that_are_up_and_alike_are_well() -> None:
    assert found(WELL) == found(later(replays=80), WELL) == []


def test_a_link_that_is_down_or_slower_than_the_others_is_found_once() -> None:
    assert found(later(down=1, mbps_least=100), WELL) == [("gpu_c2c_down", "MAJOR")]
    assert found(later(mbps_least=22_356), WELL) == [("gpu_c2c_down", "MAJOR")]


def test_errors_since_the_last_look_are_found_and_those_of_before_the_first_are_not() -> None:
    assert found(later(errors=1), WELL) == [("gpu_c2c_errors", "MAJOR")]
    assert found(replace(WELL, errors=9)) == []


def test_replays_count_by_their_rate() -> None:
    assert found(later(replays=3 + 84), WELL) == [("gpu_c2c_replays", "WARNING")]
    assert found(later(replays=3 + 83), WELL) == []


def test_what_the_driver_does_not_report_is_no_fault() -> None:
    silent = C2c("0008:01:00.0", "GPU-1", 1000.0, 10, None, None, None, 0, None)

    assert found(replace(silent, at_s=1300.0), silent) == []
