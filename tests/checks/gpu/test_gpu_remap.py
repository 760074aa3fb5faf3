"""GPU memory rows that wait for a remap, could not be remapped, or have few spares left."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.gpu.gpu_remap import CHECK, Policy, Rows, clears, judge, next_state, read
from nodetriage.checks.model import RowRemap, Severity, Unavailable
from nodetriage.checks.model.kernel_line import kernel_pattern

WELL = RowRemap(0, 0, pending=False, failed=False, banks_max=640, banks_low=0, banks_none=0)
PCI = "0000:1b:00.0"


def found(remap: RowRemap, policy: Policy | None = None) -> dict[str, Severity]:
    return {f.fault: f.severity for f in judge((Rows(PCI, "GPU-1", remap),), None, policy or Policy())}


def test_a_gpu_without_remapped_rows_is_well() -> None:
    assert found(WELL) == {}


def test_rows_that_were_remapped_long_ago_are_no_fault() -> None:
    assert found(replace(WELL, correctable_rows=3, uncorrectable_rows=2)) == {}


def test_a_pending_remap_lets_the_job_finish() -> None:
    assert found(replace(WELL, pending=True)) == {"gpu_remap_pending": Severity.MAJOR}


def test_a_failed_remap_removes_the_node_whatever_else_waits() -> None:
    both = found(replace(WELL, pending=True, failed=True))

    assert both == {"gpu_remap_failed": Severity.CRITICAL, "gpu_remap_pending": Severity.MAJOR}


@pytest.mark.parametrize("banks", [{"banks_none": 1}, {"banks_low": 1}])
def test_a_bank_that_is_nearly_out_of_spare_rows_is_said_early(banks: dict[str, int]) -> None:
    assert found(replace(WELL, **banks)) == {"gpu_remap_spares_low": Severity.WARNING}
    assert found(replace(WELL, **banks), Policy(exhausted_banks=2, low_banks=2)) == {}


def test_a_driver_without_a_histogram_says_nothing_of_spare_rows() -> None:
    assert found(RowRemap(0, 0, pending=False, failed=False)) == {}


def test_a_gpu_that_cannot_remap_or_does_not_answer_is_left_out(tmp_path: Path) -> None:
    remap = {"correctable_rows": 1, "uncorrectable_rows": 0, "pending": False, "failed": False}
    gpus = [
        {"index": 0, "pci": "0000:1b:00.0", "uuid": "GPU-1", "row_remap": remap},
        {"index": 1, "pci": "0000:43:00.0", "uuid": "GPU-2"},
        {"index": 2, "pci": "0000:52:00.0", "failure": "gpu_is_lost", "row_remap": remap},
    ]
    (tmp_path / "nvml.json").write_text(json.dumps(gpus))

    assert read(Host(tmp_path)) == (Rows("0000:1b:00.0", "GPU-1", RowRemap(1, 0, pending=False, failed=False)),)


@pytest.mark.parametrize(("code", "wakes"), [(63, True), (64, True), (163, False), (6, False), (631, False)])
def test_the_driver_s_word_on_a_row_wakes_the_check(code: int, wakes: bool) -> None:
    assert CHECK.kernel_wakes

    line = f"NVRM: Xid (PCI:0000:0f:00): {code}, pid=1, Row Remapper: New row marked for remapping"

    assert bool(kernel_pattern(CHECK.kernel_wakes).match(line)) is wakes


def test_where_no_gpu_can_remap_the_check_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "nvml.json").write_text(
        json.dumps([{"index": 0, "pci": "0000:1b:00.0", "uuid": "GPU-1", "name": "Tesla T4"}])
    )

    with pytest.raises(Unavailable, match="remap memory rows"):
        read(Host(tmp_path))


def test_a_row_that_no_longer_waits_was_remapped_by_a_reset_even_where_the_gpu_was_silent_meanwhile() -> None:
    waits, well = (Rows(PCI, "GPU-1", replace(WELL, pending=pending)) for pending in (True, False))
    memory = next_state((waits,), ())

    assert list(clears((well,), memory)) == [(PCI, "gpu_row_remap_pending")]
    assert list(clears((waits,), memory)) == list(clears((well,), (well,))) == list(clears((well,), None)) == []
