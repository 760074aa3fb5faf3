"""What a BMC's Redfish service says, in the shapes of several makers, and what the checks make of it."""

import json
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.bmc import bmc_power, bmc_redfish, bmc_sel, bmc_sensors
from nodetriage.checks.model import Finding, Severity, Unavailable
from nodetriage.checks.readers import sel
from nodetriage.checks.readers.redfish.log import HardwareLog, LogEntry, moment, read_log
from nodetriage.checks.readers.redfish.parts import Board, Leak, Rollup
from nodetriage.checks.rules.event_log import redfish_rules

V = "/redfish/v1"
OK = {"State": "Enabled", "Health": "OK"}
BROKEN = {"State": "Enabled", "Health": "Critical"}
WORN = {"State": "Enabled", "Health": "Warning"}


class Bmc(Host):
    """A machine without ipmitool whose Redfish service has these resources, by path below /redfish/v1."""

    def __init__(self, resources: dict[str, Any]) -> None:
        super().__init__("/")
        self.call_programs({name: (f"/nowhere/{name}",) for name in ("ipmitool", "ipmi-sel", "bmc-device")})
        self.resources = resources
        self.asked: list[str] = []

    def redfish(self, path: str, keep_s: float = 0.0) -> str:
        below = path.removeprefix(V).strip("/")
        self.asked.append(below)
        if below not in self.resources:
            raise FileNotFoundError(2, "no such resource", path)
        return json.dumps(self.resources[below])


def links(*paths: str) -> dict[str, Any]:
    return {"Members": [{"@odata.id": f"{V}/{path}"} for path in paths], "Members@odata.count": len(paths)}


def system(name: str, logs: str = "", chassis: str = "1") -> dict[str, Any]:
    """A system with its chassis, and with one hardware log where it has a name."""
    found: dict[str, Any] = {
        "Systems": links(f"Systems/{name}"),
        f"Systems/{name}": {
            "Status": {"HealthRollup": "OK"},
            "Links": {"Chassis": [{"@odata.id": f"{V}/Chassis/{chassis}"}]},
        },
        f"Chassis/{chassis}": {"Status": {"HealthRollup": "OK"}},
    }
    if logs:
        found[f"Systems/{name}"]["LogServices"] = {"@odata.id": f"{V}/Systems/{name}/LogServices"}
        found |= service(f"Systems/{name}/LogServices", logs)
    return found


def service(path: str, log: str) -> dict[str, Any]:
    return {
        path: links(f"{path}/Dump", f"{path}/{log}"),
        f"{path}/{log}": {
            "DateTime": "2026-12-01T06:00:00+00:00",
            "Entries": {"@odata.id": f"{V}/{path}/{log}/Entries"},
        },
    }


def entry(number: int, message: str, severity: str = "Critical", *arguments: str, **more: Any) -> dict[str, Any]:
    return {
        "Id": str(number),
        "Created": "2026-12-01T05:41:57+00:00",
        "Severity": severity,
        "MessageId": message,
        "MessageArgs": list(arguments),
        "Message": "words",
        **more,
    }


def members(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"Members": list(entries), "Members@odata.count": len(entries)}


def told(log: HardwareLog, *sel_lines: str) -> list[tuple[str, str, Severity]]:
    """What a later run finds of a hardware log of which an earlier one knew nothing."""
    entries, _ = sel.log_entries("\n".join(sel_lines))
    now = bmc_sel.EventLog(log.now_s, 0, overflow=False, entries=entries, redfish=log)
    before = replace(now, entries=(), redfish=HardwareLog(log.now_s))
    return [(f.component, f.fault, f.severity) for f in bmc_sel.judge(now, before, bmc_sel.Policy())]


GPU = {"Links": {"OriginOfCondition": {"@odata.id": f"{V}/Systems/HGX_Baseboard_0/Processors/GPU_SXM_3"}}}


