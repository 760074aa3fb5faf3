"""What ipmitool says of power, fans and temperatures."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.bmc import bmc_power, bmc_sel, bmc_sensors
from nodetriage.checks.model import Program, Severity, Unavailable
from nodetriage.checks.readers import ipmi


class Bmc(Host):
    """A machine whose ipmitool gives these answers, one after the other."""

    def __init__(self, *answers: Program) -> None:
        super().__init__("/")
        self.answers = list(answers)

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        return self.answers.pop(0)


def power(supplies: str, units: str = "", before: bmc_power.Power | None = None) -> bmc_power.Power:
    """One run of bmc_power on what `ipmitool sdr type` prints, after the run that gave `before`."""
    now = bmc_power.read(Bmc(Program(0, supplies, ""), Program(0, units, "")))
    return bmc_power.next_state(before, now)


def power_faults(supplies: str, units: str = "", before: str = "") -> dict[tuple[str, str], Severity]:
    earlier = power(before) if before else None
    now = bmc_power.read(Bmc(Program(0, supplies, ""), Program(0, units, "")))
    return {(f.component, f.fault): f.severity for f in bmc_power.judge(now, earlier, bmc_power.Policy())}


def air_faults(temperatures: str = "", fans: str = "") -> dict[tuple[str, str], Severity]:
    air = bmc_sensors.read(Bmc(Program(0, fans, ""), Program(0, temperatures, "")))
    return {(f.component, f.fault): f.severity for f in bmc_sensors.judge(air, None, bmc_sensors.Policy())}


def test_a_sensor_without_a_reading_says_nothing() -> None:
    silent = ipmi.sensors("GPU5 Temp | 05h | ns | 11.5 | Disabled\nFan7F | 77h | ns | 29.7 | No Reading\n")

    assert [sensor.read for sensor in silent] == [False, False]


PRESENT = "PSU1 Status | 41h | ok | 10.1 | Presence detected\nPSU2 Status | 42h | ok | 10.2 | Presence detected\n"


@pytest.mark.parametrize("gone", ["Absent", ""])
def test_a_supply_that_was_there_and_is_not_is_missing(gone: str) -> None:
    now = PRESENT.replace("10.2 | Presence detected", f"10.2 | {gone}")

    assert power_faults(now, before=PRESENT) == {("PSU2 Status", "psu_missing"): Severity.WARNING}
    assert power(now, before=power(PRESENT)).seen == ("PSU1 Status", "PSU2 Status")


@pytest.mark.parametrize("unread", ["ns | 10.2 | No Reading", "ns | 10.2 | Disabled", "ok | 10.2 | Not Readable"])
def test_a_supply_that_the_bmc_cannot_read_is_not_missing(unread: str) -> None:
    now = PRESENT.replace("ok | 10.2 | Presence detected", unread)

    assert power_faults(now, before=PRESENT) == {}


def test_an_empty_bay_is_no_supply_that_went_missing() -> None:
    bay = PRESENT + "PSU4 Status | 44h | ok | 10.4 | Absent\n"

    assert power_faults(bay, before=bay) == {}


DELL = "".join(f"Status | 6{n + 3}h | ok | 10.{n} | Presence detected\n" for n in (1, 2, 3, 4))


def test_supplies_of_one_name_are_told_apart_by_their_entity() -> None:
    now = (
        "Status | 64h | ok | 10.1 | Presence detected\n"
        "Status | 65h | ok | 10.2 | Presence detected, Power Supply AC lost\n"
        "Status | 66h | ok | 10.3 | Presence detected, Failure detected\nStatus | 67h | ok | 10.4 | \n"
    )

    assert power_faults(now, before=DELL) == {
        ("Status 10.2", "psu_input_lost"): Severity.WARNING,
        ("Status 10.3", "psu_failed"): Severity.WARNING,
        ("Status 10.4", "psu_missing"): Severity.WARNING,
    }
    assert power_faults(DELL, before=DELL) == {}


def test_sensors_of_one_name_and_entity_are_told_apart_by_their_number() -> None:
    two = "Status | 64h | ok | 10.1 | Presence detected\nStatus | 65h | ok | 10.1 | Failure detected\n"

    assert power_faults(two) == {("Status 65h", "psu_failed"): Severity.WARNING}


LOST, WARNED = Severity.MAJOR, Severity.WARNING


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("PS Redundancy | 74h | ok | 7.1 | Redundancy Lost", LOST),  # Dell
        ("PS Redundancy | 74h | ok | 7.1 | Redundancy Degraded", WARNED),
        ("PSU Redundancy | E8h | ok | 7.1 | Non-Redundant: Insufficient Resources", LOST),  # DGX-1
        ("Power Supplies | 3Eh | ok | 10.3 | Non-Redundant: Sufficient from Redundant", LOST),  # HPE
        ("REDUNDANCY_PSU | 3Eh | ok | 10.3 | Redundancy Lost", LOST),  # DGX A100
        ("PS_RDNDNT_MODE | 3Eh | ok | 10.3 | Redundancy Lost", LOST),  # Cisco
        ("PS Redundancy | 74h | ok | 7.1 | Fully Redundant", None),
        ("PS Redundancy | 74h | ns | 7.1 | No Reading", None),
        ("PS Redundancy | 74h | ok | 7.1 | ", None),
    ],
)
def test_redundancy_is_seen_whichever_type_the_maker_gave_its_sensor(line: str, severity: Severity | None) -> None:
    wanted = {(line.partition(" |")[0], "psu_redundancy_lost"): severity} if severity else {}

    assert power_faults(PRESENT + line) == wanted
    assert power_faults(PRESENT, units=line) == wanted


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("Power Supply 1 | 3Ch | ok | 10.1 | 0 Watts, Presence detected, Failure detected", "psu_failed"),  # HPE
        ("Power Supply 1 | 3Ch | ok | 10.1 | 50 Watts, Presence detected", None),
        ("PSU1 AC Lost | 3Ch | ok | 10.1 | State Asserted", "psu_input_lost"),  # ASUS
        ("PSU1 AC Lost | 3Ch | ok | 10.1 | State Deasserted", None),
        ("PSU1 Over Temp | 3Ch | ok | 10.1 | State Asserted", "psu_failed"),
        ("PSU1_PWRGD | 3Ch | ok | 10.1 | State Asserted", None),  # Cisco: that is good
        ("PSU1_Status | 3Ch | nc | 10.1 | 0 unspecified", None),  # Inspur
        ("PSU1 Input | 3Ch | lcr | 10.1 | 0 Watts", None),  # in standby
    ],
)
def test_makers_print_the_state_of_a_supply_in_their_own_ways(line: str, fault: str | None) -> None:
    assert [f for _, f in power_faults(PRESENT.replace("PSU1 Status", "PSU9") + line)] == ([fault] if fault else [])


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("Inlet Temp | 01h | unc | 39.1 | 44 degrees C", Severity.WARNING),
        ("Inlet Temp | 01h | ucr | 39.1 | 47 degrees C", Severity.MAJOR),
        ("CPU1 Temp | 01h | unr | 3.1 | 105 degrees C", Severity.CRITICAL),
        ("CPU1 Temp | 01h | nr | 3.1 | 105 degrees C", Severity.CRITICAL),
        ("CPU0_Margin_Temp | 01h | lcr | 3.1 | 1 degrees C", Severity.MAJOR),
        ("P1 VRD Hot | 01h | ok | 3.1 | Limit Exceeded", Severity.MAJOR),
        ("CPU1_PROCHOT | 01h | ok | 3.1 | State Asserted", Severity.WARNING),
        ("Inlet Temp | 01h | lcr | 39.1 | 3 degrees C", None),
        ("CPU1 Temp | 01h | lnr | 3.1 | 0 degrees C", None),
        ("CPU1 Temp | 01h | nr | 3.1 | 0 degrees C", None),
        ("CPU0_Margin_Temp | 01h | ucr | 3.1 | 60 degrees C", None),
        ("P1 VRD Hot | 01h | ok | 3.1 | Limit Not Exceeded", None),
        ("CPU1_Present | 01h | ok | 3.1 | State Asserted", None),
        ("CPU1 Temp | 01h | ok | 3.1 | Transition to OK", None),
    ],
)
def test_only_the_side_that_is_heat_counts(line: str, severity: Severity | None) -> None:
    name = line.partition(" |")[0]

    assert air_faults(line) == ({(name, "bmc_temperature"): severity} if severity else {})


def test_two_processors_whose_sensors_share_a_name_are_told_apart() -> None:
    dell = "Temp | 0Eh | ok | 3.1 | 55 degrees C\nTemp | 0Fh | ucr | 3.2 | 99 degrees C\n"

    assert air_faults(dell) == {("Temp 3.2", "bmc_temperature"): Severity.MAJOR}


def test_a_discrete_fan_that_failed_is_found_and_one_that_is_well_is_not() -> None:
    assert air_faults(fans="Fan 3 | 07h | ok | 7.3 | Transition to Critical from less severe") == {
        ("Fan 3", "bmc_fan"): Severity.WARNING
    }
    assert air_faults(fans="Fan 3 | 07h | ok | 7.3 | Transition to OK, Device Present, Fully Redundant") == {}


@pytest.mark.parametrize(
    "words",
    [
        "Get Device ID command failed: 0xc3 Timeout\nUnable to open SDR for reading\n",
        "Get SEL Info command failed: Unspecified error\n",
        "Get Device ID command failed: 0xd2 BMC initialization in progress\n",
        "Get Device ID command failed: 0xd1 Device firmeware in update mode\n",
    ],
)
def test_a_bmc_that_hangs_starts_or_is_updated_is_not_answering(words: str) -> None:
    air = bmc_sensors.read(Bmc(Program(1, "", words)))

    assert [f.fault for f in bmc_sensors.judge(air, None, bmc_sensors.Policy())] == ["bmc_not_answering"]


def test_a_bmc_that_is_busy_is_asked_again() -> None:
    busy = Program(1, "", "Get SDR 0005 command failed: Node busy\n")
    bmc = Bmc(busy, busy, Program(0, "Fan1 | 03h | ok | 29.1 | 8400 RPM\n", ""))

    assert ipmi.sensors(ipmi.ask(bmc, "sdr", "type", "Fan"))[0].text == "8400 RPM"


def test_a_machine_without_a_bmc_is_skipped() -> None:
    words = "IANA PEN registry open failed: No such file or directory\n"
    words += "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: No such file or directory\n"
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
