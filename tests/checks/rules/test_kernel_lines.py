"""What the kernel's log says of CPUs, memory, disks, file systems and itself."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.host import cpu_mce, kernel_hang, mem_errors, platform_errors
from nodetriage.checks.model import Check, KernelRecord, Severity
from nodetriage.checks.pcie import pcie_errors
from nodetriage.checks.storage import disk_errors, fs_errors

CHECKS = (
    cpu_mce.CHECK, mem_errors.CHECK, pcie_errors.CHECK, disk_errors.CHECK, fs_errors.CHECK, kernel_hang.CHECK,
    platform_errors.CHECK,
)  # fmt: skip
NOISE = (
    "EXT4-fs (md1): mounted filesystem 5f7c r/w with ordered data mode. Quota mode: none.",
    "EXT4-fs (sda2): re-mounted. Opts: (null)",
    "XFS (nvme0n1p1): Mounting V5 Filesystem",
    "XFS (nvme0n1p1): Ending clean mount",
    "nvme nvme0: 128/0/0 default/read/poll queues",
    "nvme nvme0: Shutdown timeout set to 10 seconds",
    "md/raid1:md0: active with 2 out of 2 mirrors",
    "traps: a.out[5150] general protection fault ip:401136 sp:7ffd31d2b4f0 error:0 in a.out[401000+1000]",
    "a.out[5151]: segfault at 0 ip 0000000000401136 sp 00007ffc error 6 in a.out[401000+1000]",
    "Memory cgroup out of memory: Killed process 4242 (python3) total-vm:104857600kB",
    "soft offline: 0x2f1a7b: page migrated",
    "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:64:0a.0 (INTERRUPT)",
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "mce: CPU12: Core temperature/speed normal (total events = 17)",
    "rcu: Hierarchical RCU implementation.",
    "watchdog: Delayed init of the lockup detector failed: -22",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    'audit: type=1400 audit(1.2:3): apparmor="STATUS" name="error, dev x"',
)

TREE = Path(__file__).parents[2] / "hosts/cpu-only"  # which does not say what block devices there are


def found(check: Check, *lines: str) -> list[tuple[str, str, Severity]]:
    records = tuple(KernelRecord(i, -1, 3, line) for i, line in enumerate(lines))
    host = Host(TREE).for_check(check, records)
    return [(f.component, f.fault, f.severity) for f in check.judge(check.read(host), None, check.policy)]


@pytest.mark.parametrize("line", NOISE)
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.name)
def test_what_every_healthy_machine_logs_is_no_fault(check: Check, line: str) -> None:
    assert found(check, line) == []


@pytest.mark.parametrize(
    ("line", "component", "fault", "severity"),
    [
        ("mce: [Hardware Error]: CPU 41: Machine Check: 0 Bank 6: be00000000800400", "cpu41", "cpu_uncorrected", 4),
        (
            "mce: [Hardware Error]: CPU 41: Machine Check Exception: 5 Bank 0: b200000000070005",
            "cpu41",
            "cpu_uncorrected",
            4,
        ),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 1: 8c00004000010135", "cpu3", "cpu_corrected", 2),
        ("[Hardware Error]: Uncorrected, software restartable error.", "cpu", "cpu_uncorrected", 4),
        ("[Hardware Error]: Corrected error, no action required.", "cpu", "cpu_corrected", 2),
        ("{1}[Hardware Error]: event severity: fatal", "firmware", "firmware_error", 4),
        ("{7}[Hardware Error]: event severity: recoverable", "firmware", "firmware_error", 3),
        ("{7}[Hardware Error]: event severity: corrected", "firmware", "firmware_error", 2),
        ("[Hardware Error]: System Fatal error.", "cpu", "cpu_uncorrected", 4),
        ("[Hardware Error]: Deferred error, no action required.", "cpu", "cpu_uncorrected", 3),
        ("SError Interrupt on CPU17, code 0x00000000be000011 -- SError", "cpu17", "cpu_uncorrected", 4),
        ("Internal error: synchronous external abort: 96000210 [#1] SMP", "cpu", "cpu_uncorrected", 4),
        (
            "mce: CPU12: Core temperature is above threshold, cpu clock is throttled (total events = 17)",
            "cpu",
            "cpu_throttled",
            2,
        ),
        (
            "CPU3: Package temperature/speed above threshold, cpu clock throttled (total events = 1)",
            "cpu",
            "cpu_throttled",
            2,
        ),
    ],
)
def test_a_hardware_error_has_its_fault(line: str, component: str, fault: str, severity: int) -> None:
    assert found(cpu_mce.CHECK, line) == [(component, fault, Severity(severity))]


@pytest.mark.parametrize(
    ("line", "component", "fault", "severity"),
    [
        ("EDAC MC0: 1 UE memory read error on DIMM_B1 (channel:1 slot:0)", "DIMM_B1", "mem_uncorrected", 4),
        ("EDAC MC0: 1 UE on mc#0csrow#2channel#1 (csrow:2 channel:1)", "mc#0csrow#2channel#1", "mem_uncorrected", 4),
        ("EDAC MC0: 1 UE Multi-bit ECC on unknown memory (node:1 card:5)", "memory", "mem_uncorrected", 4),
        ("EDAC MC0: 1 CE memory read error on DIMM_B1 (channel:1 slot:0)", "DIMM_B1", "mem_corrected", 1),
        ("EDAC MC0: 500 CE memory read error on DIMM_B1 (channel:1 slot:0)", "DIMM_B1", "mem_corrected", 2),
        ("Memory failure: 0x2f1a7b: recovery action for huge page: Failed", "memory", "mem_uncorrected", 4),
        ("Memory failure: 0x2f1a7b: recovery action for unsplit thp: Ignored", "memory", "mem_uncorrected", 4),
        ("Memory failure: 0x2f1a7b: recovery action for dirty LRU page: Recovered", "memory", "mem_uncorrected", 3),
        ("Memory failure: 0x2f1a7b: recovery action for clean LRU page: Recovered", "memory", "mem_page_retired", 2),
        ("Memory failure: 0x2f1a7b: Sending SIGBUS to python3:31 due to hardware memory corruption", "memory",
         "mem_uncorrected", 4),
        ("mce: Uncorrected hardware memory error in user-access at 3f80", "memory", "mem_uncorrected", 4),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 9: 8c000040000800c1", "memory", "mem_corrected", 2),
    ],
)  # fmt: skip
def test_a_memory_error_has_its_dimm_and_what_became_of_the_page(line, component, fault, severity) -> None:
    assert found(mem_errors.CHECK, line) == [(component, fault, Severity(severity))]


@pytest.mark.parametrize(
    ("line", "component", "fault", "severity"),
    [
        ("pcieport 0000:16:01.0: DPC: containment event, status:0x1f01 source:0x0000", "0000:16:01.0",
         "pcie_contained", 3),
        ("nvidia 0000:17:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
         "0000:17:00.0", "pcie_fatal", 4),
        ("nvidia 0000:17:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", "0000:17:00.0",
         "pcie_correctable", 1),
        ("pcieport 0000:16:01.0: pciehp: Slot(7-1): Link Down", "0000:16:01.0", "pcie_card_lost", 4),
        ("DMAR: VT-d detected Invalidation Time-out Error: SID 1700", "0000:17:00.0", "pcie_unreachable", 4),
        ("DMAR: [DMA Read] Request device [17:00.0] PASID ffffffff fault addr 7f3a10000000 [fault reason 06] PTE",
         "0000:17:00.0", "iommu_fault", 2),
    ],
)  # fmt: skip
def test_a_pcie_device_s_line_names_it(line, component, fault, severity, tmp_path: Path) -> None:
    host = Host(tmp_path).for_check(pcie_errors.CHECK, (KernelRecord(1, -1, 3, line),))
    said = pcie_errors.judge(pcie_errors.read(host), None, pcie_errors.CHECK.policy)

    assert [(f.component, f.fault, f.severity) for f in said] == [(component, fault, Severity(severity))]


@pytest.mark.parametrize(
    ("line", "component", "fault", "severity"),
    [
        ("tsc: Marking TSC unstable due to clocksource watchdog", "kernel", "clock_source_unstable", 3),
        ("Out of memory: Killed process 4711 (python3) total-vm:18kB", "kernel", "kernel_out_of_memory", 2),
        ("reboot: HARDWARE PROTECTION shutdown (Temperature too high)", "kernel", "thermal_shutdown", 4),
        ("ipmi_si IPI0001:00: KCS in invalid state 9", "bmc", "bmc_unreachable", 2),
    ],
)
def test_a_platform_s_line_has_its_fault(line: str, component: str, fault: str, severity: int) -> None:
    assert found(platform_errors.CHECK, line) == [(component, fault, Severity(severity))]


@pytest.mark.parametrize(
    ("line", "fault", "severity"),
    [
        ("INFO: task python3:41217 blocked for more than 120 seconds.", "kernel_hung_task", 2),
        ("watchdog: BUG: soft lockup - CPU#17 stuck for 26s! [kworker/17:2:988]", "kernel_soft_lockup", 3),
        ("watchdog: Watchdog detected hard LOCKUP on cpu 3", "kernel_hard_lockup", 4),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "kernel_hard_lockup", 4),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", "kernel_rcu_stall", 3),
        ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "kernel_rcu_stall", 3),
        ("BUG: unable to handle page fault for address: ffffb5a2c0c01000", "kernel_oops", 3),
        ("BUG: kernel NULL pointer dereference, address: 0000000000000008", "kernel_oops", 3),
        ("kernel BUG at mm/slub.c:448!", "kernel_oops", 3),
        ("Oops: 0000 [#1] PREEMPT SMP NOPTI", "kernel_oops", 3),
        ("general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP", "kernel_oops", 3),
    ],
)
def test_a_kernel_that_hangs_or_broke_has_its_fault(line: str, fault: str, severity: int) -> None:
    assert found(kernel_hang.CHECK, line) == [("kernel", fault, Severity(severity))]


@given(st.lists(st.text(max_size=200), max_size=8))
def test_any_text_is_read_without_a_crash(texts: list[str]) -> None:
    for check in CHECKS:
        records = tuple(KernelRecord(i, -1, 3, text) for i, text in enumerate(texts))
        list(check.judge(check.read(Host(TREE).for_check(check, records)), None, check.policy))
