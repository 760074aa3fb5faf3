"""The vocabulary."""

import re

import pytest

from nodetriage.checks.model import Severity
from nodetriage.checks.model.faults import Fault, faults

CLASSES = {"gpu", "fabric", "storage", "host", "bmc", "agent"}


def fault(latching: str) -> Fault:
    return Fault("t", "gpu", Severity.MAJOR, latching, ("hardware",), "m", "a")


@pytest.mark.parametrize("code", faults())
def test_a_fault_is_whole_and_speaks_plainly(code: str) -> None:
    found = faults()[code]

    assert re.fullmatch(r"[a-z][a-z0-9_]+", code)
    assert found.code == code
    assert found.class_ in CLASSES
    assert not found.title.endswith(".")
    assert found.title[0].islower() or found.title.split()[0].isupper()
    assert found.means.endswith(".")
    assert found.advice.endswith(".")


def test_a_fault_that_is_forgotten_says_after_how_long() -> None:
    assert fault("3600s").forgotten_after_s == 3600.0
    assert fault("no").forgotten_after_s is None
    assert fault("boot").forgotten_after_s is None


def test_a_new_fault_is_in_shadow_until_its_entry_says_trusted() -> None:
    assert not fault("no").trusted
    assert faults()["gpu_off_bus"].trusted


@pytest.mark.parametrize("latching", ["", "s", "never", "1h", "-5s", "5.5s"])
def test_an_end_that_nobody_understands_is_refused(latching: str) -> None:
    with pytest.raises(ValueError, match="latching: expected"):
        fault(latching)


def test_what_needs_a_drain_is_not_forgotten_by_itself() -> None:
    """A node must not come back because time went by. Of a row that waits, gpu_remap sees the state itself."""
    forgotten = {c for c, f in faults().items() if f.severity >= Severity.MAJOR and f.forgotten_after_s is not None}

    assert forgotten == {"gpu_row_remap_pending"}
