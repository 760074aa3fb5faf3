"""Accelerators that are not NVIDIA's, and what the NVIDIA driver says beside Xids."""

from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.host import accelerator_errors, gpu_driver_errors
from nodetriage.checks.model import Check, Finding, KernelRecord, Unavailable

GPU = "0000:dd:00.0"


def machine(tmp_path: Path, vendor: str) -> Path:
    device = tmp_path / "sys/bus/pci/devices" / GPU
    if not device.exists():
        device.mkdir(parents=True)
        for name, text in (("vendor", vendor), ("device", "0x74a1"), ("class", "0x038000")):
            (device / name).write_text(f"{text}\n")
    return tmp_path


def found(check: Check, folder: Path, *lines: str) -> list[Finding]:
    records = tuple(KernelRecord(i, (1000 + i) * 1_000_000, 3, line) for i, line in enumerate(lines))
    return list(check.judge(check.read(Host(folder).for_check(check, records)), None, check.policy))


AMD = f"amdgpu {GPU}: "


@pytest.mark.parametrize(
    ("text", "fault", "severity"),
    [
        ("{1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", "accelerator_memory_error", "CRITICAL"),
        ("amdgpu: {2}socket: 0, die: 1, 1 new uncorrectable hardware errors detected in umc block", "accelerator_memory_error", "CRITICAL"),
        ("{1}socket: 6, die: 1, 1533 new correctable hardware errors detected in xgmi_wafl block", "accelerator_memory_corrected", "WARNING"),
        ("amdgpu: GPU reset begin!", "accelerator_reset", "MAJOR"),
        ("amdgpu: GPU reset(1) failed", "accelerator_failed", "CRITICAL"),
        ("amdgpu: GPU reset(1) succeeded!", "accelerator_recovered", "WARNING"),
        ("amdgpu: {7}poison is consumed by client 18, kick off gpu reset flow", "accelerator_memory_error", "MAJOR"),
        ("amdgpu: RAS records:231 exceeds 90% of threshold:256", "accelerator_memory_worn", "MAJOR"),
    ],
)  # fmt: skip
def test_what_amdgpu_says_has_its_fault_on_the_gpu(tmp_path: Path, text: str, fault: str, severity: str) -> None:
    (finding,) = found(accelerator_errors.CHECK, machine(tmp_path, "0x1002"), AMD + text)

    assert (finding.component, finding.fault, finding.severity.name) == (GPU, fault, severity)


@pytest.mark.parametrize(
    "text",
    [
        "{1}socket: 6, die: 1, 1533 correctable hardware errors detected in total in xgmi_wafl block",
        "amdgpu: 0 uncorrectable hardware errors detected in umc block",
        "amdgpu: GPU reset end with ret = 0",
        "amdgpu: GPU reset succeeded, trying to resume",
        "{1}[Hardware Error]: Accelerator Check Architecture events logged",
        "amdgpu: MODE1 reset",
    ],
)
def test_totals_and_steps_of_a_reset_are_no_fault(tmp_path: Path, text: str) -> None:
    assert found(accelerator_errors.CHECK, machine(tmp_path, "0x1002"), AMD + text) == []


def test_an_accelerator_that_is_not_here_is_a_warning_that_says_so(tmp_path: Path) -> None:
    line = "amdgpu 0000:3d:00.0: amdgpu: GPU reset(1) failed"

    (finding,) = found(accelerator_errors.CHECK, machine(tmp_path, "0x1002"), line)

    assert (finding.fault, finding.severity.name) == ("kernel_line_unknown_device", "WARNING")


LOADED = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024"
HALTED = "NVRM: GPU3 _kgspRpcGspEventPmuHalted: Received signal from GSP that PMU has halted."


def test_a_gpu_that_does_not_start_is_named_and_firmware_that_hangs_has_the_driver_s_number(tmp_path: Path) -> None:
    start = f"NVRM: GPU {GPU}: rm_init_adapter failed, device minor number 3"

    both = found(gpu_driver_errors.CHECK, machine(tmp_path, "0x10de"), start, HALTED)

    assert [(f.component, f.fault) for f in both] == [(GPU, "gpu_driver_failed"), ("driver GPU3", "gpu_driver_failed")]


def test_a_load_of_the_driver_ends_what_it_said_before(tmp_path: Path) -> None:
    check, folder = gpu_driver_errors.CHECK, machine(tmp_path, "0x10de")
    loaded = check.read(Host(folder).for_check(check, (KernelRecord(1, 1, 4, LOADED),)))

    assert found(check, folder, HALTED, LOADED) == []
    assert [f.component for f in found(check, folder, LOADED, HALTED)] == ["driver GPU3"]
    assert ("driver GPU3", "gpu_driver_failed") in set(gpu_driver_errors.clears(loaded, None))
    assert (
        list(
            gpu_driver_errors.clears(check.read(Host(folder).for_check(check, (KernelRecord(1, 1, 4, HALTED),))), None)
        )
        == []
    )


def test_without_the_driver_the_check_is_skipped(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="not loaded"):
        found(gpu_driver_errors.CHECK, machine(tmp_path, "0x1002"))
