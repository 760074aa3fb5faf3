"""What ipmitool says of power, fans and temperatures."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.bmc import bmc_power, bmc_sel, bmc_sensors
from nodetriage.checks.model import Program, Unavailable
from nodetriage.checks.readers import ipmi


class Bmc(Host):
    """A machine whose ipmitool gives these answers, one after the other."""

    def __init__(self, *answers: Program) -> None:
        super().__init__("/")
        self.answers = list(answers)

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        return self.answers.pop(0)


def test_a_sensor_without_a_reading_says_nothing() -> None:
    silent = ipmi.sensors("GPU5 Temp | 05h | ns | 11.5 | Disabled\nFan7F | 77h | ns | 29.7 | No Reading\n")

    assert [sensor.read for sensor in silent] == [False, False]


def test_a_supply_that_was_there_and_is_not_is_missing() -> None:
    here = ipmi.Sensor("PSU1 Status", "ok", "10.1", "Presence detected")
    before = bmc_power.Power((here,), (), ("PSU1 Status",))
    now = bmc_power.Power((replace(here, text="Absent"),), (), ())

    assert [f.fault for f in bmc_power.judge(now, before, bmc_power.Policy())] == ["psu_missing"]
    assert bmc_power.next_state(before, now).seen == ("PSU1 Status",)


def test_an_empty_bay_is_no_supply_that_went_missing() -> None:
    bay = bmc_power.Power((ipmi.Sensor("PSU4 Status", "ok", "10.4", "Absent"),), (), ())

    assert list(bmc_power.judge(bay, bay, bmc_power.Policy())) == []


def test_a_bmc_that_is_busy_is_asked_again() -> None:
    busy = Program(1, "", "Get SDR 0005 command failed: Node busy\n")
    bmc = Bmc(busy, busy, Program(0, "Fan1 | 03h | ok | 29.1 | 8400 RPM\n", ""))

    assert ipmi.sensors(ipmi.ask(bmc, "sdr", "type", "Fan"))[0].text == "8400 RPM"


def test_a_machine_without_a_bmc_is_skipped() -> None:
    words = "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: No such file or directory\n"
    with pytest.raises(Unavailable, match="no BMC"):
        bmc_sensors.read(Bmc(Program(1, "", words)))


def test_a_bmc_out_of_reach_is_not_answering() -> None:
    air = bmc_sensors.read(Bmc(Program(1, "", "Error: Unable to establish IPMI v2 / RMCP+ session\n")))

    assert [f.fault for f in bmc_sensors.judge(air, None, bmc_sensors.Policy())] == ["bmc_not_answering"]


def test_a_bmc_that_refuses_is_not_well() -> None:
    with pytest.raises(ValueError, match="Insufficient privilege"):
        ipmi.ask(Bmc(Program(1, "", "Get SEL Info command failed: Insufficient privilege level\n")), "sel", "info")


@given(st.text())
def test_no_answer_of_ipmitool_is_read_as_something_it_is_not(text: str) -> None:
    try:
        ipmi.sensors(text)
    except ValueError as error:
        assert "expected" in str(error)  # noqa: PT017 the words are for the person who must find the BMC


def test_the_recorded_bmc_gives_its_sensors_and_its_log(hosts: Path) -> None:
    host = Host(hosts / "dgx-h100")

    assert [unit.text for unit in bmc_power.read(host).units] == ["Fully Redundant"]
    assert [entry.record for entry in bmc_sel.read(host).entries] == [1, 2, 3]
