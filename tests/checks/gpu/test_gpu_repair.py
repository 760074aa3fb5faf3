"""Repairs that wait for a reset, and memory that nothing repairs."""

import pytest

from nodetriage.checks.gpu.gpu_repair import Policy, Repairs, _repairs, judge
from nodetriage.checks.model import Gpu

WELL = {"repair_pending_channel": 0, "repair_pending_tpc": 0, "memory_unrepairable": 0, "bank_remap_pending": 0}


def found(**facts: int) -> list[tuple[str, str]]:
    repairs = _repairs(Gpu(0, "0000:1b:00.0", "GPU-1", facts={**WELL, **facts}))
    assert repairs
    return [(f.fault, f.severity.name) for f in judge((repairs,), None, Policy())]


def test_a_gpu_without_repairs_and_one_whose_bank_was_replaced_long_ago_are_well() -> None:
    assert found() == []
    assert found(banks_remapped=3, banks_inactive=0, banks_without_spares=0, rows_inactive_correctable=0) == []


@pytest.mark.parametrize("fact", ["repair_pending_channel", "repair_pending_tpc", "bank_remap_pending"])
def test_a_repair_that_waits_for_a_reset_lets_the_job_finish(fact: str) -> None:
    assert found(**{fact: 1}) == [("gpu_repair_pending", "MAJOR")]


def test_several_repairs_that_wait_are_one_finding_that_names_them() -> None:
    (finding,) = judge((Repairs("0000:1b:00.0", "GPU-1", 2, 1, 0, 0, 1),), None, Policy())

    assert (finding.evidence["parts"], finding.evidence["rows_inactive"]) == ("channel,bank", 2)


def test_memory_that_nothing_repairs_removes_the_node_and_spent_spares_are_a_warning() -> None:
    assert found(memory_unrepairable=1) == [("gpu_memory_unrepairable", "CRITICAL")]
    assert found(banks_without_spares=1) == [("gpu_bank_spares_gone", "WARNING")]


def test_what_a_driver_does_not_report_is_not_measured_and_never_0() -> None:
    assert _repairs(Gpu(0, "0000:1b:00.0", "GPU-1", facts={"rows_inactive_correctable": 0})) is None
    old = _repairs(Gpu(0, "0000:1b:00.0", "GPU-1", facts={"repair_pending_tpc": 0}))

    assert old == Repairs("0000:1b:00.0", "GPU-1", tpc_pending=0)
