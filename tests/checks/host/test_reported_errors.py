"""Hardware errors as public reports have them, whole reports of many lines: the right part, as grave as the words say.

The lines are the kernel's formats with the values of the reports; addresses and names are ours. Each has a twin that
must not fire, or not so gravely.
"""

from pathlib import Path

import pytest
from kernel_log_of import findings

from nodetriage.agent.machine.host import Host
from nodetriage.checks.host import mem_errors
from nodetriage.checks.model import KernelRecord
from nodetriage.checks.pcie import pcie_errors

HW = "[Hardware Error]: "
AMD_POISON = (
    f"{HW}Deferred error, no action required.",
    f"{HW}CPU:0 (17:1:1) MC15_STATUS[Over|-|MiscV|AddrV|-|-|SyndV|UECC|Deferred|-|-]: 0xdc2030000000011b",
    f"{HW}Error Addr: 0x00000003aeb64240",
    f"{HW}IPID: 0x0000009600050f00, Syndrome: 0x000060600b404000",
    f"{HW}Unified Memory Controller Ext. Error Code: 0, DRAM ECC error.",
    "EDAC MC0: 1 UE on mc#0csrow#0channel#0 (csrow:0 channel:0 page:0x79d6c8 offset:0x440 grain:64)",
    f"{HW}cache level: L3/GEN, tx: GEN, mem-tx: RD",
    f"mce: {HW}Machine check events logged",
    f"{HW}Uncorrected, software restartable error.",
    f"{HW}CPU:7 (17:1:1) MC0_STATUS[-|UE|MiscV|AddrV|-|-|-|UECC|-|Poison|-]: 0xbc002800000c0135",
    f"{HW}Load Store Unit Ext. Error Code: 12, DC Data error type 1 and poison consumption.",
    "mce: Uncorrected hardware memory error in user-access at 79d6c8440",
    "Memory failure: 0x79d6c8: recovery action for unsplit thp: Ignored",
    "mce: Memory error not recovered",
)
Told = list[tuple[str, str, str, str]]


def told(folder: Path, *lines: str) -> Told:
    """(check, component, fault, severity), the gravest first. What last_reboot says of the node's start is its own."""
    found = ((c, f) for c, f in findings(folder, lines) if c != "last_reboot")
    return [(c, f.component, f.fault, f.severity.name.lower()) for c, f in found]


def cper(number: int, severity: str, *section: str, kind: str = "PCIe error") -> list[str]:
    head = ["Hardware error from APEI Generic Hardware Error Source: 4", f"event severity: {severity}"]
    rest = [f" Error 0, type: {severity}", f"  section_type: {kind}", *(f"  {line}" for line in section)]
    return [f"{{{number}}}{HW}{text}" for text in (*head, *rest)]


def test_memory_that_a_program_used_is_one_fault_of_the_dimm_and_one_of_the_cpu_that_used_it(tmp_path: Path) -> None:
    assert told(tmp_path, *AMD_POISON) == [
        ("mem_errors", "mc#0csrow#0channel#0", "mem_uncorrected", "critical"),
        ("cpu_mce", "cpu7", "cpu_uncorrected", "critical"),
    ]


def test_memory_that_nobody_used_yet_is_major(tmp_path: Path) -> None:
    assert told(tmp_path, *AMD_POISON[:5]) == [("mem_errors", "memory", "mem_uncorrected", "major")]


def test_a_crash_s_machine_check_that_is_logged_at_boot_is_not_called_corrected(tmp_path: Path) -> None:
    lines = (
        f"mce: {HW}Machine check events logged",
        f"{HW}System Fatal error.",
        f"{HW}CPU:4 (19:21:2) MC5_STATUS[-|UE|MiscV|AddrV|PCC|TCC|SyndV|-|-|-]: 0xbea0000001000108",
        f"{HW}Execution Unit Ext. Error Code: 0",
    )

    assert told(tmp_path, *lines) == [("cpu_mce", "cpu4", "cpu_uncorrected", "critical")]