@pytest.mark.parametrize(
    ("one", "finding"),
    [
        (
            entry(
                1, "ResourceEvent.1.0.ResourceErrorsDetected", "Critical", "GPU_SXM_3 SRAM", "Uncorrectable ECC", **GPU
            ),
            ("GPU_SXM_3", "bmc_gpu", Severity.CRITICAL),
        ),
        (
            entry(1, "ResourceEvent.1.0.ResourceErrorsDetected", "Warning", "GPU_SXM_3 Memory", "Contained ECC Error"),
            ("GPU_SXM_3", "bmc_gpu", Severity.WARNING),
        ),
        (
            entry(1, "ResourceEvent.1.1.ResourceStateChanged", "Critical", "GPU_SXM_3", "Absent"),
            ("GPU_SXM_3", "bmc_gpu", Severity.CRITICAL),
        ),
        (
            entry(1, "OpenBMC.0.4.MemoryECCUncorrectable", "Critical", "DIMM_A1"),
            ("DIMM_A1", "bmc_memory_uncorrectable", Severity.CRITICAL),
        ),
        (
            entry(1, "OpenBMC.0.4.PowerSupplyPowerGoodFailed", "Critical", "PSU0"),
            ("PSU0", "bmc_power_supply", Severity.CRITICAL),
        ),
        (
            entry(1, "Environmental.1.0.LeakDetectedCritical", "Critical", "L0"),
            ("L0", "bmc_leak_logged", Severity.CRITICAL),
        ),
        (entry(1, "PSU0003", "Critical", "PSU.Slot.2"), ("PSU.Slot.2", "bmc_power_supply", Severity.CRITICAL)),
        (
            entry(1, "IDRAC.2.8.MEM0001", "Critical", "DIMM.Socket.A1"),
            ("DIMM.Socket.A1", "bmc_memory_uncorrectable", Severity.CRITICAL),
        ),
        (entry(1, "iLOEvents.3.0.SomethingNew", "Critical"), ("bmc", "bmc_hardware_failure", Severity.MAJOR)),
        (entry(1, "USR0030", "Warning"), ("bmc", "bmc_management", Severity.WARNING)),
        (entry(1, "OpenBMC.0.4.DCPowerOn", "OK"), None),
        (entry(1, "OpenBMC.0.4.MemoryECCUncorrectable", "Critical", "DIMM_A1", Resolved=True), None),
        (entry(1, "OpenBMC.0.4.CPUThermalTrip", "OK", "CPU0"), None),
    ],
)
def test_an_entry_has_the_severity_that_its_sender_gave_it(
    one: dict[str, Any], finding: tuple[Any, ...] | None
) -> None:
    tree = {**system("system", "EventLog"), "Systems/system/LogServices/EventLog/Entries": members(one)}

    assert told(read_log(Bmc(tree))) == ([finding] if finding else [])


ECC = entry(1, "OpenBMC.0.4.MemoryECCUncorrectable", "Critical", "DIMM_A1")


def test_the_log_is_found_under_each_makers_name() -> None:
    for name, log in (
        ("system", "EventLog"),
        ("1", "IML"),
        ("1", "PlatformLog"),
        ("1", "Log1"),
        ("HGX_Baseboard_0", "EventLog"),
    ):
        tree = {**system(name, log), f"Systems/{name}/LogServices/{log}/Entries": members(ECC)}
        assert [e.message_id for e in read_log(Bmc(tree)).entries] == ["OpenBMC.MemoryECCUncorrectable"]


def test_a_maker_that_keeps_the_log_with_the_manager_has_it_there() -> None:
    dell = "Managers/iDRAC.Embedded.1"
    tree = {
        **system("System.Embedded.1"),
        "Managers": links(dell),
        dell: {"LogServices": {"@odata.id": f"{V}/{dell}/LogServices"}},
        **service(f"{dell}/LogServices", "Sel"),
        f"{dell}/LogServices/Sel/Entries": members(ECC),
    }

    assert len(read_log(Bmc(tree)).entries) == 1


def test_members_of_other_collections_are_left_out() -> None:
    tree = {**system("DGX", "EventLog"), "Systems/DGX/LogServices/EventLog/Entries": members(ECC)}
    tree["Systems"] = links("Systems/DGX", "Systems/HGX_Baseboard_0/LogServices/FDR", "Managers/BMC", "Systems/../x")
    bmc = Bmc(tree)

    assert len(read_log(bmc).entries) == 1
    assert not [path for path in bmc.asked if "FDR" in path or "Managers" in path or ".." in path]


def test_a_long_log_is_asked_for_its_end() -> None:
    path = "Systems/system/LogServices/EventLog/Entries"
    page = [entry(n, "OpenBMC.0.4.DCPowerOn", "OK") for n in range(1000)]
    tree = {
        **system("system", "EventLog"),
        path: {"Members": page, "Members@odata.count": 1200},
        f"{path}?$skip=1136": {"Members": [{**ECC, "Id": "1200"}], "Members@odata.count": 1200},
    }

    assert "1200" in [e.id for e in read_log(Bmc(tree)).entries]


