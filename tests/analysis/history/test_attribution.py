"""Which failure ended a job: the window, the verdicts, the primary cause, and who is blamed."""

from typing import Any

import polars as pl
import pytest

from nodetriage.analysis.history import attribution, cooccurrence
from nodetriage.analysis.history.attribution import (
    INFRASTRUCTURE,
    REQUEUED,
    UNATTRIBUTED_NODE_FAIL,
    UNKNOWN,
    USER,
    Attribution,
)
from nodetriage.analysis.history.fault_table import bits

EIGHT = [f"n{i}" for i in range(8)]
SECOND = 1 / 60


Row = dict[str, Any]


def only(made: Any, job: Row, *events: Row, settings: Attribution | None = None) -> Row:
    (end,) = attribution.attribute(made.past([job], list(events)), settings).ends.to_dicts()
    return end


@pytest.mark.parametrize(
    ("minute", "verdict"),
    [(110, INFRASTRUCTURE), (110 - SECOND, UNKNOWN), (125, INFRASTRUCTURE), (125 + SECOND, UNKNOWN), (5, UNKNOWN)],
)
def test_only_what_failed_around_the_end_counts_to_the_second(made: Any, minute: float, verdict: str) -> None:
    end = only(made, made.job(0, 120, "FAILED"), made.event("n0", minute, "gpu_off_bus"))
    assert end["verdict"] == verdict


@pytest.mark.parametrize(("minute", "verdict"), [(-10, INFRASTRUCTURE), (-10 - SECOND, UNKNOWN), (60, INFRASTRUCTURE)])
def test_anchored_at_the_start_the_window_takes_in_the_whole_run(made: Any, minute: float, verdict: str) -> None:
    settings = Attribution(anchor="start")
    end = only(made, made.job(0, 120, "FAILED"), made.event("n0", minute, "gpu_off_bus"), settings=settings)
    assert end["verdict"] == verdict


def test_a_fault_on_another_node_says_nothing_about_the_job(made: Any) -> None:
    assert only(made, made.job(0, 60, "FAILED"), made.event("n5", 59, "gpu_off_bus"))["verdict"] == UNKNOWN


def test_a_node_that_fell_silent_is_a_category_of_its_own(made: Any) -> None:
    end = only(made, made.job(0, 60, "NODE_FAIL"))
    assert (end["verdict"], end["category"], end["blamed"]) == (UNATTRIBUTED_NODE_FAIL, None, [])
    assert end["domains"] == bits(("system", "hardware"))


def test_a_failure_on_a_clean_node_is_never_infrastructure(made: Any) -> None:
    found = attribution.attribute(made.past([made.job(0, 60, "FAILED", exit_code="1:0")]))
    assert found.ends["verdict"].to_list() == [UNKNOWN]
    assert found.infrastructure.height == 0


@pytest.mark.parametrize("state", ["COMPLETED", "CANCELLED", "OUT_OF_MEMORY", "TIMEOUT", "PREEMPTED"])
def test_other_ends_are_not_judged(made: Any, state: str) -> None:
    found = attribution.attribute(made.past([made.job(0, 60, state)], [made.event("n0", 59, "gpu_off_bus")]))
    assert found.ends.height == 0


def test_a_requeued_run_counts_only_with_evidence(made: Any) -> None:
    job = made.job(0, 60, "REQUEUED")
    assert only(made, job)["verdict"] == REQUEUED
    assert only(made, job, made.event("n0", 59, "gpu_off_bus"))["verdict"] == INFRASTRUCTURE


def test_all_causes_are_kept_and_the_nearest_to_the_cause_is_primary(made: Any) -> None:
    events = [
        made.event("n0", 57, "bmc_critical_interrupt", check="bmc"),
        made.event("n0", 58, "gpu_off_bus", check="gpu_xid", xid=79),
        made.event("n0", 59, "pcie_uncorrectable", check="pcie"),
    ]
    found = attribution.attribute(made.past([made.job(0, 60, "FAILED")], events))
    assert found.ends["fault"].to_list() == ["pcie_uncorrectable"]
    assert found.ends["causes"].to_list() == [3]
    assert found.causes["fault"].to_list() == ["pcie_uncorrectable", "gpu_off_bus", "bmc_critical_interrupt"]