def test_a_corrected_machine_check_is_a_warning_and_its_pointer_to_the_records_no_second_one(tmp_path: Path) -> None:
    lines = (
        f"mce: {HW}Machine check events logged",
        f"{HW}Corrected error, no action required.",
        f"{HW}CPU:4 (19:21:2) MC5_STATUS[-|CE|MiscV|AddrV|-|-|SyndV|-|-|-]: 0x9c20000001000108",
    )

    assert told(tmp_path, *lines) == [("cpu_mce", "cpu4", "cpu_corrected", "warning")]
    assert told(tmp_path, lines[0]) == [("cpu_mce", "cpu", "cpu_corrected", "warning")]


@pytest.mark.parametrize(
    ("status", "vendor", "severity"),
    [
        ("be00000000800400", 0, "critical"),  # uncorrected, context corrupt
        ("bd80000000100134", 0, "critical"),  # uncorrected, signalled
        ("bc20000000000135", 0, "major"),  # uncorrected, no action: nobody used it
        ("9c20000000000135", 0, "warning"),
        ("9c20100000000135", 2, "major"),  # AMD: deferred
        ("9c20100000000135", 0, "warning"),  # Intel: part of the count of corrected errors
    ],
)
def test_the_status_word_decides_whoever_prints_it(status: str, vendor: int, severity: str, tmp_path: Path) -> None:
    lines = (
        f"mce: {HW}CPU 12: Machine Check: 0 Bank 1: {status}",
        f"mce: {HW}TSC 2f3a4b5c6d7e8 ADDR 3fff8a1b2c3d MISC 3880010082",
        f"mce: {HW}PROCESSOR {vendor}:806f8 TIME 1733571456 SOCKET 0 APIC 30 microcode 2b0005c0",
    )

    fault = "cpu_corrected" if severity == "warning" else "cpu_uncorrected"
    assert told(tmp_path, *lines) == [("cpu_mce", "cpu12", fault, severity)]


def test_a_firmware_s_report_is_of_the_device_that_it_names(tmp_path: Path) -> None:
    port = "device_id: 0000:c9:02.0"
    lines = [
        *cper(1, "recoverable", "port_type: 4, root port", port, "slot: 25", "vendor_id: 0x8086, device_id: 0x347a"),
        "pcieport 0000:c9:02.0: AER: aer_status: 0x00200000, aer_mask: 0x00100020",
        "pcieport 0000:c9:02.0:    [21] ACSViol                (First)",
    ]

    assert told(tmp_path, *lines) == [("pcie_errors", "0000:c9:02.0", "pcie_nonfatal", "major")]


def test_two_devices_in_one_report_of_eight_sections_are_two_warnings(tmp_path: Path) -> None:
    head = cper(359, "corrected")[:2]
    sections = [
        f"{{359}}{HW}{text}"
        for number in range(8)
        for text in (
            f" Error {number}, type: corrected",
            "  section_type: PCIe error",
            f"  device_id: 0000:{'20:03.1' if number % 2 else '00:01.1'}",
        )
    ]

    assert told(tmp_path, *head, *sections) == [
        ("pcie_errors", "0000:00:01.1", "pcie_correctable", "warning"),
        ("pcie_errors", "0000:20:03.1", "pcie_correctable", "warning"),
    ]


def test_reports_whose_lines_are_mixed_with_others_are_kept_apart_by_their_numbers(tmp_path: Path) -> None:
    one = cper(7, "fatal", "device_id: 0000:17:00.0")
    two = cper(8, "corrected", "DIMM location: NODE 1 DIMM_F1", kind="memory error")
    mixed = [line for pair in zip(one, two, strict=True) for line in (pair[0], "usb 1-7: new device", pair[1])]

    assert told(tmp_path, *mixed) == [
        ("pcie_errors", "0000:17:00.0", "pcie_fatal", "critical"),
        ("mem_errors", "NODE 1 DIMM_F1", "mem_corrected", "warning"),
    ]


@pytest.mark.parametrize(
    ("fields", "dimm"),
    [
        (("fru_text: Card01, ChnF, DIMM0", "DIMM location: NODE 1 DIMM_F1"), "NODE 1 DIMM_F1"),
        (("fru_text: Card01, ChnF, DIMM0", "error_status: Storage error in DRAM memory"), "Card01, ChnF, DIMM0"),
        (("node: 1 card: 5 module: 0 rank: 1 bank: 2",), "node 1 card 5 module 0"),
        (("node:1 card:5 module:0 rank:1 bank_group:2",), "node 1 card 5 module 0"),
        ((), "memory"),
    ],
)
def test_a_report_of_memory_names_the_dimm_as_well_as_it_can(fields, dimm: str, tmp_path: Path) -> None:
    lines = cper(1, "recoverable", *fields, kind="memory error")

    assert told(tmp_path, *lines) == [("mem_errors", dimm, "mem_uncorrected", "major")]