def test_a_log_that_lists_links_alone_is_read_entry_by_entry_up_to_a_bound() -> None:
    path = "Systems/1/LogServices/IML/Entries"
    tree = {**system("1", "IML"), path: links(*(f"{path}/{n}" for n in range(30)))}
    tree |= {f"{path}/{n}": {**ECC, "Id": str(n)} for n in range(30)}
    bmc = Bmc(tree)

    assert len(read_log(bmc).entries) == 8
    assert len(bmc.asked) < 15


def sel_line(at: str, event: str = "Memory DIMM_A1 | Uncorrectable ECC | Asserted") -> str:
    return f"   7 | 12/01/26 | {at} UTC | {event}"


def test_an_event_that_the_sel_has_too_is_one_finding() -> None:
    log = HardwareLog(
        1.0, read_log(Bmc({**system("s", "EventLog"), "Systems/s/LogServices/EventLog/Entries": members(ECC)})).entries
    )
    in_both = [("Memory DIMM_A1", "bmc_memory_uncorrectable", Severity.CRITICAL)]
    only_there = ("DIMM_A1", "bmc_memory_uncorrectable", Severity.CRITICAL)

    assert told(log, sel_line("05:42:30")) == in_both
    assert told(log, sel_line("05:52:30")) == [*in_both, only_there]
    assert [f[1] for f in told(log, sel_line("05:42:30", "Fan Fan 3 | Lower Critical going low | Asserted"))] == [
        "bmc_cooling",
        "bmc_memory_uncorrectable",
    ]


def log_of(*ages_s: float) -> HardwareLog:
    one = LogEntry("log", "", 0.0, "Critical", "OpenBMC.MemoryECCUncorrectable", ("DIMM_A1",), "", "words")
    now_s = moment("2026-12-01T06:00:00Z")
    return HardwareLog(now_s, tuple(replace(one, id=str(n), created_s=now_s - age) for n, age in enumerate(ages_s)))


def test_the_first_run_takes_what_is_young_and_a_later_one_what_is_new() -> None:
    now = log_of(86400.0, 600.0)

    assert [e.id for e in redfish_rules.new(now, None, 3600.0)] == ["1"]
    assert redfish_rules.new(replace(now, now_s=-1.0), None, 3600.0) == ()
    assert redfish_rules.new(now, now, 3600.0) == ()
    assert [e.id for e in redfish_rules.new(now, log_of(86400.0), 0.0)] == ["1"]


@pytest.mark.parametrize(
    "written", ["", "0000-00-00T00:00:00Z", "2026-12-01", "2026-12-01T06:00:00", "1970-01-01T00:00:09Z", "x"]
)
def test_a_date_that_means_nothing_is_none(written: str) -> None:
    assert moment(written) == -1.0


def test_dells_offset_without_a_colon_is_a_date() -> None:
    assert moment("2026-12-01T00:00:00-0600") == moment("2026-12-01T06:00:00Z")


# Power and air where ipmitool has none.


def found(check: Any, bmc: Bmc, before: Bmc | None = None) -> set[tuple[str, str, Severity]]:
    earlier = check.next_state(None, check.read(before)) if before else None
    return {(f.component, f.fault, f.severity) for f in check.judge(check.read(bmc), earlier, check.policy)}


def supplies(*status: dict[str, Any] | None, redundancy: str = "OK") -> Bmc:
    """The present model: a resource for each supply."""
    base = "Chassis/1/PowerSubsystem"
    names = [f"{base}/PowerSupplies/{n}" for n in range(len(status))]
    return Bmc(
        {
            **system("1"),
            "Chassis/1": {"PowerSubsystem": {"@odata.id": f"{V}/{base}"}},
            base: {
                "PowerSupplies": {"@odata.id": f"{V}/{base}/PowerSupplies"},
                "PowerSupplyRedundancy": [{"Status": {"State": "Enabled", "Health": redundancy}}],
            },
            f"{base}/PowerSupplies": links(*names),
            **{name: {"Status": one} if one else {} for name, one in zip(names, status, strict=True)},
        }
    )


