"""What a board is and remembers: gpu_retired_pages, gpu_inforom, gpu_driver."""

from dataclasses import replace

import pytest

from nodetriage.checks.gpu import gpu_driver, gpu_inforom, gpu_retired_pages
from nodetriage.checks.gpu.gpu_driver import Driven
from nodetriage.checks.gpu.gpu_inforom import InfoRom
from nodetriage.checks.gpu.gpu_retired_pages import Pages
from nodetriage.checks.model import Severity

PCI = "0000:1b:00.0"


@pytest.mark.parametrize(
    ("single", "double", "pending", "faults"),
    [
        (0, 0, False, []),
        (59, 0, False, []),
        (59, 1, False, ["gpu_pages_retired_many"]),
        (0, 15, False, []),
        (0, 16, False, ["gpu_pages_retired_many"]),
        (3, 1, True, ["gpu_page_retirement_pending"]),
    ],
)
def test_pages_count_when_the_table_is_nearly_full_and_wait_for_a_reset(
    single: int, double: int, pending: bool, faults: list[str]
) -> None:
    found = list(
        gpu_retired_pages.judge((Pages(PCI, "GPU-1", single, double, pending),), None, gpu_retired_pages.Policy())
    )

    assert [f.fault for f in found] == faults
    assert {f.severity for f in found} <= {Severity.MAJOR}


def test_a_corrupt_inforom_is_a_warning() -> None:
    policy = gpu_inforom.Policy()

    assert [f.fault for f in gpu_inforom.judge((InfoRom(PCI, "GPU-1", 14),), None, policy)] == ["gpu_inforom_corrupt"]
    assert list(gpu_inforom.judge((InfoRom(PCI, "GPU-1", 0),), None, policy)) == []


def driven(number: int, vbios: str = "96.00.89.00.01", **fields: object) -> Driven:
    gpu = Driven(f"0000:{number:02x}:00.0", f"GPU-{number}", "NVIDIA H100 80GB HBM3", vbios, True, 9000.0)
    return replace(gpu, **fields)  # type: ignore[arg-type]


def faults(gpus: list[Driven], **settings: object) -> list[tuple[str, str]]:
    policy = gpu_driver.Policy(**settings)  # type: ignore[arg-type]
    return [(f.component, f.fault) for f in gpu_driver.judge(tuple(gpus), None, policy)]


def test_persistence_mode_that_is_off_right_after_boot_is_given_time() -> None:
    off = driven(1, persistence=False)

    assert faults([replace(off, uptime_s=60.0)], expect_persistence=True) == []
    assert faults([off], expect_persistence=True) == [("0000:01:00.0", "gpu_persistence_off")]
    assert faults([off]) == faults([driven(1, persistence=None)], expect_persistence=True) == []


def test_the_gpu_with_another_vbios_is_the_odd_one() -> None:
    assert faults([driven(1), driven(2, "96.00.61.00.01"), driven(3)]) == [("0000:02:00.0", "gpu_vbios_drift")]


def test_two_and_two_name_no_culprit() -> None:
    assert faults([driven(1), driven(2, "96.00.61.00.01")]) == [("gpus", "gpu_vbios_drift")]


def test_gpus_of_different_kinds_may_have_different_vbios() -> None:
    assert faults([driven(1), driven(2, "95.02.3C.00.8C", name="NVIDIA RTX A2000")]) == []


def test_the_vbios_that_a_site_wants_is_asked_of_every_gpu() -> None:
    assert len(faults([driven(1), driven(2)], vbios="97.00.00.00.00")) == 2
    assert faults([driven(1), driven(2)], vbios="96.00.89.00.01") == []