def test_a_processor_whose_context_is_corrupt_is_critical_and_another_is_not(tmp_path: Path) -> None:
    corrupt = cper(
        1, "recoverable", "Local APIC_ID: 0x4a", "  Processor Context Corrupt: true", kind="IA32/X64 processor error"
    )
    whole = [line.replace("true", "false") for line in corrupt]

    assert told(tmp_path, *corrupt) == [("cpu_mce", "cpu apic 0x4a", "cpu_uncorrected", "critical")]
    assert told(tmp_path, *whole) == [("cpu_mce", "cpu apic 0x4a", "cpu_uncorrected", "major")]


def test_a_section_that_the_kernel_does_not_decode_is_the_firmware_s(tmp_path: Path) -> None:
    lines = cper(2, "recoverable")
    lines[-1] = f"{{2}}{HW}  section type: unknown, 6d5244f2-2712-11ec-bea7-cb3fdb95c786"

    assert told(tmp_path, *lines) == [("cpu_mce", "firmware", "firmware_error", "major")]


def test_the_record_of_the_boot_before_this_one_is_a_warning_on_its_part(tmp_path: Path) -> None:
    bert = [line.removeprefix("{1}") for line in cper(1, "fatal", "device_id: 0000:17:00.0")[1:]]
    lines = ("BERT: Error records from previous boot:", *bert, "BERT: Total records found: 1")

    assert told(tmp_path, *lines) == [("pcie_errors", "0000:17:00.0", "previous_boot_error", "warning")]
    assert told(tmp_path, *cper(1, "fatal", "device_id: 0000:17:00.0"))[0][2:] == ("pcie_fatal", "critical")


def test_a_report_whose_beginning_is_lost_and_one_that_only_informs_are_no_fault(tmp_path: Path) -> None:
    whole = cper(1, "fatal", "device_id: 0000:17:00.0")

    assert told(tmp_path, *whole[2:]) == []
    assert told(tmp_path, *cper(1, "info", "device_id: 0000:17:00.0")) == []


def test_page_tables_that_something_wrote_over_are_the_kernel_s_and_no_hardware(tmp_path: Path) -> None:
    lines = (
        "mm/memory.c:456: bad pmd 000000008f1d2f10(80000004e8c000e7)",
        "BUG: Bad rss-counter state mm:00000000b1b6e5d4 idx:1 val:512",
        "BUG: non-zero pgtables_bytes on freeing mm: 4096",
        "kernel BUG at mm/mmap.c:3103!",
    )

    assert sorted(told(tmp_path, *lines)) == [
        ("kernel_hang", "kernel", "kernel_memory_corrupted", "major"),
        ("kernel_hang", "kernel", "kernel_oops", "major"),
    ]
    assert told(tmp_path, lines[1]) == [("kernel_hang", "kernel", "kernel_memory_corrupted", "warning")]


def test_pages_that_somebody_poisons_for_a_test_are_no_fault(tmp_path: Path) -> None:
    page = "Memory failure: 0x2fd2b5: recovery action for huge page: Failed"
    injected = "Injecting memory failure for pfn 0x2fd2b5 at process virtual address 0x7f21c0000000"

    assert told(tmp_path, injected, page) == [("mem_errors", "memory", "mem_page_retired", "info")]
    assert told(tmp_path, injected.replace("2fd2b5", "1"), page) == [
        ("mem_errors", "memory", "mem_uncorrected", "critical")
    ]


def grace(folder: Path) -> Path:
    """A machine with 1 GiB blocks: node 0 with CPUs has block 0, node 1 without any has block 28."""
    (folder / "sys/devices/system/memory").mkdir(parents=True)
    (folder / "sys/devices/system/memory/block_size_bytes").write_text("40000000\n")
    for node, block, cpus in ((0, 0, "0-71"), (1, 28, "")):
        (folder / f"sys/devices/system/node/node{node}/memory{block}").mkdir(parents=True)
        (folder / f"sys/devices/system/node/node{node}/cpulist").write_text(f"{cpus}\n")
    return folder