def test_supplies_of_a_redfish_service_are_judged_by_the_same_check() -> None:
    healthy = supplies(OK, OK, OK)
    absent = {"State": "Absent"}

    assert found(bmc_power.CHECK, healthy) == set()
    assert found(bmc_power.CHECK, supplies(OK, BROKEN, absent, redundancy="Critical"), healthy) == {
        ("PSU 1", "psu_failed", Severity.WARNING),
        ("PSU 2", "psu_missing", Severity.WARNING),
        ("PSU redundancy", "psu_redundancy_lost", Severity.MAJOR),
    }
    assert found(bmc_power.CHECK, supplies(OK, WORN, {"State": "UnavailableOffline"}, redundancy="Warning")) == {
        ("PSU 1", "psu_failure_predicted", Severity.WARNING),
        ("PSU 2", "psu_input_lost", Severity.WARNING),
        ("PSU redundancy", "psu_redundancy_lost", Severity.WARNING),
    }


def test_supplies_without_any_status_are_no_supplies_that_are_well() -> None:
    with pytest.raises(Unavailable):
        bmc_power.read(supplies(None, None, redundancy=""))


def test_the_older_model_has_power_and_air_in_one_answer_each() -> None:
    tree = {
        **system("Self", chassis="Self"),
        "Chassis/Self": {name: {"@odata.id": f"{V}/Chassis/Self/{name}"} for name in ("Power", "Thermal")},
        "Chassis/Self/Power": {"PowerSupplies": [{"MemberId": "0", "Status": OK}, {"MemberId": "1", "Status": BROKEN}]},
        "Chassis/Self/Thermal": {
            "Fans": [{"Name": "FAN1", "Reading": 0, "Status": BROKEN}, {"Name": "FAN2", "Status": OK}],
            "Temperatures": [
                {"Name": "Inlet Temp", "ReadingCelsius": 44, "Status": WORN},
                {"Name": "CPU1 Temp", "ReadingCelsius": 55.5, "Status": OK},
                {"Name": "GPU9 Temp", "ReadingCelsius": None, "Status": {"State": "Absent", "Health": "Critical"}},
            ],
        },
    }  # fmt: skip

    assert found(bmc_power.CHECK, Bmc(tree)) == {("PSU 1", "psu_failed", Severity.WARNING)}
    assert found(bmc_sensors.CHECK, Bmc(tree)) == {
        ("FAN1", "bmc_fan", Severity.WARNING),
        ("Inlet Temp", "bmc_temperature", Severity.WARNING),
    }


# The board of the GPUs.

WELL = Board((Rollup("1", "OK"),), (), (), (), ("GPU_1/NVLink_0", "GPU_1/NVLink_1"), (), ("GPU_1", "GPU_2"), ())


def board(now: Board, before: Board | None = WELL) -> list[Finding]:
    return list(bmc_redfish.judge(now, before, bmc_redfish.Policy()))


def test_a_board_that_is_well_gives_nothing() -> None:
    assert board(WELL) == []


def test_a_port_that_was_up_and_a_gpu_that_was_there_are_found_and_those_that_never_were_are_not() -> None:
    now = replace(
        WELL, ports_down=("GPU_1/NVLink_1", "GPU_1/NVLink_17"), gpus=("GPU_1",), gpus_absent=("GPU_2", "GPU_9")
    )

    assert [(f.component, f.fault) for f in board(now)] == [
        ("GPU_1/NVLink_1", "bmc_nvlink_down"),
        ("GPU_2", "bmc_gpu_absent"),
    ]
    assert board(now, before=None) == []
    kept = bmc_redfish.next_state(WELL, now)
    assert [f.fault for f in board(now, kept)] == ["bmc_nvlink_down", "bmc_gpu_absent"]


def test_a_leak_is_critical_and_a_detector_that_cannot_say_is_not() -> None:
    leaks = (Leak("L0", "Critical"), Leak("L1", "Warning"), Leak("L2", "OK"), Leak("L3", "Unavailable"))

    assert [(f.component, f.severity) for f in board(replace(WELL, leaks=leaks))] == [
        ("L0", Severity.CRITICAL),
        ("L1", Severity.WARNING),
    ]


def test_a_board_that_is_not_well_and_does_not_say_why_is_a_warning() -> None:
    unwell = replace(WELL, rollups=(Rollup("1", "Critical"), Rollup("2", "")))

    assert [(f.component, f.fault, f.severity) for f in board(unwell)] == [("1", "bmc_health", Severity.WARNING)]
    assert [f.severity for f in board(replace(unwell, remap_failed=("G",)))] == [Severity.MAJOR, Severity.INFO]


