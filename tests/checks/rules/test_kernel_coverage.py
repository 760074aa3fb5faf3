"""Every kind of line that the kernel's source has for a hardware fault is judged, or left out for a written reason."""

from pathlib import Path

import pytest
from kernel_coverage import judged, left_out, names_its_device, rows

from nodetriage.checks.model import Severity

# The disk is the BMC's: nothing in the line says so.
BY_THE_MACHINE = ("usb.virtual_io",)
ROWS = [row for row in rows() if row.id not in BY_THE_MACHINE]
SERIOUS = [row for row in ROWS if row.suggested >= Severity.WARNING]
HARMLESS = [row for row in ROWS if row.suggested < Severity.WARNING]


@pytest.mark.parametrize("row", SERIOUS, ids=lambda r: r.id)
def test_a_line_that_deserves_a_warning_has_one_on_the_device_that_it_names(row, tmp_path: Path) -> None:
    found = judged(tmp_path, row)
    worst = max((finding.severity for _, finding in found), default=Severity.INFO)

    if row.id in left_out():
        assert worst <= Severity.INFO, "it is judged: take it out of kernel_lines_left_out.tsv"
        return
    assert worst >= Severity.WARNING
    assert names_its_device(row, found)


@pytest.mark.parametrize("row", HARMLESS, ids=lambda r: r.id)
def test_a_line_that_deserves_none_is_no_reason_to_drain(row, tmp_path: Path) -> None:
    assert [(c, f.fault) for c, f in judged(tmp_path, row) if f.severity > Severity.WARNING] == []


def test_what_is_left_out_is_there_and_has_its_reason() -> None:
    assert {*left_out()} <= {row.id for row in rows()}
    assert all(len(reason) > 20 for reason in left_out().values())
