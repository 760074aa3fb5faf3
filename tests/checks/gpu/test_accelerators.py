"""AMD GPUs by their driver's counts; accelerators that no check looks at are never ok."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.agent.workers.run import run
from nodetriage.checks.gpu.accelerators import CHECK, Policy
from nodetriage.checks.model import Outcome

MI300X = ("0000:1b:00.0", "1002:74A1", "120000", "amdgpu")
GAUDI = ("0000:33:00.0", "1DA3:1060", "120000", "habanalabs")
PONTE_VECCHIO = ("0000:9a:00.0", "8086:0BD5", "38000", "xe")
IGPU = ("0000:00:02.0", "8086:4C8B", "38000", "i915")
BMC = ("0000:03:00.0", "1A03:2000", "30000", "ast")
H100 = ("0000:43:00.0", "10DE:2330", "30200", "nvidia")
PAGES = "0x027f5d43 : 0x00001000 : {}\n"


def device(root: Path, which: tuple[str, str, str, str], **ras: str) -> None:
    """Puts the device on the recorded bus; `ras` are files of its folder of that name."""
    address, number, class_code, driver = which
    folder = root / "sys/bus/pci/devices" / address
    (folder / "ras").mkdir(parents=True, exist_ok=True)
    bound = f"DRIVER={driver}\n" if driver else ""
    (folder / "uevent").write_text(f"{bound}PCI_CLASS={class_code}\nPCI_ID={number}\n")
    for name, text in ras.items():
        (folder / "ras" / name).write_text(text)


def amd(root: Path, ue: int = 0, ce: int = 0, pages: str = "", block: str = "umc") -> None:
    counts = {f"{block}_err_count": f"ue: {ue}\nce: {ce}\nde: 0\n", "gfx_err_count": "ue: 0\nce: 0\n"}
    device(root, MI300X, **counts, gpu_vram_bad_pages=pages)


def look(root: Path, at_s: float = 0.0, memory: Any = None, policy: Policy | None = None) -> Any:
    (root / "clock.toml").write_text(f"boottime_s = {100_000 + at_s}\n")
    return run(CHECK, Host(root).for_check(CHECK), policy or Policy(), memory)


def faults(result: Any) -> set[tuple[str, str, str]]:
    return {(f.component, f.fault, f.severity.name) for f in result.findings}


def test_a_healthy_amd_gpu_is_ok(tmp_path: Path) -> None:
    amd(tmp_path, ue=3, ce=90_000, pages=PAGES.format("R") * 5)
    first = look(tmp_path)

    assert (first.outcome, first.findings) == (Outcome.OK, ())  # what was counted before the first look is the past
    assert look(tmp_path, 300, first.memory).outcome is Outcome.OK


@pytest.mark.parametrize("block", ["umc", "xgmi_wafl"])
def test_uncorrectable_errors_since_the_last_look_are_found_with_their_block(tmp_path: Path, block: str) -> None:
    amd(tmp_path, ue=3, block=block)
    first = look(tmp_path)
    amd(tmp_path, ue=4, block=block)

    (finding,) = look(tmp_path, 300, first.memory).findings
    assert (finding.fault, finding.severity.name) == ("amd_gpu_uncorrected", "MAJOR")
    assert (finding.evidence["block"], finding.evidence["new"]) == (block, 1)


def test_corrected_errors_count_by_their_rate(tmp_path: Path) -> None:
    amd(tmp_path)
    first = look(tmp_path)
    amd(tmp_path, ce=83)
    assert look(tmp_path, 300, first.memory).outcome is Outcome.OK
    amd(tmp_path, ce=84)

    assert faults(look(tmp_path, 300, first.memory)) == {("0000:1b:00.0/umc", "amd_gpu_corrected_rate", "WARNING")}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("R" * 63, set()),
        ("R" * 64, {"amd_gpu_pages_many"}),
        ("P", {"amd_gpu_pages_pending"}),
        ("F", {"amd_gpu_pages_pending"}),
    ],
)
def test_bad_pages_are_judged_by_their_state_and_number(tmp_path: Path, flags: str, expected: set[str]) -> None:
    amd(tmp_path, pages="".join(map(PAGES.format, flags)))

    assert {f.fault for f in look(tmp_path).findings} == expected


def test_a_gpu_without_a_driver_and_a_gpu_too_few_are_found(tmp_path: Path) -> None:
    device(tmp_path, (*MI300X[:3], ""))

    assert faults(look(tmp_path, policy=Policy(expected_amd=2))) == {
        ("0000:1b:00.0", "amd_gpu_unbound", "MAJOR"),
        ("gpus", "amd_gpu_missing", "CRITICAL"),
    }


@pytest.mark.parametrize(
    "which", [GAUDI, PONTE_VECCHIO, (*MI300X[:3], "vfio-pci"), ("0000:1b:00.0", "1002:74A1", "120000", "amdgpu")]
)
def test_an_accelerator_that_no_check_looks_at_is_named_and_never_ok(tmp_path: Path, which: Any) -> None:
    device(tmp_path, which)
    result = look(tmp_path)

    assert result.outcome is Outcome.SKIPPED
    assert f"no check looks at {which[0]}" in result.why
    amd(tmp_path)
    if which[0] != MI300X[0] and which[3] != "vfio-pci":
        assert (look(tmp_path).outcome, look(tmp_path).why) == (Outcome.SKIPPED, f"not looked at: {which[0]}")


def test_a_gpu_that_is_being_reset_is_not_looked_at_and_keeps_its_counts(tmp_path: Path) -> None:
    amd(tmp_path, ue=1)
    device(tmp_path, ("0000:2b:00.0", *MI300X[1:]), umc_err_count="ue: 0\nce: 0\n")
    first = look(tmp_path)
    device(tmp_path, MI300X, umc_err_count="Query currently inaccessible\n")
    during = look(tmp_path, 60, first.memory)
    assert (during.outcome, during.excluded) == (Outcome.SKIPPED, ("0000:1b:00.0",))
    amd(tmp_path, ue=2)

    assert {f.fault for f in look(tmp_path, 120, during.memory).findings} == {"amd_gpu_uncorrected"}


def test_displays_of_boards_and_cpus_and_nvidia_s_gpus_are_not_this_check_s(tmp_path: Path) -> None:
    for which in (IGPU, BMC, H100):
        device(tmp_path, which)

    assert look(tmp_path).why == "no accelerator of another maker than NVIDIA"


@given(st.text(max_size=40))
def test_a_file_that_holds_no_counts_is_broken_or_not_looked_at_and_never_ok(tmp_path_factory: Any, text: str) -> None:
    root = tmp_path_factory.mktemp("amd")
    device(root, MI300X, umc_err_count="x" + text)

    assert look(root).outcome is Outcome.BROKEN