def test_among_equals_the_earliest_is_primary(made: Any) -> None:
    job = made.job(0, 60, "FAILED", nodes=["n0", "n1"])
    end = only(made, job, made.event("n1", 59, "ib_link_down"), made.event("n0", 58, "ib_link_slow"))
    assert (end["fault"], end["node"]) == ("ib_link_slow", "n0")


def test_one_bad_link_is_blamed_and_not_the_nodes_that_waited_for_it(made: Any) -> None:
    waiting = [made.event(n, 59, "nccl_timeout") for n in EIGHT]
    end = only(made, made.job(0, 60, "FAILED", nodes=EIGHT), *waiting, made.event("n3", 58, "ib_link_down"))
    assert (end["fault"], end["blamed"]) == ("ib_link_down", ["n3"])


def test_a_timeout_that_all_report_blames_no_node(made: Any) -> None:
    waiting = [made.event(n, 59, "nccl_timeout") for n in EIGHT]
    end = only(made, made.job(0, 60, "FAILED", nodes=EIGHT), *waiting)
    assert (end["verdict"], end["blamed"]) == (INFRASTRUCTURE, [])
    assert end["possibly_user"]


def test_a_timeout_on_a_single_node_is_no_diagnosis_either(made: Any) -> None:
    assert only(made, made.job(0, 60, "FAILED"), made.event("n0", 59, "nccl_timeout"))["blamed"] == []


def test_a_fault_that_half_of_the_nodes_share_is_no_nodes_own(made: Any) -> None:
    down = [made.event(n, 59, "ib_link_down") for n in EIGHT[:4]]
    end = only(made, made.job(0, 60, "FAILED", nodes=EIGHT), *down)
    assert (end["shared"], end["blamed"]) == (True, [])
    two = only(made, made.job(0, 60, "FAILED", nodes=EIGHT), *down[:2])
    assert (two["shared"], two["blamed"]) == (False, ["n0", "n1"])


def test_warnings_are_kept_and_do_not_count(made: Any) -> None:
    event = made.event("n0", 59, "gpu_ecc_corrected_storm", severity=2)
    found = attribution.attribute(made.past([made.job(0, 60, "FAILED")], [event]))
    assert found.ends["verdict"].to_list() == [UNKNOWN]
    assert found.causes.select("fault", "failed").rows() == [("gpu_ecc_corrected_storm", False)]


def test_an_error_of_the_users_own_is_the_users(made: Any) -> None:
    end = only(made, made.job(0, 60, "FAILED"), made.event("n0", 59, "gpu_xid_application", xid=31, severity=4))
    assert (end["verdict"], end["domains"]) == (USER, bits(("user",)))


def test_a_users_error_beside_a_failed_check_is_marked_as_possibly_attributed_wrongly(made: Any) -> None:
    user = made.event("n0", 58, "gpu_xid_application", xid=31, severity=1)
    end = only(made, made.job(0, 60, "FAILED"), user, made.event("n0", 59, "gpu_gsp_timeout"))
    assert (end["verdict"], end["possibly_user"]) == (INFRASTRUCTURE, True)


def test_signals_rule_out_who_cannot_be_the_cause(made: Any) -> None:
    anyone = made.event("n0", 58, "gpu_context_switch_timeout")
    machine = made.event("n0", 58, "gpu_gsp_timeout")
    hardware = made.event("n0", 59, "gpu_ecc_uncorrectable")
    job = made.job(0, 60, "FAILED")
    assert only(made, job, anyone)["domains"] == bits(("user", "system", "hardware"))
    assert only(made, job, anyone, machine)["domains"] == bits(("system", "hardware"))
    assert only(made, job, anyone, machine, hardware)["domains"] == bits(("hardware",))


def test_signals_that_contradict_each_other_leave_the_primary_causes_domains(made: Any) -> None:
    job = made.job(0, 60, "FAILED")
    end = only(made, job, made.event("n0", 58, "service_down"), made.event("n0", 59, "gpu_ecc_uncorrectable"))
    assert end["domains"] == bits(("hardware",))