def test_pages_of_a_gpu_s_memory_that_its_driver_takes_away_are_no_lost_host_memory(tmp_path: Path) -> None:
    of_gpu = 28 * (1 << 30) // 4096 + 5
    line = "Memory failure: {:#x}: recovery action for reserved kernel page: Ignored"
    machine = grace(tmp_path)

    assert told(machine, line.format(of_gpu)) == [("mem_errors", "memory node1", "mem_page_retired", "warning")]
    assert told(machine, line.format(5)) == [("mem_errors", "memory", "mem_uncorrected", "critical")]


def test_a_storm_of_corrected_pcie_errors_in_the_log_is_a_warning_and_a_few_are_not(tmp_path: Path) -> None:
    line = "nvidia 0000:17:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"

    assert told(tmp_path, *[line] * 19) == [("pcie_errors", "0000:17:00.0", "pcie_correctable", "info")]
    assert told(tmp_path, *[line] * 20) == [("pcie_errors", "0000:17:00.0", "pcie_correctable", "warning")]


CONTAINED = (
    "pcieport 0000:1a:01.0: DPC: containment event, status:0x1f01 source:0x0000",
    "pcieport 0000:1a:01.0: DPC: unmasked uncorrectable error detected",
    "pcieport 0000:1a:01.0: AER: subordinate device reset failed",
    "pcieport 0000:1a:01.0: AER: device recovery failed",
)


@pytest.mark.parametrize(("at_s", "severity"), [(864200, "critical"), (1000, "major")])
def test_a_port_that_cut_off_a_gpu_is_the_gpu_s_fault_and_a_first_look_is_milder(
    at_s: int, severity: str, hosts: Path
) -> None:
    records = tuple(KernelRecord(n, at_s * 1_000_000 + n, 3, line) for n, line in enumerate(CONTAINED))
    host = Host(hosts / "dgx-h100").for_check(pcie_errors.CHECK, records)
    found = list(pcie_errors.judge(pcie_errors.read(host), None, pcie_errors.CHECK.policy))

    assert [(f.component, f.fault, f.severity.name.lower()) for f in found] == [
        ("0000:1b:00.0", "pcie_contained", "major"),
        ("0000:1b:00.0", "pcie_not_recovered", severity),
    ]
    assert {f.evidence["seen_by"] for f in found} == {"0000:1a:01.0"}


def test_a_report_on_a_device_that_is_not_here_is_a_warning_that_says_so(hosts: Path) -> None:
    lines = [*cper(1, "recoverable", "device_id: 0000:c1:00.0"), *cper(2, "recoverable", "device_id: 0000:1b:00.0")]
    records = tuple(KernelRecord(n, -1, 3, line) for n, line in enumerate(lines))
    host = Host(hosts / "dgx-h100").for_check(pcie_errors.CHECK, records)
    found = list(pcie_errors.judge(pcie_errors.read(host), None, pcie_errors.CHECK.policy))

    assert [(f.component, f.fault, f.severity.name.lower()) for f in found] == [
        ("0000:c1:00.0", "kernel_line_unknown_device", "warning"),
        ("0000:1b:00.0", "pcie_nonfatal", "major"),
    ]


@pytest.mark.parametrize(("tree", "witness"), [("dgx-h100-memory-errors", 4), ("dgx-h100", 1)])
def test_the_counters_of_edac_are_the_second_witness_of_lost_data(tree: str, witness: int, hosts: Path) -> None:
    line = "EDAC MC0: 1 UE on mc#0csrow#2channel#1 (csrow:2 channel:1 page:0x1bd2c06 offset:0x500 grain:64)"
    host = Host(hosts / tree).for_check(mem_errors.CHECK, (KernelRecord(1, -1, 3, line),))
    (found,) = mem_errors.judge(mem_errors.read(host), None, mem_errors.CHECK.policy)

    assert (found.fault, found.severity.name, int(found.confidence)) == ("mem_uncorrected", "CRITICAL", witness)
