"""Machines as real ones were, over several looks: what must be found, and a twin each that must not be."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.agent.settings.config import defaults
from nodetriage.agent.settings.expected import with_profile
from nodetriage.agent.workers.run import run
from nodetriage.checks.registry import ALL

Gpus = list[dict[str, Any]]
Found = set[tuple[str, str, str]]
G = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")]


class Machine:
    """A machine like a recorded one, whose later looks differ."""

    def __init__(self, folder: Path, hosts: Path, like: str) -> None:
        self._folder, self._like, self._looks = folder, like, 0
        for name in {like, *_bases(hosts, like)}:
            (folder / name).symlink_to(hosts / name)
        self.gpus: Gpus = json.loads((hosts / like / "nvml.json").read_text())["gpus"]
        self._memories: dict[str, Any] = {}

    def look(self, after_s: float, files: dict[str, str] | None = None) -> Found:
        """What the GPU checks find at this time since the machine was recorded, above info."""
        self._looks += 1
        tree = self._folder / f"look{self._looks}"
        clock = {"clock.toml": f"boottime_s = {100_000 + after_s}\n", "like.toml": f'tree = "{self._like}"\n'}
        for name, text in {**clock, "nvml.json": json.dumps({"gpus": self.gpus}), **(files or {})}.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        host, found = Host(tree), set()
        for check in with_profile(defaults([c for c in ALL if c.name.startswith("gpu_")]), host).enabled:
            result = run(check, host.for_check(check), check.policy, self._memories.get(check.name))
            self._memories[check.name] = result.memory
            assert result.outcome.value != "broken", result
            found |= {(f.component, f.fault, f.severity.name) for f in result.findings if f.severity.name != "INFO"}
        return found

    def facts(self, pci: str | None = None, **facts: object) -> None:
        """Changes facts of one GPU, or of all."""
        for gpu in self.gpus:
            if pci in (None, gpu["pci"]):
                gpu["facts"].update(facts)


def _bases(hosts: Path, name: str) -> set[str]:
    like = hosts / name / "like.toml"
    return (
        {line.split('"')[1] for line in like.read_text().splitlines() if line.startswith("tree")}
        if like.exists()
        else set()
    )


@pytest.fixture
def machine(hosts: Path, tmp_path: Path) -> Callable[[str], Machine]:
    return lambda like: Machine(tmp_path, hosts, like)


INFORMATION = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 42\nGPU Excluded:\t {}\n"


def test_a_gpu_that_the_driver_leaves_out_is_not_missing_and_one_that_it_cannot_start_is(
    machine: Callable[[str], Machine],
) -> None:
    node = machine("dgx-h100")
    node.gpus = [gpu for gpu in node.gpus if gpu["pci"] != G[3]]
    information = f"proc/driver/nvidia/gpus/{G[3]}/information"

    assert node.look(0, {information: INFORMATION.format("Yes")}) == set()
    assert node.look(300, {information: INFORMATION.format("No")}) == {(G[3], "gpu_not_enumerated", "CRITICAL")}
    node.gpus.append({"index": -1, "pci": G[3], "failure": "excluded"})
    assert node.look(600) == set()


def test_a_gpu_that_was_bound_to_a_virtual_machine_is_not_missing_and_one_that_vanished_is(
    machine: Callable[[str], Machine], hosts: Path
) -> None:
    node = machine("dgx-h100")
    assert node.look(0) == set()
    node.gpus = [gpu for gpu in node.gpus if gpu["pci"] != G[3]]
    folder = "sys/devices/pci0000:60/0000:60:01.0/0000:61:00.0"
    uevent = (hosts / "dgx-h100" / folder / "uevent").read_text()

    for driver in ("vfio-pci", "nvgrace-gpu-vfio-pci", "pci-stub"):
        assert node.look(300, {f"{folder}/uevent": uevent.replace("DRIVER=nvidia", f"DRIVER={driver}")}) == set()
    gone = {"like.toml": f'tree = "dgx-h100"\nwithout = ["/sys/bus/pci/devices/{G[3]}"]\n'}
    assert ("gpus", "gpu_missing", "CRITICAL") in node.look(600, gone)


def test_a_contained_memory_error_is_one_verdict_by_its_xid_and_an_uncontained_one_is_graver(
    machine: Callable[[str], Machine],
) -> None:
    line = (
        "3,1002,100290000000,-;NVRM: Xid (PCI:0000:1b:00): {}, pid=3112, name=python3, Ch 00000008, errorString "
        "CTX SWITCH TIMEOUT, Info 0x0; Contained: SM (0x1). RST: No, D-RST: No\n"
    )
    node = machine("dgx-h100")
    node.look(0, {"dev/kmsg": ""})
    for count, xid, severity in ((1, 94, "MAJOR"), (2, 95, "CRITICAL")):
        node.facts(G[0], ecc_uncorrected_volatile=count)
        at_s = 600 * count
        found = node.look(at_s, {"dev/kmsg": line.format(xid).replace("100290", str(100_000 + at_s - 10))})

        assert (G[0], "gpu_ecc_uncorrected", severity) in found
        assert {s for _, _, s in found} == {severity}


def test_a_restarted_fabric_manager_has_time_to_take_the_gpus_in_again_and_then_none(
    machine: Callable[[str], Machine],
) -> None:
    node = machine("dgx-h100")
    assert node.look(0) == set()
    node.facts(fabric_state=2)

    for after_s in (60, 120, 600):
        assert node.look(after_s) == {(gpu, "gpu_fabric_incomplete", "WARNING") for gpu in G}
    assert node.look(700) == {(gpu, "gpu_fabric_incomplete", "CRITICAL") for gpu in G}
    node.facts(fabric_state=3)
    assert node.look(760) == set()


def test_a_gpu_that_software_slows_for_heat_is_one_finding_and_not_a_slow_link_too(
    machine: Callable[[str], Machine],
) -> None:
    node = machine("dgx-a100")
    node.facts("0000:47:00.0", clocks_event_reasons=0x20, temperature_c=85)
    looks = [node.look(300.0 * n) for n in range(3)]

    assert looks == [set(), set(), {("0000:47:00.0", "gpu_throttled", "WARNING")}]


@pytest.mark.parametrize(
    ("mask", "severity"),
    [(0x91AA, "MAJOR"), (0x61AA, "MAJOR"), (0x51AA, None), (0x51A9, "CRITICAL"), (0x54AA, "CRITICAL")],
)
def test_each_part_of_the_fabric_s_health_has_its_own_bad_value(
    mask: int, severity: str | None, machine: Callable[[str], Machine]
) -> None:
    node = machine("gb200-nvl72-tray")
    node.facts("0008:01:00.0", fabric_health=mask)

    expected = {("0008:01:00.0", "gpu_fabric_incomplete", severity)} if severity else set()
    assert node.look(0) == expected


def test_gpus_of_one_node_in_different_cliques_are_found_and_all_in_another_one_are_not(
    machine: Callable[[str], Machine],
) -> None:
    node = machine("gb200-nvl72-tray")
    node.facts(fabric_clique=7, fabric_cluster="07070707-0707-0707-0707-070707070707")
    assert node.look(0) == set()
    node.facts("0019:01:00.0", fabric_clique=8)

    assert node.look(300) == {("0019:01:00.0", "gpu_fabric_split", "MAJOR")}


def test_a_recorded_tree_without_nvml_says_nothing_about_the_driver(tmp_path: Path, hosts: Path) -> None:
    (tmp_path / "dgx-h100").symlink_to(hosts / "dgx-h100")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/like.toml").write_text('tree = "dgx-h100"\nwithout = ["/nvml.json"]\n')
    (check,) = (c for c in ALL if c.name == "gpu_lost")

    result = run(check, Host(tmp_path / "tree").for_check(check), check.policy, None)

    assert (result.outcome.value, result.findings, result.why) == ("skipped", (), "not looked at: nvml")