def test_a_service_that_says_nothing_about_health_is_not_healthy() -> None:
    with pytest.raises(Unavailable, match="nothing about the health"):
        bmc_redfish.read(Bmc({"Systems": links()}))


def test_a_run_asks_a_bounded_number_of_times_however_large_the_tree_is() -> None:
    tree = system("1")
    tree["Systems"] = links(*(f"Systems/{n}" for n in range(500)))
    tree["TelemetryService/MetricReports"] = links(
        *(f"TelemetryService/MetricReports/HGX_MemoryMetrics_{n}" for n in range(500))
    )
    bmc = Bmc(tree)
    bmc_redfish.read(bmc)

    assert len(bmc.asked) <= 40


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(["Critical", "OK", f"{V}/Chassis/1"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["Members", "Status", "Health", "@odata.id", "Links", "Chassis", "Severity", "MessageArgs", "Created"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(st.sampled_from([*sorted(system("1", "EventLog")), "Systems/1/LogServices/EventLog/Entries"]), JSON)
)
def test_no_answer_of_a_service_crashes_a_check(resources: dict[str, Any]) -> None:
    bmc = Bmc({**system("1", "EventLog"), **resources})
    for check in (bmc_redfish.CHECK, bmc_sel.CHECK, bmc_power.CHECK, bmc_sensors.CHECK):
        try:
            reading = check.read(bmc)
        except (ValueError, OSError, Unavailable):
            continue
        for finding in check.judge(reading, None, check.policy):
            assert finding.component.isprintable()
            assert PurePosixPath(finding.component).name or finding.component == ""


def test_a_service_without_a_hardware_log_has_no_log_that_is_well() -> None:
    with pytest.raises(Unavailable, match="ipmitool"):
        bmc_sel.read(Bmc(system("1")))


SEL_ENTRY = {
    "EntryType": "SEL",
    "SensorType": "Temperature",
    "SensorNumber": 1,
    "EntryCode": "Upper Critical - going high",
}


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({}, [("Temperature #0x01", "bmc_thermal", Severity.MAJOR)]),  # as DMTF's mockup of a rack server has it
        ({"EntryCode": "Lower Critical - going high"}, []),
        ({"EntryCode": "Deassert"}, []),
        ({"Severity": "OK"}, []),
        ({"EntryCode": "Assert"}, [("bmc", "bmc_hardware_failure", Severity.MAJOR)]),
    ],
)
def test_an_entry_of_the_sel_is_judged_as_the_sel_is(more: dict[str, Any], wanted: list[Any]) -> None:
    one = {**entry(1, "0x592A28"), "MessageArgs": None, **SEL_ENTRY, **more}
    tree = {**system("437XR1138R2", "Log1"), "Systems/437XR1138R2/LogServices/Log1/Entries": members(one)}

    assert told(read_log(Bmc(tree))) == wanted


def test_a_maker_that_keeps_the_log_with_the_chassis_has_it_there() -> None:
    path = "Chassis/1/LogServices"
    tree = {**system("WZP1"), "Managers": links(), "Chassis": links("Chassis/1"), **service(path, "SEL")}
    tree["Chassis/1"] |= {"LogServices": {"@odata.id": f"{V}/{path}"}}

    assert len(read_log(Bmc({**tree, f"{path}/SEL/Entries": members(ECC)})).entries) == 1


def test_an_event_that_the_sel_has_later_than_the_redfish_log_is_not_found_again() -> None:
    log = HardwareLog(1.0, log_of(0.0).entries)
    at_s = log.entries[0].created_s
    line = "   7 | 12/01/26 | 06:00:40 UTC | Memory DIMM_A1 | Uncorrectable ECC | Asserted"
    entries, _ = sel.log_entries(line)
    assert abs(entries[0].at_s - at_s) < 60
    before = bmc_sel.EventLog(1.0, 0, overflow=False, entries=(), redfish=log)
    now = replace(before, entries=entries)

    assert list(bmc_sel.judge(now, before, bmc_sel.Policy())) == []
    other = replace(now, entries=sel.log_entries(line.replace("06:00", "07:00"))[0])
    assert [f.fault for f in bmc_sel.judge(other, before, bmc_sel.Policy())] == ["bmc_memory_uncorrectable"]
