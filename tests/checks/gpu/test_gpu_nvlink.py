"""NVLinks and the fabric."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.checks.gpu.gpu_nvlink import Policy, growth, judge, next_state
from nodetriage.checks.model import Gpu, NvLink, Severity
from nodetriage.checks.readers.nvlink import Links, links_of, unhealthy

ALL_UP = Links("0000:1b:00.0", "GPU-1", 1000.0, False, tuple(range(18)), (), ever_up=tuple(range(18)))
SWITCHED = Policy(expected_links=18, expect_fabric=True)
READY = {"fabric_state": 3, "fabric_status": 0, "fabric_clique": 1, "fabric_health": 0x1AA}


def found(now: Links, before: Links | None = None, policy: Policy | None = None) -> dict[str, Severity]:
    earlier = (before,) if before else None
    return {f.fault: f.severity for f in judge((now,), earlier, policy or Policy())}


def fabric(policy: Policy = SWITCHED, **fields: int) -> dict[str, Severity]:
    return found(replace(ALL_UP, **{**READY, **fields}), None, policy)


def test_twelve_unconnected_links_of_an_unbridged_card_are_no_fault() -> None:
    card = replace(ALL_UP, up=(), down=tuple(range(12)), ever_up=())

    assert found(card) == {}
    assert found(replace(card, at_s=9000.0), card) == {}


def test_a_bridged_pair_is_missed_only_where_it_was_connected() -> None:
    bridged = replace(ALL_UP, up=(0, 1, 2), down=tuple(range(3, 12)), ever_up=(0, 1, 2))

    assert found(replace(bridged, at_s=9000.0), bridged) == {}
    assert found(replace(bridged, up=(0, 1), down=tuple(range(2, 12))), bridged) == {
        "gpu_nvlink_down": Severity.CRITICAL
    }


def test_one_gpu_with_all_its_links_down_is_found_however_well_the_others_are() -> None:
    dead = replace(ALL_UP, uuid="GPU-2", pci="0000:43:00.0", up=(), down=tuple(range(18)), ever_up=())

    (finding,) = judge((ALL_UP, dead), None, Policy(expected_links=18))
    assert (finding.component, finding.evidence["up"], finding.evidence["expected"]) == ("0000:43:00.0", 0, 18)


def test_links_that_mig_takes_down_are_no_fault() -> None:
    assert found(replace(ALL_UP, mig=True, up=(), down=tuple(range(18))), ALL_UP, SWITCHED) == {}


def test_a_link_that_was_up_since_boot_is_missed_after_a_restart_and_a_silent_round_too() -> None:
    other = replace(ALL_UP, uuid="GPU-2")
    kept = next_state(next_state(None, (ALL_UP, other)), (other,))
    down = replace(ALL_UP, up=tuple(range(17)), down=(17,), ever_up=())

    assert [f.evidence["links"] for f in judge((down,), kept, Policy())] == ["17"]


@pytest.mark.parametrize("status", [29, 1, 999])
def test_a_fabric_that_completed_with_an_error_is_not_taken_for_ready(status: int) -> None:
    assert fabric() == {}
    assert fabric(fabric_status=status) == {"gpu_fabric_incomplete": Severity.CRITICAL}


@pytest.mark.parametrize(
    ("state", "at_s", "expected"),
    [(2, 100.0, False), (2, 700.0, True), (1, 100.0, False), (1, 700.0, True), (0, 700.0, False)],
)
def test_a_fabric_has_time_to_come_up_after_boot_and_then_none(state: int, at_s: float, expected: bool) -> None:
    now = replace(ALL_UP, at_s=at_s, **{**READY, "fabric_state": state})

    assert bool(found(now, None, SWITCHED)) is expected


def test_where_no_fabric_is_expected_one_that_never_started_is_no_fault() -> None:
    assert fabric(Policy(), fabric_state=1) == {}


def test_a_driver_that_knows_no_fabric_is_not_blamed() -> None:
    assert found(ALL_UP, None, SWITCHED) == {}


def test_in_a_rack_a_gpu_without_a_clique_is_alone() -> None:
    rack = replace(SWITCHED, expect_clique=True)

    assert fabric(rack, fabric_clique=0) == {"gpu_fabric_incomplete": Severity.CRITICAL}
    assert fabric(rack) == fabric(SWITCHED, fabric_clique=0) == {}


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (0x1AA, []),
        (0, []),
        (0x1A9, ["degraded_bandwidth"]),
        (0x19A, ["route_unhealthy"]),
        (0x3AA, ["incorrect_configuration"]),
    ],
)
def test_the_health_mask_is_read_field_by_field(mask: int, said: list[str]) -> None:
    assert unhealthy(mask) == said
    assert bool(fabric(fabric_health=mask)) is bool(said)


def counted(at_s: float, **counters: int) -> Links:
    return replace(ALL_UP, at_s=at_s, counters={"4": counters})


@pytest.mark.parametrize(
    ("counter", "new", "fault"),
    [
        ("replays", 1, "gpu_nvlink_errors"),
        ("replays", 3000, "gpu_nvlink_failing"),
        ("crc_errors", 29_999, "gpu_nvlink_errors"),
        ("crc_errors", 30_000, "gpu_nvlink_failing"),
        ("recoveries", 1, "gpu_nvlink_failing"),
        ("failed_recoveries", 1, "gpu_nvlink_failing"),
        ("receive_errors", 1, "gpu_nvlink_errors"),
    ],
)
def test_errors_of_a_link_are_judged_by_counter_and_rate(counter: str, new: int, fault: str) -> None:
    (finding,) = judge((counted(1300.0, **{counter: 5 + new}),), (counted(1000.0, **{counter: 5}),), Policy())

    assert (finding.component, finding.fault) == ("0000:1b:00.0/nvlink4", fault)
    assert (finding.evidence["counter"], finding.evidence["new"]) == (counter, new)


def test_old_counts_at_the_first_look_and_counts_that_stay_are_no_news() -> None:
    worn = counted(1000.0, replays=77, recoveries=9)

    assert found(worn) == {}
    assert found(counted(1300.0, replays=77, recoveries=9), worn) == {}


def test_a_gpu_reset_starts_the_counters_anew() -> None:
    assert growth(counted(1, replays=500), counted(2, replays=3)) == {("4", "replays"): 3}
    assert growth(counted(1, replays=500), counted(2, replays=0)) == {}


def test_where_the_driver_has_only_sums_they_are_judged() -> None:
    links = tuple(NvLink(n, active=True) for n in range(12))
    facts = {"nvlink_recoveries": 2, "nvlink_replays": 0}
    now = links_of(Gpu(0, "0000:07:00.0", "GPU-1", nvlinks=links, facts=facts), 1300.0)
    old = links_of(Gpu(0, "0000:07:00.0", "GPU-1", nvlinks=links, facts={"nvlink_recoveries": 0}), 1000.0)

    assert now
    (finding,) = judge((now,), (old,) if old else None, Policy())
    assert (finding.component, finding.evidence["counter"]) == ("0000:07:00.0/nvlinkall", "recoveries")


def retries(at_s: float, *counts: int, counter: str = "plr_retries") -> Links:
    return replace(ALL_UP, at_s=at_s, counters={str(link): {counter: n} for link, n in enumerate(counts)})


def test_a_link_that_sends_far_more_blocks_again_than_its_siblings_is_uneven() -> None:
    for counter in ("plr_retries", "symbol_errors", "effective_errors"):
        old, now = retries(1000.0, *[7] * 18, counter=counter), retries(1300.0, 2_000_000, *[900] * 17, counter=counter)

        (finding,) = judge((now,), (old,), Policy())
        assert (finding.component, finding.fault) == ("0000:1b:00.0/nvlink0", "gpu_nvlink_uneven")
        assert finding.severity is Severity.WARNING


def test_retries_that_all_links_share_and_few_of_one_link_are_no_fault() -> None:
    quiet = retries(1000.0, *[0] * 18)

    assert found(retries(1300.0, *[5_000_000] * 18), quiet) == {}
    assert found(retries(1300.0, 9_999, *[0] * 17), quiet) == {}
    assert found(retries(1300.0, 2_000_000, 0), retries(1000.0, 0, 0)) == {}  # two links say not what is usual


def test_a_gpu_without_nvlink_is_left_out() -> None:
    assert links_of(Gpu(0, "0000:07:00.0", "GPU-1"), 0.0) is None
    assert links_of(Gpu(0, "0000:07:00.0", "GPU-1", facts={"fabric_state": 0}), 0.0) is None


@given(
    st.dictionaries(st.text(max_size=3), st.dictionaries(st.text(max_size=5), st.integers(0, 1 << 64)), max_size=4),
    st.integers(0, 1 << 32),
    st.floats(0, 1e9),
    st.integers(-1, 5),
)
def test_no_counters_and_no_mask_make_judging_fail(counters: dict, mask: int, at_s: float, state: int) -> None:
    now = replace(ALL_UP, at_s=at_s, counters=counters, fabric_health=mask, fabric_state=state)

    list(judge((now,), (ALL_UP,), SWITCHED))
