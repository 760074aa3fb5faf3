"""From lines of the kernel log to findings."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.gpu.gpu_xid import CHECK, Policy, clears, judge, next_state, read
from nodetriage.checks.model import Confidence, Finding, KernelRecord, Severity, Unavailable
from nodetriage.checks.model.settings import ConfigError, replace_from
from nodetriage.checks.readers.nvidia_log import parse
from nodetriage.checks.readers.pci_presence import Presence
from nodetriage.checks.rules.xid_log import DAY_S, Entry, Log, entry_of

GPU, PEER = "0000:9d:00", "0000:c3:00"
HOUR = 3600.0
Lines = tuple[Entry, ...]


def entry(at_s: float, text: str) -> Entry:
    line = parse(text)
    assert line, text
    return entry_of(KernelRecord(1, round(at_s * 1e6), 4, text), line)


def xid(code: int, rest: str = "", at_s: float = 100.0, pci: str = GPU) -> Entry:
    return entry(at_s, f"NVRM: Xid (PCI:{pci}): {code}, {rest}")


def log(now: Lines) -> Log:
    """The lines on a machine that has all devices that they name, which cannot be asked anything."""
    return Log(now, Presence(tuple(sorted({e.line.component for e in now}))))


def record(text: str, at_us: int = 100_000_000) -> KernelRecord:
    return KernelRecord(1, at_us, 4, text)


def found(now: Lines, before: Log | None = None) -> list[Finding]:
    return list(judge(log(now), before, Policy()))


def faults(findings: list[Finding]) -> dict[tuple[str, str], Severity]:
    return {(f.component, f.fault): f.severity for f in findings}


def history(*rounds: Lines) -> Log | None:
    """What the check remembers after those rounds."""
    memory: Log | None = None
    for now in rounds:
        memory = next_state(memory, log(now))
    return memory


def machine(tmp_path: Path, *texts: str, device: str | None = f"{GPU}.0", width: str | None = None) -> Host:
    """A machine with that one PCI device, which shows that width of its link, and these lines in its log."""
    if device is not None:
        folder = tmp_path / "sys/bus/pci/devices" / device
        folder.mkdir(parents=True)
        for name, text in (
            ("vendor", "0x10de"),
            ("device", "0x2330"),
            ("class", "0x030200"),
            ("current_link_width", width),
        ):
            if text is not None:
                (folder / name).write_text(f"{text}\n")
    return Host(tmp_path, records=tuple(record(text) for text in texts))


OFF_BUS = f"NVRM: Xid (PCI:{GPU}): 79, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("width", "severity", "confidence"),
    [
        ("63", Severity.CRITICAL, Confidence.WITNESSED),
        ("16", Severity.MAJOR, Confidence.LINE),
        (None, Severity.CRITICAL, Confidence.DEVICE),
        ("Unknown", Severity.CRITICAL, Confidence.DEVICE),
    ],
)
def test_a_gpu_off_the_bus_ends_jobs_unless_the_gpu_itself_says_otherwise(
    tmp_path: Path, width: str | None, severity: Severity, confidence: Confidence
) -> None:
    (finding,) = judge(read(machine(tmp_path, OFF_BUS, width=width)), None, Policy())

    assert (finding.fault, finding.severity, finding.confidence) == ("gpu_off_bus", severity, confidence)


def test_a_line_about_a_device_that_is_not_here_is_a_warning_that_says_so(tmp_path: Path) -> None:
    (finding,) = judge(read(machine(tmp_path, OFF_BUS, OFF_BUS, device="0000:c3:00.0")), None, Policy())

    assert (finding.component, finding.fault) == (f"{GPU}.0", "kernel_line_unknown_device")
    assert (finding.severity, finding.confidence, finding.evidence["lines"]) == (Severity.WARNING, Confidence.LINE, 2)


def test_such_lines_never_add_up_to_a_repetition(tmp_path: Path) -> None:
    text = f"NVRM: Xid (PCI:{GPU}): 109, errorString CTX SWITCH TIMEOUT"
    now = read(machine(tmp_path, text, device="0000:c3:00.0"))

    for before in (None, next_state(next_state(None, now), now)):
        assert faults(list(judge(now, before, Policy()))) == {
            (f"{GPU}.0", "kernel_line_unknown_device"): Severity.WARNING
        }


def test_a_trial_on_a_machine_without_gpus_may_name_any_device(tmp_path: Path) -> None:
    now = read(machine(tmp_path, OFF_BUS, device=None))

    assert faults(list(judge(now, None, Policy(any_device=True)))) == {(f"{GPU}.0", "gpu_off_bus"): Severity.CRITICAL}


def test_a_gpu_that_was_here_in_this_boot_and_is_gone_is_witnessed(tmp_path: Path) -> None:
    before = next_state(None, read(machine(tmp_path / "before")))

    (finding,) = judge(read(machine(tmp_path / "now", OFF_BUS, device="0000:c3:00.0")), before, Policy())

    assert (finding.fault, finding.severity) == ("gpu_off_bus", Severity.CRITICAL)
    assert finding.confidence is Confidence.WITNESSED


def test_a_line_that_names_no_device_has_the_least_confidence(tmp_path: Path) -> None:
    text = "NVRM: GPU3 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 40218113 heartbeat 990311"

    (finding,) = judge(read(machine(tmp_path, text)), None, Policy())

    assert (finding.fault, finding.confidence) == ("gpu_gsp_timeout", Confidence.LINE)


def test_a_gpu_off_the_bus_is_one_finding_with_who_was_on_it(tmp_path) -> None:
    host = machine(
        tmp_path,
        "NVRM: GPU at PCI:0000:9d:00: GPU-00000000-0000-4000-8000-000000000004",
        "NVRM: Xid (PCI:0000:9d:00): 79, pid=1582259, name=python, GPU has fallen off the bus.",
        "NVRM: GPU 0000:9d:00.0: GPU has fallen off the bus.",
        "usb 1-1: new device",
    )

    (finding,) = judge(read(host), None, Policy())

    assert (finding.component, finding.fault, finding.severity) == ("0000:9d:00.0", "gpu_off_bus", Severity.CRITICAL)
    assert finding.evidence == {
        "xid": 79,
        "text": "GPU has fallen off the bus.",
        "pid": 1582259,
        "process": "python",
        "uuid": "GPU-00000000-0000-4000-8000-000000000004",
        "at_boot_s": 100.0,
        "count": 2,
    }


def test_a_gpu_off_the_bus_is_found_without_any_code(tmp_path) -> None:
    text = f"NVRM: The NVIDIA GPU {GPU}.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
    host = machine(tmp_path, text + "NVRM: fallen off the bus and is not responding to commands.")

    assert faults(list(judge(read(host), None, Policy()))) == {(f"{GPU}.0", "gpu_off_bus"): Severity.CRITICAL}


def test_the_check_is_skipped_where_no_nvidia_part_could_write_a_line(tmp_path) -> None:
    with pytest.raises(Unavailable, match="no NVIDIA device"):
        read(Host(tmp_path, records=()))


def test_an_error_that_prints_a_line_a_channel_is_one_finding_with_their_number() -> None:
    location = xid(48, "An uncorrectable double bit error (DBE) has been detected")
    channels = tuple(xid(48, f"pid=7, name=python, channel 0x0000000{i}", 100.0 + i) for i in range(8))
    kind = xid(171, "GDDR, Uncorrectable DRAM error in FBPA 3", 109.0)

    (finding,) = found((location, *channels, kind))

    assert (finding.fault, finding.severity) == ("gpu_ecc_uncorrectable", Severity.CRITICAL)
    assert (finding.evidence["xid"], finding.evidence["count"], finding.evidence["memory"]) == (48, 10, "DRAM")


def test_a_burst_goes_on_over_several_rounds_until_three_minutes_of_silence() -> None:
    before = history((xid(119, at_s=100.0), xid(119, at_s=130.0)))

    (going_on,) = found((xid(119, at_s=300.0),), before)
    (new,) = found((xid(119, at_s=311.0),), before)

    assert (going_on.evidence["count"], new.evidence["count"]) == (3, 1)


def test_nothing_is_said_again_in_a_round_without_new_lines() -> None:
    assert found((), history((xid(79),))) == []


def test_errors_of_two_gpus_are_two_findings() -> None:
    both = found((xid(95), xid(95, pci=PEER)))

    assert {f.component for f in both} == {f"{GPU}.0", f"{PEER}.0"}


def test_an_error_of_a_mig_instance_counts_for_its_gpu() -> None:
    (finding,) = found((entry(1.0, "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7, Contained. RST: No, D-RST: No"),))

    assert (finding.component, finding.evidence["mig"]) == ("0000:01:00.0", "GI=5")


def test_a_killed_program_never_drains_a_node() -> None:
    storm = tuple(xid(45, f"pid={i}, name=python3, Ch 00000001", 100.0 + 200 * i) for i in range(50))

    assert {f.severity for f in found(storm)} == {Severity.INFO}


def test_the_text_kept_as_evidence_is_cut() -> None:
    (finding,) = found((xid(79, "x" * 300),))

    assert len(str(finding.evidence["text"])) == 200


def test_a_milder_line_does_not_soften_a_fault_that_is_held() -> None:
    fatal = xid(149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x0 0x0 0x0 0x0)", 100.0)
    notice = xid(149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001 0x0 0x0 0x0 0x0)", 5_000.0)

    (finding,) = found((notice,), history((fatal,)))

    assert (finding.severity, finding.evidence["word"]) == (Severity.CRITICAL, "Fatal")
    reset = xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", 900.0)
    (anew,) = found((notice,), history((fatal,), (reset,)))
    assert anew.severity is Severity.WARNING


# What comes back


def test_a_reset_that_the_driver_reports_done_takes_back_what_it_cures() -> None:
    done = xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", 500.0)
    cleared = set(clears(log((done,)), history((xid(95),))))

    assert {(f"{GPU}.0", "gpu_recovery_action"), (f"{GPU}.0", "gpu_ecc_uncontained")} <= cleared
    assert not {fault for _, fault in cleared} & {"gpu_xid_repeated", "gpu_power_smoothing_off", "gpu_xid_warning"}
    assert {component for component, _ in cleared} == {f"{GPU}.0"}
    assert found((done,), history((xid(95),))) == []


def test_a_fault_that_came_and_went_within_one_round_is_not_found() -> None:
    asked = xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 100.0)
    done = xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", 130.0)

    assert found((asked, done)) == []
    assert [f.fault for f in found((asked, done, replace(asked, at_s=140.0)))] == ["gpu_recovery_action"]
    without_stamps = (replace(done, at_s=0.0), replace(asked, at_s=0.0))
    assert [f.fault for f in found(without_stamps)] == ["gpu_recovery_action"]


def test_power_smoothing_that_works_again_cancels_its_failure() -> None:
    off, back = xid(163, at_s=100.0), xid(162, at_s=200.0)

    assert [f.fault for f in found((off,))] == ["gpu_power_smoothing_off"]
    assert list(clears(log((back,)), history((off,)))) == [(f"{GPU}.0", "gpu_power_smoothing_off")]
    assert found((off, back)) == []


def test_no_other_line_takes_anything_back() -> None:
    assert not list(clears(log((xid(79), xid(13), xid(45))), None))


# What repeats


def place(gpc: int, tpc: int, at_s: float, sm: int = 0, pci: str = GPU) -> Entry:
    return xid(13, f"Graphics SM Global Exception on (GPC {gpc}, TPC {tpc}, SM {sm}): Multiple Warp Errors", at_s, pci)


def repeated(findings: list[Finding]) -> dict[str, tuple[Severity, object]]:
    return {f.component: (f.severity, f.evidence["bursts"]) for f in findings if f.fault == "gpu_xid_repeated"}


def test_an_exception_at_the_same_place_twice_a_day_is_suspect() -> None:
    again = found((place(8, 5, 5 * HOUR, sm=1),), history((place(8, 5, HOUR),)))

    assert repeated(again) == {f"{GPU}.0": (Severity.WARNING, 2)}


def test_an_exception_elsewhere_on_the_chip_is_a_program_s() -> None:
    assert repeated(found((place(8, 4, 5 * HOUR),), history((place(8, 5, HOUR),)))) == {}


def test_one_exception_with_a_line_an_sm_is_no_repetition() -> None:
    assert repeated(found(tuple(place(8, 5, 100.0 + i, sm=i % 2) for i in range(20)))) == {}


def test_a_page_fault_on_one_gpu_alone_twice_a_day_is_suspect() -> None:
    again = found((xid(31, "Ch 8", 5 * HOUR),), history((xid(31, "Ch 8", HOUR),)))

    assert repeated(again) == {f"{GPU}.0": (Severity.WARNING, 2)}


def test_page_faults_on_several_gpus_are_a_program_s() -> None:
    before = history((xid(31, "Ch 8", HOUR), xid(31, "Ch 8", HOUR, PEER)))

    assert repeated(found((xid(31, "Ch 8", 5 * HOUR),), before)) == {}


def test_what_happened_more_than_a_day_ago_does_not_count() -> None:
    assert repeated(found((xid(31, "Ch 8", HOUR + DAY_S + 1),), history((xid(31, "Ch 8", HOUR),)))) == {}


def test_two_gpus_with_one_error_each_are_no_repetition() -> None:
    assert (
        repeated(found((xid(38, at_s=5 * HOUR),), history(*((xid(38, at_s=HOUR * i, pci=PEER),) for i in range(4)))))
        == {}
    )


def test_a_warning_five_times_a_day_on_one_gpu_is_serious() -> None:
    four = history(*((xid(38, at_s=HOUR * i),) for i in range(1, 5)))
    three = history(*((xid(38, at_s=HOUR * i),) for i in range(1, 4)))

    assert repeated(found((xid(38, at_s=6 * HOUR),), four)) == {f"{GPU}.0": (Severity.MAJOR, 5)}
    assert repeated(found((xid(38, at_s=6 * HOUR),), three)) == {}


def test_a_context_switch_timeout_twice_a_day_removes_the_node() -> None:
    (again,) = found((xid(109, "errorString CTX SWITCH TIMEOUT", 5 * HOUR),), history((xid(109, at_s=HOUR),)))

    assert (again.fault, again.severity, again.evidence["bursts"]) == (
        "gpu_context_switch_timeout",
        Severity.CRITICAL,
        2,
    )
    assert faults(found((xid(109),))) == {(f"{GPU}.0", "gpu_context_switch_timeout"): Severity.MAJOR}


# What is remembered


def test_a_storm_does_not_grow_the_memory() -> None:
    memory = history(*((xid(13, f"Graphics Exception: ESR {i}", 100.0 + i * 0.01),) for i in range(3_000)))

    assert memory is not None
    assert [e.lines for e in memory.entries] == [3_000]


def test_the_memory_holds_one_day() -> None:
    memory = history((xid(31, at_s=1.0),), (xid(31, at_s=DAY_S),), (xid(31, at_s=DAY_S + 100.0),))

    assert memory is not None
    assert [e.at_s for e in memory.entries] == [DAY_S, DAY_S + 100.0]


def test_the_uuid_of_a_gpu_is_known_long_after_it_was_printed() -> None:
    name = entry(1.0, "NVRM: GPU at PCI:0000:9d:00: GPU-00000000-0000-4000-8000-000000000004")
    memory = history((name,), *((xid(13, f"{i}", DAY_S * i),) for i in range(1, 4)))

    (finding,) = found((xid(79, at_s=DAY_S * 5),), memory)

    assert finding.evidence["uuid"] == "GPU-00000000-0000-4000-8000-000000000004"


entries = st.builds(
    xid,
    st.sampled_from([13, 31, 38, 45, 48, 63, 79, 95, 109, 154, 162, 163, 9999]),
    st.sampled_from(
        ["", "x", "on (GPC 1, TPC 2, SM 0): y", "changed from 0x1 (A) to 0x0 (B)", "from 0x0 (A) to 0x2 (B)"]
    ),
    st.floats(0, 3 * DAY_S),
    st.sampled_from([GPU, PEER]),
)


@given(st.lists(st.lists(entries, max_size=6).map(tuple), max_size=8))
def test_any_history_can_be_judged_remembered_and_carried_over_a_restart(rounds: list[Lines]) -> None:
    memory: Log | None = None
    for now in map(log, rounds):
        assert {f.fault for f in judge(now, memory, Policy())} <= set(CHECK.faults)
        memory = next_state(memory, now)
        assert msgspec.json.decode(msgspec.json.encode(memory), type=Log) == memory


@pytest.mark.parametrize("table", [{"burst_gap_s": 5}, {"repeat_window_s": 100_000}, {"bursts": 1}])
def test_settings_that_the_memory_cannot_serve_are_refused_by_name(table) -> None:
    with pytest.raises(ConfigError, match=r"nodetriage\.toml: checks\.gpu_xid"):
        replace_from(Policy, Policy(), table, "nodetriage.toml", "checks.gpu_xid")
