"""Firmware of adapters."""

from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.fabric.ib_firmware import Adapter, Policy, judge, read
from nodetriage.checks.model import Severity, Unavailable

TWINS = tuple(Adapter(f"mlx5_{i}", f"0000:0{i}:00.0", "MT_0000000838", "28.39.1002") for i in range(3))
ODD = Adapter("mlx5_7", "0000:70:00.0", "MT_0000000838", "28.38.1900")


def test_an_adapter_that_differs_from_its_twins_is_found_by_its_pci_address() -> None:
    (finding,) = judge((*TWINS, ODD), None, Policy())

    assert (finding.component, finding.fault, finding.severity) == (
        "0000:70:00.0",
        "ib_firmware_drift",
        Severity.WARNING,
    )
    assert (finding.evidence["version"], finding.evidence["expected"]) == ("28.38.1900", "28.39.1002")


def test_another_board_may_have_another_version() -> None:
    assert list(judge((*TWINS, Adapter("mlx5_8", "", "MT_0000000834", "24.1")), None, Policy())) == []


def test_what_the_site_wants_is_stronger_than_the_twins() -> None:
    policy = Policy(expected={"MT_0000000838": ("28.38.1900",)})

    assert {f.component for f in judge((*TWINS, ODD), None, policy)} == {a.pci for a in TWINS}


def test_without_an_adapter_it_is_skipped(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        read(Host(tmp_path))
