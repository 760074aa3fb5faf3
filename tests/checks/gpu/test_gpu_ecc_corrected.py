"""Corrected memory errors: by their rate, and judged when the GPU had work."""

from dataclasses import replace

import pytest

from nodetriage.checks.gpu.gpu_ecc_corrected import Corrected, Policy, judge, next_state
from nodetriage.checks.model import Severity

CLEAN = Corrected("0000:1b:00.0", "GPU-1", 1000.0, 0, idle=False)
RATE, FLOOD = ("gpu_ecc_corrected_rate", Severity.WARNING), ("gpu_ecc_corrected_flood", Severity.MAJOR)


def look(after_s: float, count: int, idle: bool = False) -> Corrected:
    return replace(CLEAN, at_s=CLEAN.at_s + after_s, count=count, idle=idle)


def looks(*readings: Corrected) -> list[list[tuple[str, Severity]]]:
    """What each of these looks finds."""
    memory, found = None, []
    for reading in readings:
        found.append([(f.fault, f.severity) for f in judge((reading,), memory, Policy())])
        memory = next_state(memory, (reading,))
    return found


@pytest.mark.parametrize(
    ("count", "after_s", "expected"),
    [
        (84, 300, [RATE]),
        (83, 300, []),
        (1, 0.5, []),
        (2000, 7200, []),
        (2001, 7200, [RATE]),
        (17_700 * 300, 300, [FLOOD]),
        (99 * 300, 300, [RATE]),
    ],
)
def test_corrected_errors_count_by_their_rate_and_a_single_one_is_none(
    count: int, after_s: float, expected: list
) -> None:
    assert looks(CLEAN, look(after_s, count))[-1] == expected


def test_many_corrected_errors_of_long_ago_are_no_rate() -> None:
    assert looks(look(0, 10_000_000), look(300, 10_000_000)) == [[], []]


def test_a_storm_seen_under_load_is_not_over_when_the_gpu_idles() -> None:
    storm = [look(0, 0), look(300, 5000)]

    assert looks(*storm, look(600, 5000, idle=True), look(900, 5000, idle=True)) == [[], [RATE], [RATE], [RATE]]


def test_a_look_with_load_and_without_the_storm_ends_it() -> None:
    idle = [look(0, 0), look(300, 5000, idle=True), look(600, 5000, idle=True)]

    assert looks(*idle, look(900, 5001))[-1] == [RATE]  # the work may have begun a moment ago
    assert looks(*idle, look(900, 5001), look(1200, 5001))[-1] == []


def test_a_reset_ends_it_although_the_gpu_idles() -> None:
    assert looks(look(0, 9), look(300, 5000, idle=True), look(600, 0, idle=True))[-1] == []
