"""Memory errors as NVML counts them."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nodetriage.checks.gpu.gpu_ecc import Errors, Policy, clears, judge, next_state
from nodetriage.checks.model import Confidence, Severity
from nodetriage.checks.rules.gpu.ecc_lines import EccLine

CLEAN = Errors("0000:1b:00.0", "GPU-1", 1000.0, True, 0, 0, False)
CRITICAL, MAJOR, WARNING = Severity.CRITICAL, Severity.MAJOR, Severity.WARNING


def found(now: Errors, before: Errors | None, policy: Policy | None = None) -> dict[str, Severity]:
    earlier = (before,) if before else None
    return {f.fault: f.severity for f in judge((now,), earlier, policy or Policy())}


def later(**fields: object) -> Errors:
    return replace(CLEAN, at_s=1300.0, **fields)  # type: ignore[arg-type]


def test_an_uncorrectable_error_since_the_last_look_is_high() -> None:
    assert found(later(uncorrected=1), CLEAN) == {"gpu_ecc_uncorrected": CRITICAL}


def test_uncorrectable_errors_from_before_the_first_look_are_milder_and_reported_once() -> None:
    old = replace(CLEAN, uncorrected=3)

    assert found(old, None) == {"gpu_ecc_uncorrected": MAJOR}
    assert found(replace(old, at_s=1300.0), old) == {}


def test_a_gpu_reset_zeroes_the_counters_and_what_they_show_then_is_new() -> None:
    worn = replace(CLEAN, uncorrected=7)

    assert found(later(uncorrected=0), worn) == {}
    assert found(later(uncorrected=1), worn) == {"gpu_ecc_uncorrected": CRITICAL}


def test_a_reset_takes_back_what_was_held() -> None:
    worn = replace(CLEAN, uncorrected=7)

    assert list(clears((later(),), (worn,))) == [(CLEAN.pci, "gpu_ecc_uncorrected")]
    assert list(clears((later(uncorrected=7),), (worn,))) == []
    assert list(clears((later(uncorrected=None),), (worn,))) == []


def test_counters_belong_to_a_uuid_and_not_to_a_slot() -> None:
    other_board = replace(CLEAN, uuid="GPU-2", at_s=1300.0, uncorrected=5)

    assert found(other_board, CLEAN) == {"gpu_ecc_uncorrected": MAJOR}  # its first look


def test_sram_errors_are_told_apart_and_the_threshold_flag_is_high_for_as_long_as_it_is_set() -> None:
    (finding,) = judge((later(uncorrected=2, sram_uncorrected=2),), (CLEAN,), Policy())

    assert finding.evidence["memory"] == "SRAM"
    flagged = later(sram_threshold=True)
    assert found(flagged, flagged) == {"gpu_sram_threshold": CRITICAL}


def test_ecc_that_is_off_is_a_fault_only_where_it_is_expected() -> None:
    off = replace(CLEAN, enabled=False, uncorrected=None, sram_uncorrected=None, sram_threshold=None)

    assert found(off, None) == {}
    assert found(off, None, Policy(expect_ecc=True)) == {"gpu_ecc_off": MAJOR}


def test_a_gpu_that_is_silent_for_a_round_keeps_its_counts() -> None:
    other = replace(CLEAN, uuid="GPU-2", pci="0000:43:00.0")
    kept = next_state((CLEAN, other), (replace(other, at_s=1300.0),))

    assert {gpu.uuid for gpu in kept} == {"GPU-1", "GPU-2"}
    assert [f.fault for f in judge((later(uncorrected=1),), kept, Policy())] == ["gpu_ecc_uncorrected"]


counts = st.one_of(st.none(), st.integers(0, 1 << 64))
errors = st.builds(
    Errors,
    st.just("0000:1b:00.0"),
    st.sampled_from(("GPU-1", "GPU-2")),
    st.floats(0, 1e9),
    st.one_of(st.none(), st.booleans()),
    counts,
    counts,
    st.one_of(st.none(), st.booleans()),
)


@given(st.lists(st.lists(errors, max_size=3).map(tuple), min_size=2, max_size=5))
def test_whatever_the_counters_do_judging_never_fails_and_equal_counts_are_no_news(history: list[tuple]) -> None:
    memory = None
    for now in history:
        list(judge(now, memory, Policy()))
        memory = next_state(memory, now)
    again = [f.fault for f in judge(memory, memory, Policy())]
    assert set(again) <= {"gpu_sram_threshold"}


def test_the_rule_of_the_xid_decides_and_the_count_confirms_it() -> None:
    contained = EccLine(1290.0, 94, MAJOR)
    (finding,) = judge((later(uncorrected=1, lines=(contained,)),), (CLEAN,), Policy())

    assert (finding.severity, finding.evidence["xid"]) == (MAJOR, 94)
    assert finding.confidence is Confidence.WITNESSED


def test_a_graver_line_of_the_same_error_makes_it_graver() -> None:
    lines = (EccLine(1290.0, 94, MAJOR), EccLine(1290.1, 48, CRITICAL))

    assert found(later(uncorrected=1, lines=lines), CLEAN) == {"gpu_ecc_uncorrected": CRITICAL}


def test_a_contained_error_of_an_hour_ago_does_not_soften_a_new_one() -> None:
    old = replace(CLEAN, at_s=5000.0, uncorrected=1, lines=(EccLine(1290.0, 94, MAJOR),))

    assert found(replace(old, at_s=5300.0, uncorrected=2), old) == {"gpu_ecc_uncorrected": CRITICAL}


def test_a_line_that_came_in_the_run_before_the_count_is_remembered() -> None:
    woken = later(lines=(EccLine(1299.9, 94, MAJOR),))
    memory = next_state((CLEAN,), (woken,))

    assert [f.severity for f in judge((replace(CLEAN, at_s=1301.0, uncorrected=1),), memory, Policy())] == [MAJOR]
