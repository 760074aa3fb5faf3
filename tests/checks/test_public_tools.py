"""Answers of programs from public reports: each has what an engineer would call a fault, and nothing else."""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from nodetriage.checks.bmc import bmc_power, bmc_sensors
from nodetriage.checks.fabric import nic_cables, nic_health
from nodetriage.checks.model import Finding, Severity
from nodetriage.checks.readers import ipmi, smart
from nodetriage.checks.readers.disks import Disk
from nodetriage.checks.readers.tools import devlink, mlxlink, raid
from nodetriage.checks.storage import disk_health, raid_controller

ANSWERS = tomllib.loads((Path(__file__).parent / "data/tools_public.toml").read_text())["answer"]


def power(text: str) -> Iterable[Finding]:
    supplies = tuple(s for s in ipmi.sensors(text) if s.readable and (s.states or not s.text))
    return bmc_power.judge(bmc_power.Power(supplies, (), ()), None, bmc_power.Policy())


def air(text: str) -> bmc_sensors.Air:
    sensors = tuple(s for s in ipmi.sensors(text) if s.read)
    return bmc_sensors.Air(sensors, sensors)


def disk(health: smart.Smart) -> Iterable[Finding]:
    return disk_health.judge((Disk("disk", "/dev/nvme0", smart=health),), None, disk_health.Policy())


JUDGES: dict[str, Callable[[str], Iterable[Finding]]] = {
    "ipmitool sdr type Power Supply": power,
    "ipmitool sdr type Fan": lambda text: bmc_sensors.judge(air(text), None, bmc_sensors.Policy()),
    "ipmitool sdr type Temperature": lambda text: bmc_sensors.judge(air(text), None, bmc_sensors.Policy()),
    "nvme smart-log": lambda text: disk(smart.nvme(text)),
    "smartctl": lambda text: disk(smart.smartctl(text)),
    "storcli": lambda text: raid_controller.judge(raid.storcli(text), None, raid_controller.Policy()),
    "ssacli": lambda text: raid_controller.judge(raid.ssacli(text), None, raid_controller.Policy()),
    "mlxlink": lambda text: nic_cables.judge((mlxlink.cable(text, "cable", "mlx5_0"),), None, nic_cables.Policy()),
    "devlink": lambda text: nic_health.judge(devlink.reporters(text), None, nic_health.Policy()),
}


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"{answer['program']}: {answer['source']}"[:70])
def test_a_public_answer_gives_its_faults_and_nothing_else(answer: dict[str, Any]) -> None:
    findings = JUDGES[answer["program"]](answer["text"])

    found = [[f.component, f.fault, f.severity.name.lower()] for f in findings if f.severity > Severity.INFO]
    assert sorted(found) == sorted(answer["found"])


def test_each_program_has_answers_and_enough_are_healthy() -> None:
    assert set(JUDGES) == {answer["program"] for answer in ANSWERS}
    assert len(ANSWERS) >= 25
    assert Counter(bool(answer["found"]) for answer in ANSWERS)[False] >= 10
