"""The door to NVML: the real nvidia-ml-py on a stand-in library, in a process of its own."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nvml_library import Asker, FakeGpus

from nodetriage.agent.machine.nvml_facts import QUESTIONS, address

H100S = ("0000:1a:00.0", "0000:2a:00.0")


@pytest.fixture
def asker() -> Iterator[Callable[..., Asker]]:
    running: list[Asker] = []

    def start(gpus: FakeGpus, bus: tuple[str, ...] = ()) -> Asker:
        running.append(Asker(gpus, bus))
        return running[-1]

    yield start
    for one in running:
        one.close()


def test_a_healthy_gpu_has_its_names_its_rows_and_its_facts(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    answer = asker(fake_gpus(2)).ask()

    assert [(g["pci"], g["uuid"][-3:], g["failure"]) for g in answer["gpus"]] == [
        ("0000:1a:00.0", "000", None),
        ("0000:2a:00.0", "001", None),
    ]
    assert answer["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"
    assert answer["gpus"][0]["row_remap"] == {
        "correctable_rows": 0,
        "uncorrectable_rows": 0,
        "pending": False,
        "failed": False,
        "banks_max": 640,
        "banks_high": 0,
        "banks_partial": 0,
        "banks_low": 0,
        "banks_none": 0,
    }
    assert answer["gpus"][0]["facts"]["recovery_action"] == 0
    assert answer["gpus"][0]["facts"]["pcie_width"] == 16


def test_each_call_is_announced_with_the_gpu_before_it_is_made(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    calls = asker(fake_gpus(1)).ask()["calls"]

    assert calls[:3] == ["nvmlInit", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"]
    assert "nvmlDeviceGetRemappedRows 0000:1a:00.0" in calls


def test_a_pending_remap_and_a_failed_one_are_told_apart(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(2)
    gpus.set("gpu0/RemappedRows", "4 1 1 0")
    gpus.set("gpu1/RemappedRows", "0 8 0 1")

    first, second = (g["row_remap"] for g in asker(gpus).ask()["gpus"])

    assert (first["correctable_rows"], first["uncorrectable_rows"], first["pending"], first["failed"]) == (
        4,
        1,
        True,
        False,
    )
    assert (second["pending"], second["failed"]) == (False, True)


def test_what_the_driver_does_not_support_is_none_and_never_zero(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    for call in ("RemappedRows", "EccMode", "FieldValue.230"):
        gpus.set(f"gpu0/{call}", "!3")

    gpu = asker(gpus).ask()["gpus"][0]

    assert gpu["failure"] is None
    assert gpu["row_remap"] is None
    assert "ecc_enabled" not in gpu["facts"]
    assert "recovery_action" not in gpu["facts"]


def test_a_call_that_fills_a_structure_is_made_once_for_all_its_facts(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(2)
    gpus.set("gpu1/GpuFabricInfo", "2 29 0 0x5")

    answer = asker(gpus).ask()

    names = ("fabric_state", "fabric_status", "fabric_clique", "fabric_health")
    assert [[g["facts"][name] for name in names] for g in answer["gpus"]] == [[3, 0, 1, 0x1AA], [2, 29, 0, 5]]
    assert answer["calls"].count("nvmlDeviceGetGpuFabricInfoV 0000:1a:00.0") == 1


def test_a_driver_without_a_function_gives_none_for_it_alone(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1, missing=("nvmlDeviceGetRowRemapperHistogram", "nvmlDeviceGetFieldValues"))

    gpu = asker(gpus).ask()["gpus"][0]

    assert gpu["row_remap"]["pending"] is False
    assert gpu["row_remap"]["banks_max"] is None
    assert "recovery_action" not in gpu["facts"]
    assert gpu["facts"]["ecc_enabled"] == 1


@pytest.mark.parametrize(("error", "failure"), [(15, "gpu_is_lost"), (16, "reset_required")])
def test_an_error_that_says_the_gpu_is_gone_is_kept_and_ends_the_questions(
    error: int, failure: str, fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(2)
    gpus.set("gpu1/EccMode", f"!{error}")

    answer = asker(gpus).ask()
    well, sick = answer["gpus"]

    assert well["failure"] is None
    assert sick["failure"] == failure
    assert sick["failure_text"].startswith("nvmlDeviceGetEccMode: ")
    assert sick["uuid"]
    assert [c for c in answer["calls"] if "0000:2a:00.0" in c][-1] == "nvmlDeviceGetEccMode 0000:2a:00.0"


@pytest.mark.parametrize("error", [2, 10, 14, 19, 999])
def test_one_question_that_fails_is_told_and_the_others_are_answered(
    error: int, fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    gpus.set("gpu0/EccMode", f"!{error}")
    gpus.set("gpu0/FieldValue.91", "!999")

    gpu = asker(gpus).ask()["gpus"][0]

    assert (gpu["failure"], list(gpu["refused"])) == (None, ["nvmlDeviceGetEccMode"])
    assert "ecc_enabled" not in gpu["facts"]
    assert gpu["facts"]["pcie_width"] == 16
    assert len(gpu["nvlinks"]) == 18


@pytest.mark.parametrize(
    ("error", "failure"),
    [(15, "gpu_is_lost"), (16, "reset_required"), (999, "unknown"), (19, "in_use"), (10, "timeout"), (2, "other")],
)
def test_a_gpu_that_does_not_even_give_its_name_does_not_answer(
    error: int, failure: str, fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    gpus.set("gpu0/UUID", f"!{error}")

    gpu = asker(gpus).ask()["gpus"][0]

    assert (gpu["failure"], gpu["facts"]) == (failure, {})
    assert gpu["failure_text"].startswith("nvmlDeviceGetUUID: ")


def test_a_gpu_without_a_handle_is_listed_under_the_address_it_must_have(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(2)
    gpus.set("gpu0/HandleByIndex", "!15")

    lost = asker(gpus, H100S).ask()["gpus"][0]
    nameless = asker(gpus).ask()["gpus"][0]

    assert (lost["pci"], lost["failure"]) == ("0000:1a:00.0", "gpu_is_lost")
    assert (nameless["pci"], nameless["failure"]) == ("nvml-index-0", "gpu_is_lost")


def test_a_gpu_that_is_lost_later_keeps_the_names_it_had(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(2)
    process = asker(gpus)
    before = process.ask()["gpus"][1]
    gpus.set("gpu1/all", "!15")

    after = process.ask()["gpus"][1]

    assert after["failure"] == "gpu_is_lost"
    assert (after["uuid"], after["pci"]) == (before["uuid"], before["pci"])


def test_a_gpu_in_quarantine_is_listed_and_not_asked(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    process = asker(fake_gpus(2), H100S)

    answer = process.ask(("0000:2a:00.0",))

    assert answer["gpus"][1]["failure_text"] == "not asked: in quarantine"
    assert not [call for call in answer["calls"] if "0000:2a:00.0" in call]


def test_after_a_driver_reload_nvml_is_initialised_anew(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    gpus.set("PersistenceMode", "0")  # NVML then stays open between looks
    process = asker(gpus)
    process.ask()
    assert "nvmlInit" not in process.ask()["calls"]
    gpus.set("reload", "")

    answer = process.ask()

    assert answer["gpus"][0]["failure"] is None
    assert "nvmlInit" in answer["calls"]


def open_files(process: Asker) -> set[str]:
    """Names of the stand-in's folders that the process has open: "nvml" is the driver, "gpuN" a GPU."""
    links = [entry.readlink() for entry in Path(f"/proc/{process.process.pid}/fd").iterdir()]
    return {link.name for link in links if link.name == "nvml" or "gpu" in link.name}