@pytest.mark.parametrize("counts", [True, False])
def test_a_fault_open_since_before_the_window_counts_only_if_asked_for(made: Any, counts: bool) -> None:
    settings = Attribution(open_faults=counts)
    past = made.past([made.job(0, 120, "FAILED")], [made.event("n0", 30, "ib_link_down")])
    found = attribution.attribute(past, settings)
    assert found.ends["verdict"].to_list() == [INFRASTRUCTURE if counts else UNKNOWN]
    assert found.causes.select("fault", "open", "events").rows() == [("ib_link_down", True, 0)]


def test_a_fault_that_was_cleared_in_time_is_not_open(made: Any) -> None:
    events = [made.event("n0", 30, "ib_link_down"), made.event("n0", 90, "ib_link_down", kind="cleared")]
    found = attribution.attribute(made.past([made.job(0, 120, "FAILED")], events), Attribution(open_faults=True))
    assert found.ends["verdict"].to_list() == [UNKNOWN]


def test_nothing_to_judge_is_an_empty_result(made: Any) -> None:
    found = attribution.attribute(made.past([]))
    assert (found.ends.height, found.causes.height, found.infrastructure.height) == (0, 0, 0)


@pytest.mark.parametrize("wrong", [{"before_min": -1}, {"after_min": -0.1}, {"shared_share": 0}, {"shared_share": 1.1}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Attribution(**wrong)


def together(made: Any) -> attribution.Attributed:
    """Ten jobs: PCIe in all, Xid 79 in four of them, told by two checks; a mount fault alone in one more."""
    jobs = [made.job(0, 60, "FAILED", job_id=str(i), nodes=[f"n{i}"]) for i in range(11)]
    events = [made.event(f"n{i}", 58, "pcie_uncorrectable", check="pcie") for i in range(10)]
    events += [made.event(f"n{i}", 59, "gpu_off_bus", check="gpu_xid") for i in range(4)]
    events += [made.event("n10", 59, "mount_stale", check="mounts", severity=3)]
    return attribution.attribute(made.past(jobs, events))


def test_the_matrix_gives_shares_within_each_cause(made: Any) -> None:
    rows = cooccurrence.matrix(together(made)).filter(pl.col("category") != pl.col("with_category"))
    assert rows.select("category", "with_category", "jobs", "both", "share").rows() == [
        ("gpu_missing", "pcie", 4, 4, 1.0),
        ("pcie", "gpu_missing", 10, 4, 0.4),
    ]


def test_combinations_add_up_to_all_attributed_jobs(made: Any) -> None:
    rows = cooccurrence.combinations(together(made))
    assert rows.select("categories", "jobs").rows() == [("pcie", 6), ("gpu_missing + pcie", 4), ("mount", 1)]
    assert rows["share"].sum() == pytest.approx(1)


def test_what_a_check_adds_is_what_would_be_lost_without_it(made: Any) -> None:
    found = together(made)
    for check, only_jobs in cooccurrence.marginal(found).select("check", "only").iter_rows():
        without = {e["run"] for e in found.causes.filter("failed", pl.col("check") != check).to_dicts()}
        assert found.infrastructure.height - len(without) == only_jobs


def test_like_priority_counts_checks_at_the_highest_severity(made: Any) -> None:
    assert cooccurrence.like_priority_share(together(made)) == pytest.approx(4 / 11)
    assert cooccurrence.like_priority_share(attribution.attribute(made.past([]))) is None


def test_the_node_that_slurm_lost_is_blamed_where_no_check_names_one(made: Any) -> None:
    nodes = ["n0", "n1", "n2"]
    rows = [
        made.job(0, 60, "NODE_FAIL", job_id="1", nodes=nodes, failed_node="n2"),
        made.job(0, 60, "NODE_FAIL", job_id="2", nodes=nodes, failed_node="other"),
        made.job(0, 60, "FAILED", job_id="3", nodes=nodes, failed_node="n1"),
        made.job(100, 60, "NODE_FAIL", job_id="4", nodes=nodes, failed_node="n2"),
    ]
    found = attribution.attribute(made.past(rows, [made.event("n0", 159, "gpu_off_bus")])).ends
    blamed = dict(found.select("job_id", "blamed").iter_rows())
    assert blamed == {"1": ["n2"], "2": [], "3": [], "4": ["n0"]}
