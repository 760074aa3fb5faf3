"""The table of what faults are evidence of, against the vocabulary of the checks."""

import pytest

from nodetriage.checks.model import Severity
from nodetriage.checks.model.faults import faults
from nodetriage.checks.model.taxonomy import taxonomy


def test_every_fault_that_can_drain_a_node_has_a_category() -> None:
    serious = [code for code, fault in faults().items() if fault.severity >= Severity.MAJOR]
    assert serious
    assert not [code for code in serious if taxonomy().of(code).category == "other"]


def test_domains_of_a_known_fault_are_those_of_the_vocabulary() -> None:
    for code, fault in faults().items():
        assert taxonomy().of(code).domains == fault.domains


@pytest.mark.parametrize(
    ("fault", "domains"),
    [
        ("out_of_memory", {"user"}),
        ("nccl_timeout", {"user", "system", "hardware"}),
        ("gpu_missing_from_elsewhere", {"system", "hardware"}),
        ("gpu_memory_error", {"hardware"}),
        ("nvme_media_errors", {"hardware"}),
        ("nfs_server_gone", {"system", "hardware"}),
        ("heartbeat_lost", {"system", "hardware"}),
        ("something_new", {"user", "system", "hardware"}),
    ],
)
def test_a_fault_from_elsewhere_leaves_the_domains_of_its_kind(fault: str, domains: set[str]) -> None:
    assert set(taxonomy().of(fault).domains) == domains


@pytest.mark.parametrize(
    ("xid", "category"), [(79, "gpu_missing"), (48, "gpu_memory"), (31, "user_program"), (999, "other")]
)
def test_an_event_with_only_an_xid_is_placed_by_it(xid: int, category: str) -> None:
    assert taxonomy().of("", xid).category == category


def test_a_timeout_is_a_symptom_and_a_dead_gpu_is_not() -> None:
    assert taxonomy().of("nccl_timeout").symptom
    assert not taxonomy().of("gpu_off_bus").symptom