def test_between_looks_nothing_of_the_driver_is_open_so_a_reset_and_an_unload_work(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(2)
    process = asker(gpus)

    for _ in range(3):
        answer = process.ask()
        assert [gpu["failure"] for gpu in answer["gpus"]] == [None, None]
        assert answer["calls"][-1] == "nvmlShutdown"
        assert open_files(process) == set()


def test_without_persistence_mode_nvml_stays_open_because_each_start_would_start_the_gpus_anew(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(2)
    gpus.set("gpu1/PersistenceMode", "0")
    process = asker(gpus)
    process.ask()

    assert open_files(process) == {gpus.state.name, "gpu0", "gpu1"}
    gpus.set("gpu1/PersistenceMode", "1")
    process.ask()
    assert open_files(process) == set()


def test_a_driver_of_another_version_is_asked_anew_for_what_the_old_one_lacked(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    gpus.set("FieldValue.208", "!3")
    process = asker(gpus)
    assert "receive_errors" not in process.ask()["gpus"][0]["nvlinks"][0]["counters"]
    gpus.set("FieldValue.208", "4")
    gpus.set("FieldValue.208.1", "5")
    assert "receive_errors" not in process.ask()["gpus"][0]["nvlinks"][0]["counters"]

    gpus.set("DriverVersion", "610.10")

    assert process.ask()["gpus"][0]["nvlinks"][1]["counters"]["receive_errors"] == 5


def test_gpus_that_the_driver_leaves_out_are_listed_as_such(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    gpus.set("excluded", "00000000:61:00.0 00000000:C3:00.0")

    answer = asker(gpus).ask()

    assert [(g["pci"], g["failure"]) for g in answer["gpus"]][1:] == [
        ("0000:61:00.0", "excluded"),
        ("0000:c3:00.0", "excluded"),
    ]
    gpus.set("excluded", "")
    assert len(asker(gpus).ask()["gpus"]) == 1


@pytest.mark.parametrize(("state", "active"), [(0, False), (1, True), (2, True), (3, False)])
def test_a_sleeping_link_is_up_and_one_whose_traffic_is_disabled_is_not(
    state: int, active: bool, fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    gpus.set("gpu0/NvLinkState.4", str(state))

    answer = asker(gpus).ask()

    assert answer["gpus"][0]["nvlinks"][4]["active"] is active
    assert not [call for call in answer["calls"] if call.startswith("nvmlDeviceGetNvLinkState")]


def test_links_to_a_grace_cpu_are_added_up_without_those_that_sleep(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(2)
    gpus.set("gpu0/FieldValue.170", "3")
    for link, (active, asleep, mbps) in enumerate(((1, 0, 44_712), (0, 0, 0), (0, 1, 0))):
        scope = f".{link}" if link else ""
        values = {171: active, 172: mbps, 231: 2, 232: link, 233: 0, 234: asleep}
        for field, value in values.items():
            gpus.set(f"gpu0/FieldValue.{field}{scope}", str(value))

    grace, other = (gpu["facts"] for gpu in asker(gpus).ask()["gpus"])

    assert (grace["c2c_count"], grace["c2c_down"], grace["c2c_errors"], grace["c2c_replays"]) == (3, 1, 6, 3)
    assert (grace["c2c_mbps_least"], grace["c2c_mbps_most"]) == (44_712, 44_712)
    assert not [fact for fact in other if fact.startswith("c2c")]


def test_what_the_driver_lacks_of_times_repairs_and_errors_is_absent_and_never_0(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    gpus.set("FieldValue.270", "5000000000")
    gpus.set("FieldValue.182", "4")
    facts = asker(gpus).ask()["gpus"][0]["facts"]

    assert (facts["slowed_hw_thermal_slowdown_ns"], facts["pcie_lcrc_errors"]) == (5_000_000_000, 4)
    assert facts.keys().isdisjoint({"memory_unrepairable", "repair_pending_tpc", "bank_remap_pending", "pcie_fatal"})


def test_a_fabric_of_an_older_driver_is_read_by_its_older_structure(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    new = asker(gpus).ask()["gpus"][0]["facts"]
    gpus.set("FabricVersions", "2")
    old = asker(gpus).ask()["gpus"][0]["facts"]

    assert (new["fabric_state"], new["fabric_summary"], new["fabric_cluster"]) == (3, 1, "")
    assert (old["fabric_state"], old["fabric_summary"]) == (3, 0)
    gpus.set("FabricVersions", "3")
    gpus.set("FabricCluster", "7")
    assert asker(gpus).ask()["gpus"][0]["facts"]["fabric_cluster"] == "07070707-0707-0707-0707-070707070707"


def test_no_driver_is_unavailable_and_found_once_it_is_loaded(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    gpus.set("Init", "!9")
    process = asker(gpus)
    assert process.ask()["unavailable"] == "NVML: Driver Not Loaded"
    gpus.set("Init", "")

    assert len(process.ask()["gpus"]) == 1


def test_a_library_that_does_not_fit_the_driver_is_said_of_each_gpu_on_the_bus(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(2)
    gpus.set("Init", "!18")

    answer = asker(gpus, H100S).ask()

    assert [(g["pci"], g["failure"]) for g in answer["gpus"]] == [(pci, "lib_rm_version_mismatch") for pci in H100S]
    assert "mismatch" in asker(gpus).ask()["error"]


def test_a_hung_call_is_named_by_what_was_announced_last(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(2)
    gpus.set("gpu1/RemappedRows", "~forever")
    process = asker(gpus)

    process.send(("listen",))
    while (line := process.line()) and not line.startswith("nvmlDeviceGetRemappedRows 0000:2a"):
        pass

    assert line == "nvmlDeviceGetRemappedRows 0000:2a:00.0\n"
    assert process.process.poll() is None


@pytest.mark.parametrize(
    ("bus_id", "kernel"),
    [
        ("00000000:1A:00.0", "0000:1a:00.0"),
        (b"00000008:01:00.0", "0008:01:00.0"),
        ("0000:3B:00.0", "0000:3b:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
    ],
)
def test_addresses_are_written_as_the_kernel_writes_them(bus_id: str | bytes, kernel: str) -> None:
    assert address(bus_id) == kernel


def test_a_gpu_in_quarantine_is_not_even_looked_up_where_its_number_is_not_known(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(2)
    gpus.set("gpu1/all", "~forever")
    process = asker(gpus, ("0000:19:00.0", *H100S))  # one more on the bus than NVML lists: the order says nothing

    answer = process.ask(("0000:2a:00.0",))

    assert [(g["pci"], g["failure"]) for g in answer["gpus"]] == [("0000:1a:00.0", None), ("0000:2a:00.0", "not_asked")]
    assert "nvmlDeviceGetHandleByPciBusId 0000:1a:00.0" in answer["calls"]
    assert not [c for c in answer["calls"] if "0000:2a:00.0" in c or c.startswith("nvmlDeviceGetHandleByIndex")]


def test_links_that_are_down_are_listed_and_those_that_are_up_are_counted(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    gpus.set("gpu0/NvLinkState.3", "0")
    gpus.set("gpu0/FieldValue.161.5", "17")
    gpus.set("gpu0/FieldValue.208.5", "2")

    links = asker(gpus).ask()["gpus"][0]["nvlinks"]

    assert [link["link"] for link in links if not link["active"]] == [3]
    assert len(links) == 18
    assert links[5]["counters"] == {"replays": 17, "recoveries": 0, "crc_errors": 0, "receive_errors": 2}


def test_a_board_without_nvlink_has_none_and_an_old_driver_is_asked_link_by_link(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(2)
    for link in range(18):
        gpus.set(f"gpu0/NvLinkState.{link}" if link else "gpu0/NvLinkState", "!3")
    gpus.set("gpu1/FieldValue.91", "!3")
    gpus.set("gpu1/NvLinkState.12", "!2")

    pcie, old = asker(gpus).ask()["gpus"]

    assert (pcie["nvlinks"], pcie["failure"]) == (None, None)
    assert len(old["nvlinks"]) == 17


def test_a_corrupt_inforom_is_an_answer_and_no_failure_of_the_gpu(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(3)
    gpus.set("gpu1/ValidateInforom", "!14")
    gpus.set("gpu2/ValidateInforom", "!3")

    answer = asker(gpus).ask()["gpus"]

    assert [g["failure"] for g in answer] == [None] * 3
    assert [g["facts"].get("inforom_error") for g in answer] == [0, 14, None]


def test_processes_are_listed_and_a_look_that_is_not_whole_leaves_out_what_costs_many_calls(
    fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    gpus.set("gpu0/ComputeRunningProcesses", "4711 4712")
    process = asker(gpus)

    whole, quick = process.ask(), process.ask(("quick",))

    assert whole["gpus"][0]["processes"] == [4711, 4712]
    assert (quick["gpus"][0]["processes"], quick["gpus"][0]["nvlinks"]) == (None, None)
    assert quick["gpus"][0]["facts"]["recovery_action"] == 0
    assert len(quick["calls"]) < len(whole["calls"]) / 2


@pytest.mark.parametrize("call", sorted({q.call.removeprefix("nvmlDeviceGet") for q in QUESTIONS}))
def test_a_call_that_is_refused_for_want_of_support_leaves_the_gpu_well(
    call: str, fake_gpus: Callable[..., FakeGpus], asker: Callable[..., Asker]
) -> None:
    gpus = fake_gpus(1)
    gpus.set(f"gpu0/{call.removesuffix('V').replace('nvmlDevice', '')}", "!3")

    gpu = asker(gpus).ask()["gpus"][0]

    assert (gpu["failure"], gpu["refused"], gpu["uuid"][-3:]) == (None, {}, "000")


def test_the_stand_in_delivers_events_as_the_library_does(fake_gpus: Callable[..., FakeGpus]) -> None:
    """No part of ours waits for them (docs/decisions/0008-no-nvml-events.md); the stand-in can, for whoever tries."""
    gpus = fake_gpus(2)
    program = """
import os, pynvml
pynvml.nvmlInit()
events = pynvml.nvmlEventSetCreate()
for i in range(2):
    pynvml.nvmlDeviceRegisterEvents(pynvml.nvmlDeviceGetHandleByIndex(i), pynvml.nvmlEventTypeXidCriticalError, events)
with open(os.environ["FAKE_NVML_DIR"] + "/events", "a") as file:
    file.write("1 8 79\\n")
found = pynvml.nvmlEventSetWait_v2(events, 5000)
print(pynvml.nvmlDeviceGetIndex(found.device), found.eventType, found.eventData)
"""
    ran = subprocess.run([sys.executable, "-c", program], env=dict(gpus.environment), capture_output=True, text=True)

    assert ran.stdout == "1 8 79\n", ran.stderr
