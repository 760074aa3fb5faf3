"""A fault of hours ago at the agent's first look: its line is history, and what is left of it the GPU's state says."""

import json
from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.agent.settings.config import defaults
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Severity
from nodetriage.checks.registry import ALL

GPU, SIBLING = "0000:1b:00.0", "0000:43:00.0"
LINES = {
    79: "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    119: "NVRM: Xid (PCI:0000:1b:00): 119, pid=4711, name=python3, Timeout after 45s waiting for RPC from GSP!",
}
AT_S, NOW_S = 600.0, 9 * 3600.0  # of the line and of the first look, since boot


def machine(
    folder: Path, xid: int, *, on_bus: bool = True, lanes: int = 16, failure: str | None = None, **facts: int
) -> Path:
    for address in (GPU, SIBLING):
        device = folder / "sys/bus/pci/devices" / address
        if address == GPU and not on_bus:
            continue
        device.mkdir(parents=True)
        width = lanes if address == GPU else 16
        for name, text in (
            ("vendor", "0x10de"),
            ("device", "0x2330"),
            ("class", "0x030200"),
            ("current_link_width", width),
        ):
            (device / name).write_text(f"{text}\n")
    well = {"recovery_action": 0}
    gpus = [
        {"index": 0, "pci": GPU, "uuid": "GPU-0", "facts": well | facts, **({"failure": failure} if failure else {})},
        {"index": 1, "pci": SIBLING, "uuid": "GPU-1", "facts": well},
    ]
    (folder / "nvml.json").write_text(json.dumps({"gpus": gpus[0 if on_bus else 1 :]}))
    (folder / "dev").mkdir()
    (folder / "dev/kmsg").write_text(f"4,1,{AT_S * 1e6:.0f},-;{LINES[xid]}\n")
    (folder / "clock.toml").write_text(f"boottime_s = {NOW_S}\n")
    return folder


def serious(folder: Path) -> set[tuple[str, str, str]]:
    """What every check that is on finds of the GPU in its first look, above info."""
    host, found = Host(folder), set()
    for check in defaults(ALL).enabled:
        result = run(check, host.for_check(check), check.policy, None)
        found |= {(f.component, f.fault, f.severity.name) for f in result.findings if f.severity > Severity.INFO}
    return {one for one in found if one[0] == GPU}


@pytest.mark.parametrize("xid", LINES)
def test_a_gpu_that_works_again_since_is_well(xid: int, tmp_path: Path) -> None:
    assert serious(machine(tmp_path, xid)) == set()


@pytest.mark.parametrize("failure", ["gpu_is_lost", "unknown", "reset_required", "timeout"])
@pytest.mark.parametrize("xid", LINES)
def test_a_gpu_that_still_answers_nobody_is_found_by_nvml(xid: int, failure: str, tmp_path: Path) -> None:
    assert serious(machine(tmp_path, xid, failure=failure)) == {(GPU, "gpu_not_answering", "CRITICAL")}


def test_a_gpu_that_answers_on_pcie_with_ones_only_is_found_on_the_bus(tmp_path: Path) -> None:
    assert (GPU, "pcie_off_bus", "CRITICAL") in serious(machine(tmp_path, 79, lanes=63, failure="gpu_is_lost"))


def test_a_gpu_that_left_the_bus_is_named_though_nothing_expects_it(tmp_path: Path) -> None:
    assert serious(machine(tmp_path, 79, on_bus=False)) == {(GPU, "kernel_line_unknown_device", "WARNING")}


def test_a_gpu_that_works_and_whose_driver_asks_for_a_reset_is_found_by_its_recovery_action(tmp_path: Path) -> None:
    assert {fault for _, fault, _ in serious(machine(tmp_path, 119, recovery_action=1))} == {"gpu_recovery_needed"}
