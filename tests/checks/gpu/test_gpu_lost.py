"""GPUs that are gone, or no longer answer."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.gpu.gpu_lost import Answer, Inventory, Policy, judge, next_state, read
from nodetriage.checks.model import Finding, NvmlFailure, Unavailable

ADDRESSES = ("0000:1b:00.0", "0000:43:00.0")
WELL = tuple(Answer(pci, f"GPU-{pci}", None, "") for pci in ADDRESSES)
NODE = Inventory(ADDRESSES, WELL, "", ADDRESSES)
TWO = Policy(expected_gpus=2)


def found(now: Inventory, policy: Policy = TWO, before: Inventory | None = None) -> list[Finding]:
    return list(judge(now, before, policy))


def faults(findings: list[Finding]) -> set[tuple[str, str, str]]:
    return {(f.component, f.fault, f.severity.name) for f in findings}


def test_the_bus_is_counted_without_what_is_not_the_driver_s(hosts: Path, tmp_path: Path) -> None:
    devices = {
        "0000:1b:00.0": ("10DE:2330", "30200", "nvidia"),
        "0000:1b:00.4": ("10DE:2330", "30200", "nvidia"),  # a virtual function
        "0000:43:00.0": ("10DE:2330", "30200", "vfio-pci"),  # given to a virtual machine
        "0000:43:00.1": ("10DE:10F8", "40300", "snd_hda_intel"),  # the sound device of a graphics card
        "0000:07:00.0": ("10DE:22A3", "68000", "nvidia-nvswitch"),
        "0000:03:00.0": ("102B:0536", "30000", "mgag200"),
    }
    for address, (number, class_code, driver) in devices.items():
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "uevent").write_text(f"DRIVER={driver}\nPCI_CLASS={class_code}\nPCI_ID={number}\n")
    (tmp_path / "sys/bus/pci/devices/0000:1b:00.4/physfn").mkdir()
    (tmp_path / "nvml.json").write_text(json.dumps({"gpus": [{"index": 0, "pci": "0000:1b:00.0", "uuid": "GPU-1"}]}))

    now = read(Host(tmp_path))

    assert now.bus == ("0000:1b:00.0",)
    assert now.nvml == (Answer("0000:1b:00.0", "GPU-1", None, ""),)
    assert len(read(Host(hosts / "dgx-h100")).bus) == 8


def test_a_whole_node_has_no_findings() -> None:
    assert found(NODE) == []


def test_a_gpu_that_vanished_is_missing_though_those_that_are_left_are_well() -> None:
    left = Inventory(ADDRESSES[:1], WELL[:1], "", ADDRESSES[:1])

    assert faults(found(left)) == {("gpus", "gpu_missing", "CRITICAL")}
    assert found(left)[0].evidence == {"on_bus": 1, "expected": 2}


def test_a_gpu_that_was_there_since_boot_is_missed_by_name_even_where_nothing_is_expected() -> None:
    left = Inventory(ADDRESSES[:1], WELL[:1], "", ADDRESSES[:1])
    memory = next_state(next_state(None, NODE), left)

    assert faults(found(left, Policy(), memory)) == {(ADDRESSES[1], "gpu_missing", "CRITICAL")}
    assert found(NODE, Policy(), memory) == []


def test_a_gpu_that_is_expected_by_address_is_missed_by_name() -> None:
    policy = Policy(expected_gpus=3, expected_pci=(*ADDRESSES, "0000:52:00.0"))

    assert faults(found(NODE, policy)) == {("0000:52:00.0", "gpu_missing", "CRITICAL")}


@pytest.mark.parametrize(("expected", "severity"), [(0, "CRITICAL"), (1, "WARNING"), (2, "CRITICAL")])
def test_a_gpu_that_nvml_leaves_out_is_no_reason_to_drain_where_the_site_expects_no_more(
    expected: int, severity: str
) -> None:
    seven = replace(NODE, nvml=WELL[:1])

    assert faults(found(seven, Policy(expected_gpus=expected))) == {(ADDRESSES[1], "gpu_not_enumerated", severity)}


def test_a_gpu_that_the_site_ignores_is_neither_missing_nor_counted_nor_judged() -> None:
    policy = Policy(expected_gpus=2, expected_pci=ADDRESSES, ignore_pci=("0000:43:00.0",))
    left = Inventory(ADDRESSES[:1], WELL[:1], "", ADDRESSES[:1])

    assert found(left, policy, NODE) == []
    assert found(replace(NODE, nvml=WELL[:1]), policy) == []
    assert faults(found(Inventory((), (), "", ()), policy, NODE)) == {(ADDRESSES[0], "gpu_missing", "CRITICAL")}


def test_a_gpu_that_is_set_aside_is_named_and_no_more() -> None:
    aside = Inventory(ADDRESSES[:1], WELL[:1], "", ADDRESSES[:1], {ADDRESSES[1]: "vfio-pci"})

    assert faults(found(aside, TWO, NODE)) == {(ADDRESSES[1], "gpu_set_aside", "INFO")}
    gone = Inventory(ADDRESSES[:1], WELL[:1], "", ADDRESSES[:1])
    assert found(gone, Policy(), next_state(next_state(None, NODE), aside)) == []


def test_a_gpu_that_nvml_does_not_list_is_named() -> None:
    assert faults(found(replace(NODE, nvml=WELL[:1]))) == {(ADDRESSES[1], "gpu_not_enumerated", "CRITICAL")}


@pytest.mark.parametrize(
    ("failure", "fault", "severity"),
    [
        (NvmlFailure.LOST, "gpu_not_answering", "CRITICAL"),
        (NvmlFailure.RESET_REQUIRED, "gpu_not_answering", "CRITICAL"),
        (NvmlFailure.UNKNOWN, "gpu_not_answering", "CRITICAL"),
        (NvmlFailure.TIMEOUT, "gpu_not_answering", "CRITICAL"),
        (NvmlFailure.OTHER, "gpu_not_answering", "MAJOR"),
        (NvmlFailure.IN_USE, "gpu_not_answering", "WARNING"),
        (NvmlFailure.VERSION_MISMATCH, "gpu_driver_unusable", "MAJOR"),
        (NvmlFailure.DRIVER_NOT_LOADED, "gpu_driver_unusable", "MAJOR"),
    ],
)
def test_a_gpu_that_does_not_answer_says_why(failure: NvmlFailure, fault: str, severity: str) -> None:
    now = replace(NODE, nvml=(WELL[0], replace(WELL[1], failure=failure, text="words")))

    (finding,) = found(now)

    assert faults([finding]) == {(ADDRESSES[1], fault, severity)}
    assert finding.evidence["nvml"] == failure.value


def test_gpus_without_a_driver_are_a_fault_and_worse_where_they_are_expected() -> None:
    now = Inventory(ADDRESSES, None, "no libnvidia-ml.so.1", ADDRESSES)

    assert faults(found(now)) == {("nvidia-driver", "gpu_driver_unusable", "CRITICAL")}
    assert faults(found(now, Policy())) == {("nvidia-driver", "gpu_driver_unusable", "WARNING")}
    assert found(now)[0].evidence["why"] == "no libnvidia-ml.so.1"


def test_a_node_without_gpus_is_skipped_unless_some_are_expected() -> None:
    bare = Inventory((), None, "no NVML")

    with pytest.raises(Unavailable, match="no NVIDIA GPU"):
        found(bare, Policy())
    assert faults(found(bare)) == {("gpus", "gpu_missing", "CRITICAL")}


def test_a_node_that_lost_all_its_gpus_is_not_taken_for_one_without() -> None:
    bare = Inventory((), None, "no NVML")

    assert {f.fault for f in found(bare, Policy(), next_state(None, NODE))} == {"gpu_missing"}


@pytest.mark.parametrize(("calls", "severity"), [(1, "WARNING"), (3, "WARNING"), (4, "MAJOR")])
def test_one_call_that_fails_is_a_quirk_and_many_are_a_fault(calls: int, severity: str) -> None:
    now = replace(NODE, nvml=(WELL[0], replace(WELL[1], refused=tuple(f"nvmlDeviceGet{n}" for n in range(calls)))))

    (finding,) = found(now)

    assert faults([finding]) == {(ADDRESSES[1], "gpu_calls_failing", severity)}
    assert finding.evidence["failing"] == calls
