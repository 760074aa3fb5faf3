"""PCIe errors that the kernel counted."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.agent.workers.run import run
from nodetriage.checks.gpu import gpu_xid
from nodetriage.checks.model import Finding, Severity, Unavailable
from nodetriage.checks.pcie.pcie_aer import CHECK, Policy, judge, read
from nodetriage.checks.readers.pcie.aer import Counts

NIC, PORT = "0000:18:00.0", "0000:17:01.0"


def counts(at_s: float, address: str = NIC, component: str = NIC, **errors: dict[str, int]) -> Counts:
    return Counts(address, component, "nic", at_s, {"fatal": {}, "nonfatal": {}, "correctable": {}, **errors})


def found(before: Counts, now: Counts, policy: Policy = CHECK.policy) -> list[Finding]:
    return list(judge((now,), (before,), policy))


def test_errors_from_before_the_first_look_are_history() -> None:
    assert list(judge((counts(9000, fatal={"TLP": 3, "TOTAL_ERR_FATAL": 3}),), None, Policy())) == []


@pytest.mark.parametrize(
    ("class_", "severity"), [("fatal", Severity.CRITICAL), ("nonfatal", Severity.MAJOR)], ids=["fatal", "nonfatal"]
)
def test_one_uncorrected_error_is_enough(class_: str, severity: Severity) -> None:
    (finding,) = found(counts(0), counts(60, **{class_: {"CmpltTO": 1, "TOTAL_ERR": 1}}))

    assert (finding.component, finding.fault, finding.severity) == (NIC, f"pcie_{class_}", severity)
    assert (finding.evidence["errors"], finding.evidence["names"]) == (1, "CmpltTO")


def test_an_error_that_only_the_port_above_logged_is_the_device_s() -> None:
    before = (counts(0), counts(0, PORT, NIC))
    now = (counts(60), counts(60, PORT, NIC, fatal={"SDES": 1, "TOTAL_ERR_FATAL": 1}))

    (finding,) = judge(now, before, Policy())

    assert (finding.component, finding.evidence["seen_by"]) == (NIC, PORT)


def test_both_ends_of_one_link_give_one_finding_with_the_errors_of_both() -> None:
    before = (counts(0), counts(0, PORT, NIC))
    now = (counts(60, nonfatal={"CmpltTO": 2}), counts(60, PORT, NIC, nonfatal={"CmpltTO": 5}))

    (finding,) = judge(now, before, Policy())

    assert (finding.evidence["errors"], finding.evidence["seen_by"]) == (7, PORT)


def test_the_total_counts_where_it_rose_more_than_the_names_that_the_kernel_knows() -> None:
    (finding,) = found(counts(0), counts(60, nonfatal={"TOTAL_ERR_NONFATAL": 2}))

    assert finding.evidence["errors"] == 2


def test_a_counter_that_fell_was_reset_and_nothing_is_concluded() -> None:
    before = counts(0, correctable={"RxErr": 5000, "TOTAL_ERR_COR": 5000})

    assert found(before, counts(60, correctable={"BadTLP": 900, "TOTAL_ERR_COR": 900})) == []


@pytest.mark.parametrize(
    ("errors", "over_s", "storm"),
    [(19, 60, False), (20, 60, True), (100, 3600, True), (99, 3600, False), (5000, 10, True)],
)
def test_corrected_errors_count_by_their_rate(errors: int, over_s: float, storm: bool) -> None:
    now = counts(over_s, correctable={"BadTLP": errors, "TOTAL_ERR_COR": errors})

    assert [(f.fault, f.severity) for f in found(counts(0), now)] == [("pcie_correctable", Severity.WARNING)] * storm


def test_where_the_firmware_keeps_the_errors_the_check_is_skipped(hosts: Path) -> None:
    with pytest.raises(Unavailable, match="firmware"):
        read(Host(hosts / "cpu-only"))


@pytest.mark.parametrize("text", ["", "RxErr\n", "RxErr -1\n", "RxErr many\n", "\ufffd\n", "RxErr " + "9" * 300])
def test_counters_that_make_no_sense_are_found(tmp_path: Path, text: str) -> None:
    folder = tmp_path / f"sys/bus/pci/devices/{NIC}"
    folder.mkdir(parents=True)
    (folder / "uevent").write_text("PCI_CLASS=20700\nPCI_ID=15B3:1021\n")
    (folder / "aer_dev_fatal").write_text(text)

    (finding,) = judge(read(Host(tmp_path)), None, Policy())

    assert finding.fault == "pcie_unreadable"
    assert "aer_dev_fatal" in str(finding.evidence["error"])


def test_errors_of_a_link_above_a_switch_are_told_once_with_all_devices_behind_it(hosts: Path) -> None:
    tree = hosts / "switch-uplink-narrow"
    before = run(CHECK, Host(tree / "before"), CHECK.policy, None).memory

    found = run(CHECK, Host(tree), CHECK.policy, before).findings

    assert {(f.component, f.fault): f.evidence["errors"] for f in found} == {
        ("0000:16:00.0", "pcie_correctable"): 2000,
        ("0000:16:00.0", "pcie_nonfatal"): 1000,
    }
    assert {f.evidence["behind"] for f in found} == {"0000:18:00.0 0000:19:00.0"}


def test_errors_below_a_switch_are_those_of_the_one_device_there(hosts: Path) -> None:
    tree = hosts / "switch-uplink-narrow/before"
    below = next(c for c in read(Host(tree)) if c.address == "0000:17:01.0")
    now = replace(below, at_s=below.at_s + 60, errors={**below.errors, "fatal": {"TLP": 1, "TOTAL_ERR_FATAL": 1}})

    (finding,) = judge((now,), read(Host(tree)), Policy())

    assert (finding.component, finding.fault, "behind" in finding.evidence) == ("0000:19:00.0", "pcie_fatal", False)


def test_aer_and_xid_79_of_one_gpu_name_one_part(hosts: Path) -> None:
    host = Host(hosts / "dgx-h100-pcie-aer")
    before = run(CHECK, Host(hosts / "dgx-h100-pcie-aer/before"), CHECK.policy, None).memory
    aer = run(CHECK, host.for_check(CHECK), CHECK.policy, before).findings
    xid = run(gpu_xid.CHECK, host.for_check(gpu_xid.CHECK), gpu_xid.CHECK.policy, None).findings

    assert ("0000:9d:00.0", "pcie_fatal") in {(f.component, f.fault) for f in aer}
    assert ("0000:9d:00.0", "gpu_off_bus") in {(f.component, f.fault) for f in xid}
