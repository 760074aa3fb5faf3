"""Kinds of NVIDIA lines on which the check was wrong on real machines: what ends a fault, and whose fault it is."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.gpu.gpu_xid import CHECK, Log, Policy, clears, judge, next_state, read
from nodetriage.checks.model import Confidence, Finding, KernelRecord, Severity

GPU, PEER, SWITCH = "0000:1b:00", "0000:43:00", "0000:00:08"
G, P, S = f"{GPU}.0", f"{PEER}.0", f"{SWITCH}.0"
LOADED = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024"
FOUND = f"pci {G}: [10de:2330] type 00 class 0x030200 PCIe Endpoint"
NEEDS_RESET = "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
RESET_DONE = "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


def xid(rest: str, pci: str = GPU) -> str:
    return f"NVRM: Xid (PCI:{pci}): {rest}"


def sxid(rest: str, pci: str = S) -> str:
    return f"nvidia-nvswitch1: SXid (PCI:{pci}): {rest}"


def log(tmp_path: Path, lines: Sequence[str], now_s: float = 0.0, first_s: float = 1000.0, apart_s: float = 1.0) -> Log:
    """What the check reads on a machine with these devices, whose log has these lines so far apart."""
    for address in (G, P, S):
        folder = tmp_path / "sys/bus/pci/devices" / address
        if not folder.exists():
            folder.mkdir(parents=True)
            for name, text in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
                (folder / name).write_text(f"{text}\n")
    (tmp_path / "clock.toml").write_text(f"boottime_s = {now_s}\n")
    stamps = (round((first_s + apart_s * i) * 1e6) for i in range(len(lines)))
    records = tuple(KernelRecord(i, at, 3, text) for i, (at, text) in enumerate(zip(stamps, lines, strict=True)))
    return read(Host(tmp_path).for_check(CHECK, records))


def findings(now: Log, before: Log | None = None) -> list[Finding]:
    return list(judge(now, before, Policy()))


def faults(now: Log, before: Log | None = None) -> set[tuple[str, str, str]]:
    return {(f.component, f.fault, f.severity.name) for f in findings(now, before)}


BROKEN = {
    "64": ("64, Failed to remap row 0x123: no spare", "gpu_row_remap_failed"),
    "79": ("79, GPU has fallen off the bus.", "gpu_off_bus"),
    "95": ("95, pid=3112, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", "gpu_ecc_uncontained"),
    "119": ("119, pid=3112, name=nvidia-smi, Timeout after 45s of waiting for RPC response", "gpu_gsp_timeout"),
    "156": ("156, Resource Retirement Event: TPC", "gpu_xid_service"),
    "159": ("159, pid=3112, name=python3, CHI Non-Data Error", "gpu_chip_link_error"),
}


@pytest.mark.parametrize("code", BROKEN)
def test_a_reset_that_the_driver_reports_ends_every_fault_whose_advice_is_a_reset(tmp_path: Path, code: str) -> None:
    line, fault = BROKEN[code]
    told = log(tmp_path, [xid(line), xid(NEEDS_RESET)])
    done = log(tmp_path, [xid(RESET_DONE)], first_s=2000.0)

    assert fault in {f.fault for f in findings(told)}
    assert findings(log(tmp_path, [xid(line), xid(NEEDS_RESET), xid(RESET_DONE)])) == []
    assert (G, fault) in set(clears(done, next_state(None, told)))


def test_a_reset_of_one_gpu_ends_nothing_on_another(tmp_path: Path) -> None:
    now = log(tmp_path, [xid(BROKEN["95"][0], PEER), xid(NEEDS_RESET), xid(RESET_DONE)])

    assert faults(now) == {(P, "gpu_ecc_uncontained", "CRITICAL")}


@pytest.mark.parametrize("action", ["0x3 (Drain P2P)", "0x5 (Recover IMEX Domain)"])
def test_an_action_that_is_no_reset_ends_only_itself(tmp_path: Path, action: str) -> None:
    settled = f"154, GPU recovery action changed from {action} to 0x0 (None)"
    now = log(tmp_path, [xid(BROKEN["95"][0]), xid(settled)])

    assert faults(now) == {(G, "gpu_ecc_uncontained", "CRITICAL")}


def test_a_gpu_that_its_bus_was_reset_for_is_back(tmp_path: Path) -> None:
    asked = "154, GPU recovery action changed from 0x0 (None) to 0x6 (PCIe Bus Reset)"
    done = "154, GPU recovery action changed from 0x6 (PCIe Bus Reset) to 0x0 (None)"

    assert findings(log(tmp_path, [xid(BROKEN["79"][0]), xid(asked), xid(done)])) == []


@pytest.mark.parametrize("code", sorted(BROKEN.keys() - {"79"}))
def test_a_load_of_the_driver_ends_what_a_reset_would(tmp_path: Path, code: str) -> None:
    line, fault = BROKEN[code]
    before = next_state(None, log(tmp_path, [xid(line)]))
    loaded = log(tmp_path, [LOADED], first_s=200_000.0)  # days later: the driver before 565 prints no 154

    assert findings(log(tmp_path, [xid(line), LOADED])) == []
    assert (G, fault) in set(clears(loaded, before))
    assert (G, fault) not in set(clears(log(tmp_path, [xid("45, pid=7, name=a, Ch 1")]), before))


def test_a_load_of_the_driver_before_the_fault_ends_nothing_and_brings_no_gpu_back_to_the_bus(tmp_path: Path) -> None:
    line, fault = BROKEN["119"]

    assert faults(log(tmp_path, [LOADED, xid(line)])) == {(G, fault, "CRITICAL")}
    assert faults(log(tmp_path, [xid(BROKEN["79"][0]), LOADED])) == {(G, "gpu_off_bus", "CRITICAL")}


def test_a_gpu_that_the_kernel_finds_on_the_bus_anew_is_back(tmp_path: Path) -> None:
    assert findings(log(tmp_path, [FOUND, xid(BROKEN["79"][0]), FOUND, LOADED])) == []
    assert faults(log(tmp_path, [FOUND, xid(BROKEN["79"][0])])) == {(G, "gpu_off_bus", "CRITICAL")}


def test_a_fault_that_is_over_does_not_come_back_by_a_milder_line(tmp_path: Path) -> None:
    fatal = "149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x0 0x0 0x0 0x0)"
    mild = "149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001 0x0 0x0 0x0 0x0)"
    before = next_state(None, log(tmp_path, [xid(fatal), LOADED]))

    assert faults(log(tmp_path, [xid(mild)], first_s=3000.0), before) == {(G, "gpu_nvlink_error", "WARNING")}


# The first look


TEN_DAYS_S = 864_000.0


def test_a_fatal_line_from_long_before_the_first_look_is_kept_and_costs_nothing(tmp_path: Path) -> None:
    now = log(tmp_path, [xid(BROKEN["95"][0])], now_s=TEN_DAYS_S, first_s=3600.0)

    (finding,) = findings(now)

    assert (finding.component, finding.fault, finding.severity) == (G, "gpu_xid_notice", Severity.INFO)
    assert (finding.evidence["history"], finding.evidence["xid"]) == ("gpu_ecc_uncontained", 95)


def test_a_line_from_just_before_the_first_look_counts_whole(tmp_path: Path) -> None:
    now = log(tmp_path, [xid(BROKEN["95"][0])], now_s=TEN_DAYS_S, first_s=TEN_DAYS_S - 600)

    assert faults(now) == {(G, "gpu_ecc_uncontained", "CRITICAL")}


def test_an_agent_that_knows_the_log_judges_what_it_missed(tmp_path: Path) -> None:
    before = next_state(None, log(tmp_path, [LOADED], now_s=100.0, first_s=50.0))
    missed = log(tmp_path, [xid(BROKEN["95"][0])], now_s=TEN_DAYS_S, first_s=3600.0)

    assert faults(missed, before) == {(G, "gpu_ecc_uncontained", "CRITICAL")}


def test_the_past_makes_no_later_line_graver(tmp_path: Path) -> None:
    past = log(tmp_path, [xid("149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x0 0x0 0x0 0x0 0x0)")], TEN_DAYS_S, 3600.0)
    mild = "149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001 0x0 0x0 0x0 0x0)"
    later = log(tmp_path, [xid(mild)], TEN_DAYS_S + 50, TEN_DAYS_S)

    assert faults(later, next_state(None, past)) == {(G, "gpu_nvlink_error", "WARNING")}


# Codes that ask for nothing, and victims


@pytest.mark.parametrize(
    "line",
    [
        "92, pid='<unknown>', name=<unknown>, High single-bit ECC error rate",
        "93, pid='<unknown>', name=<unknown>, Non-fatal violation of provisioned InfoROM wear limit",
        "121, C2C Link0 correctable error",
        "157, Resource Retirement Failure: TPC",
        "160, Channel Retirement Event",
        "161, Channel Retirement Failure",
        "155, NVLink: Link 3 was brought down intentionally",
    ],
)
def test_what_nvidia_s_catalogue_says_to_ignore_is_only_kept(tmp_path: Path, line: str) -> None:
    assert {f.severity for f in findings(log(tmp_path, [xid(line)]))} == {Severity.INFO}


def test_a_link_that_went_down_by_itself_still_counts(tmp_path: Path) -> None:
    assert faults(log(tmp_path, [xid("155, NVLink: SW defined error on Link 3")])) == {(G, "gpu_nvlink_error", "MAJOR")}


def test_a_contained_error_waits_for_the_end_of_the_job(tmp_path: Path) -> None:
    remap = "63, Row Remapper: New row (0x00000000bd4a0e20) marked for remapping, reset gpu to activate."
    contained = "94, pid=3112, name=python3, Ch 00000008, Contained: SM (0x1). RST: No, D-RST: No"

    assert faults(log(tmp_path, [xid(remap), xid(contained)])) == {
        (G, "gpu_row_remap_pending", "MAJOR"),
        (G, "gpu_ecc_contained", "MAJOR"),
    }


def test_a_cause_that_only_its_victim_names_is_a_fault_of_the_gpu(tmp_path: Path) -> None:
    victim = "45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149"
    now = log(tmp_path, [xid(victim), xid(victim.replace("149", "145"), PEER)])

    assert faults(now) == {
        (G, "gpu_nvlink_error", "CRITICAL"),
        (G, "gpu_xid_application", "INFO"),
        (P, "gpu_nvlink_error", "WARNING"),
        (P, "gpu_xid_application", "INFO"),
    }
    (cause,) = (f for f in findings(now) if f.severity is Severity.CRITICAL)
    assert (cause.evidence["xid"], cause.evidence["told_by_xid"]) == (149, 45)


@pytest.mark.parametrize("cause", [13, 31, 43, 999_999])
def test_a_cause_that_is_no_fault_of_the_gpu_stays_an_attribute(tmp_path: Path, cause: int) -> None:
    victim = f"45, pid=7, name=python3, Ch 00000001 caused by previous Xid {cause}"

    assert faults(log(tmp_path, [xid(victim)])) == {(G, "gpu_xid_application", "INFO")}


def test_a_cause_that_was_seen_itself_is_not_reported_twice(tmp_path: Path) -> None:
    mild = "149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001 0x0 0x0 0x0 0x0)"
    victim = "45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149"
    before = next_state(None, log(tmp_path, [xid(mild)]))

    assert faults(log(tmp_path, [xid(victim)], first_s=1100.0), before) == {(G, "gpu_xid_application", "INFO")}


# Switches


def acl(link: int) -> list[str]:
    return [
        sxid(f"11004, Non-fatal, Link {link} ingress invalid ACL (First)"),
        sxid(f"11004, Severity 0 Engine instance {link} Sub-engine instance 00"),
        sxid("11004, Data {0x00000008, 0xff9fc39c, 0x00000008, 0xff9fc39c, 0x00000000, 0x00000000, 0x00000000}"),
    ]


def test_a_wrong_partition_is_no_fault_of_the_switch_and_its_three_lines_are_one_event(tmp_path: Path) -> None:
    (once,) = findings(log(tmp_path, acl(36), apart_s=0.001))
    (twice,) = findings(log(tmp_path, [*acl(36), *acl(42)], apart_s=0.001))

    assert (once.component, once.fault, once.severity) == (S, "nvswitch_error", Severity.WARNING)
    assert (once.evidence["count"], twice.evidence["count"]) == (1, 2)


def test_a_fatal_error_of_a_switch_is_still_one(tmp_path: Path) -> None:
    lines = [sxid("20034, Fatal, Link 30 LTSSM Fault Up"), sxid("20034, Severity 1 Engine instance 60 Sub-engine 00")]

    (finding,) = findings(log(tmp_path, lines))

    assert (finding.fault, finding.severity, finding.evidence["count"]) == ("nvswitch_fatal", Severity.CRITICAL, 1)


# Programs


def test_the_errors_of_two_programs_stay_two(tmp_path: Path) -> None:
    first = xid("13, pid=101, name=train_a, Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0): Out Of Range Address")
    second = [xid(f"{code}, pid=202, name=train_b, Ch 00000008") for code in (32, 31, 31)]

    found = findings(log(tmp_path, [first, *second], apart_s=400.0))
    together = findings(log(tmp_path, [first, *second], apart_s=1.0))

    for both in (found[:2], together):
        assert [(f.evidence["pid"], f.evidence["process"]) for f in both] == [(101, "train_a"), (202, "train_b")]
    assert [f.evidence["count"] for f in together] == [1, 3]
    assert together[0].evidence["others"] == "train_b (202)"


def test_the_lines_of_one_program_are_one(tmp_path: Path) -> None:
    lines = [xid(f"{code}, pid=202, name=train_b, Ch 00000008") for code in (13, 31, 43)]

    (finding,) = findings(log(tmp_path, lines))

    assert (finding.evidence["count"], "others" in finding.evidence) == (3, False)


def test_a_fault_of_the_gpu_is_one_whoever_asked_and_its_count_is_that_of_its_own_burst(tmp_path: Path) -> None:
    callers = [xid(f"119, pid={pid}, name=nvidia-smi, Timeout after 45s of waiting") for pid in (1, 2, 3)]
    echo = xid("119, pid=9, name=dcgm, Timeout after 45s of waiting")
    storm = log(tmp_path, callers)
    late = log(tmp_path, [echo], first_s=5000.0)
    now = Log((*storm.entries, *late.entries), storm.devices)

    (finding,) = findings(now)

    assert (finding.evidence["pid"], finding.evidence["count"]) == (1, 3)


def test_a_library_of_another_version_than_the_driver_is_one_warning_of_the_node(tmp_path: Path) -> None:
    lines = (
        "NVRM: API mismatch: the client has the version 535.154.05, but",
        "NVRM: this kernel module has the version 550.78.  Please",
        "NVRM: make sure that this kernel module and all NVIDIA driver",
        "NVRM: components have the same version.",
    )
    for shape in (lines, ("\n".join(lines),)):
        (finding,) = findings(log(tmp_path, shape))
        assert (finding.component, finding.fault) == ("driver", "gpu_driver_mismatch")
        assert (finding.severity, finding.confidence) == (Severity.WARNING, Confidence.LINE)


def test_a_driver_that_loads_and_programs_that_agree_with_it_are_no_fault(tmp_path: Path) -> None:
    assert findings(log(tmp_path, [FOUND, LOADED, lines_of_persistence()])) == []


def lines_of_persistence() -> str:
    return "NVRM: Persistence mode is deprecated and will be removed in a future release."


# What a round costs


def test_a_round_without_lines_asks_only_for_the_devices_of_the_driver(tmp_path: Path) -> None:
    bound = tmp_path / "sys/bus/pci/drivers/nvidia" / G
    bound.mkdir(parents=True)

    quiet, told = log(tmp_path, []), log(tmp_path, [xid(BROKEN["95"][0])])

    assert quiet.devices.on_bus == (G,)
    assert told.devices.on_bus == (S, G, P)
