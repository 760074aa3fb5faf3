"""Lines of public reports that stand in no table of ours: other kernels, other wordings. Values are ours."""

from pathlib import Path

import pytest
from kernel_log_of import findings

HW = "[Hardware Error]: "


@pytest.mark.parametrize(
    ("line", "component", "fault", "severity"),
    [
        ("pcieport 0015:00:00.0: DPC: containment event, status:0x200d, ERR_FATAL received from 0015:01:00.0",
         "0015:00:00.0", "pcie_contained", "major"),
        ("pcieport 0000:00:01.4: DPC: Data Link Layer Link Active not set in 1000 msec", "0000:00:01.4",
         "pcie_not_recovered", "critical"),
        ("pcieport 0015:00:00.0: pciehp: Slot(21): Link Down/Up ignored", "0015:00:00.0", "pcie_recovered", "warning"),
        ("nvidia-gpu 0000:09:00.3: Refused to change power state, currently in D3", "0000:09:00.3", "pcie_degraded",
         "major"),
        ("xhci_hcd 0000:09:00.2: HC died; cleaning up", "0000:09:00.2", "usb_controller_dead", "warning"),
        ("snd_hda_intel 0000:03:00.1: AER: can't recover (no error_detected callback)", "0000:03:00.1",
         "pcie_not_recovered", "critical"),
        ("pcieport 0000:00:03.0: AER: Multiple Uncorrected (Fatal) error received: 0000:00:03.0", "0000:00:03.0",
         "pcie_fatal", "critical"),
        ("pcieport 0000:80:1b.4: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
         "0000:80:1b.4", "pcie_nonfatal", "major"),
        ("pcieport 0000:00:1c.5: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00e5(Receiver ID)",
         "0000:00:1c.5", "pcie_correctable", "info"),
        (f"{HW}CPU 4: Machine Check Exception: 5 Bank 3: be00000000800400", "cpu4", "cpu_uncorrected", "critical"),
        (f"mce: {HW}CPU 10: Machine Check Exception: 5 Bank 6: fb80000000000e0b", "cpu10", "cpu_uncorrected",
         "critical"),
        (f"mce: {HW}CPU 0: Machine Check Exception: 5 Bank 10: fe002984001000c1", "memory", "mem_uncorrected",
         "critical"),
        ("Kernel panic - not syncing: Fatal local machine check", "kernel", "kernel_panic", "critical"),
        ("Memory failure: 0xe16677: already hardware poisoned", "memory", "mem_page_retired", "warning"),
    ],
)  # fmt: skip
def test_a_wording_of_another_kernel_is_the_same_fault(line, component, fault, severity, tmp_path: Path) -> None:
    found = [(f.component, f.fault, f.severity.name.lower()) for _, f in findings(tmp_path, [line])]

    assert found == [(component, fault, severity)]


@pytest.mark.parametrize(
    ("fields", "dimm", "severity"),
    [
        (("fru_text: B1", "section_type: memory error"), "B1", "recoverable"),
        (("section_type: memory error", "node: 0 card: 0 module: 0 rank: 0 bank: 2", "DIMM location: CPU 1 DIMM 5"),
         "CPU 1 DIMM 5", "recoverable"),
        (("fru_text: D2", "section_type: memory error", "node:6 card:1 module:0 rank:1 bank:2 device:11"), "D2",
         "corrected"),
    ],
)  # fmt: skip
def test_a_firmware_s_memory_report_is_read_though_a_paste_lost_its_blanks(fields, dimm, severity, tmp_path) -> None:
    lines = [f"event severity: {severity}", f"Error 0, type: {severity}", *fields]
    found = findings(tmp_path, [f"{{3}}{HW}{line}" for line in lines])

    assert [(check, f.component) for check, f in found] == [("mem_errors", dimm)]
    assert {f.fault for _, f in found} == {"mem_corrected" if severity == "corrected" else "mem_uncorrected"}


MCE = f"mce: {HW}"
EDAC = "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0xee30a0)"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        # A record that EDAC has told of is no second one on a CPU; one that nobody tells of is the CPU's.
        ([f"{MCE}Machine check events logged", EDAC], {("mem_corrected", "info")}),
        ([f"{MCE}Machine check events logged"], {("cpu_corrected", "warning")}),
        # Bit 60: an error that no bit of the bank's control word enabled did not happen under Linux.
        ([f"{MCE}CPU 0: Machine Check: 0 Bank 4: a600000000020408"], {("previous_boot_error", "warning")}),
        ([f"{MCE}CPU 0: Machine Check: 0 Bank 4: b600000000020408"], {("cpu_uncorrected", "critical")}),
        ([f"{MCE}CPU 0: Machine Check Exception: 5 Bank 4: a600000000020408"], {("cpu_uncorrected", "critical")}),
        # Bank 128 is the thermal status, and 8 is a bank.
        ([f"{MCE}CPU 2: Machine Check: 0 Bank 128: 00000000087f0022"], set()),
        ([f"{MCE}CPU 2: Machine Check: 0 Bank 8: 90000000087f0022"], {("cpu_corrected", "warning")}),
    ],
)  # fmt: skip
def test_a_machine_check_is_worth_what_its_record_says(lines, found, tmp_path: Path) -> None:
    assert {(f.fault, f.severity.name.lower()) for _, f in findings(tmp_path, lines)} == found


HEALTHY = """\
EDAC MC: Ver: 3.0.0
EDAC MC0: Giving out device to module amd64_edac controller F19h_M70h: DEV 0000:00:18.3 (INTERRUPT)
EDAC amd64: F19h_M70h detected (node 0).
EDAC amd64: MC: 2:  8192MB 3:  8192MB
EDAC PCI0: Giving out device to module i7core_edac controller EDAC PCI controller: DEV 0000:ff:03.0 (POLLED)
EDAC igen6: v2.5.1
EDAC DEBUG: edac_create_sysfs_mci_device: device mc0 created
Too many memory controllers: 16
resource: resource sanity check: requesting [mem 0x00000000fedc0000-0x00000000fedcffff], which spans more than pnp 00:03
clocksource: refined-jiffies: mask: 0xffffffff max_cycles: 0xffffffff, max_idle_ns: 1910969940391419 ns
clocksource: tsc-early: mask: 0xffffffffffffffff max_cycles: 0x23fa7ec29e6, max_idle_ns: 440795214074 ns
tsc: Detected 2394.536 MHz processor
Calibrating delay loop (skipped), value calculated using timer frequency.. 4789.07 BogoMIPS (lpj=2394536)
DMAR: IOMMU enabled
DMAR: Host address width 46
DMAR-IR: Enabled IRQ remapping in x2apic mode
iommu: Default domain type: Translated
AMD-Vi: Interrupt remapping enabled
pci 0000:17:00.0: Adding to iommu group 42
pci 0000:3a:00.0: BAR 13: failed to assign [io  size 0x1000]
pci 0000:3a:00.0: BAR 7 [io  size 0x1000]: failed to assign
pcieport 0000:16:01.0: PME: Signaling with IRQ 117
pcieport 0000:16:01.0: AER: enabled with IRQ 118
pcieport 0000:16:01.0: DPC: enabled with IRQ 118
pcieport 0000:16:01.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+ RP PIO Log 4
pcieport 0000:30:03.0: AER: broadcast error_detected message
pcieport 0015:00:00.0: EDR: DPC port successfully recovered
pcieport 0000:16:01.0: pciehp: Slot(7-1): Card present
nvme 0000:34:00.0: ready 0ms after DPC
HEST: Table parsing has been initialized.
GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.
ERST: Error Record Serialization Table (ERST) support is initialized.
BERT: Boot Error Record Table support is disabled. Enable it by using bert_enable as kernel parameter.
[Firmware Bug]: TPM interrupt not working, polling instead
ACPI BIOS Warning (bug): Incorrect checksum in table [SSDT] - 0x05, should be 0x9F (20200925/tbprint-177)
ACPI Error: AE_NOT_FOUND, Evaluating _DSM (20200925/pci_root)
MCE: In-kernel MCE decoding enabled.
mce: CPU0: Thermal monitoring enabled (TM1)
mce: CPU supports 32 MCE banks
mce: Using 64 MCE banks
smp: Brought up 2 nodes, 224 CPUs
smpboot: Total of 224 processors activated (896000.00 BogoMIPS)
rcu: RCU restricting CPUs from NR_CPUS=8192 to nr_cpu_ids=224.
rcu: RCU calculated value of scheduler-enlistment delay is 100 jiffies.
NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.
watchdog: Delayed init of the lockup detector failed: -19
thermal LNXTHERM:00: registered as thermal_zone0
ACPI: thermal: Thermal Zone [TZ00] (28 C)
ipmi_si IPI0001:00: IPMI message handler: Found new BMC (man_id: 0x000157, prod_id: 0x099b, dev_id: 0x20)
ipmi_si dmi-ipmi-si.0: Adding SMBIOS-specified kcs state machine
xhci_hcd 0000:00:14.0: hcc params 0x200077c1 hci version 0x100 quirks 0x0000000000009810
usb usb3: root hub lost power or was reset
arm-smmu-v3 arm-smmu-v3.0.auto: ias 48-bit, oas 48-bit (features 0x001c1fff)
arm-smmu-v3 arm-smmu-v3.0.auto: allocated 524288 entries for cmdq
Memory: 949628K/1004124K available (14348K kernel code, 1681K rwdata, 3500K rodata, 10464K init, 680K bss)
Freeing unused kernel image (initmem) memory: 4656K
Out of memory killer is enabled
systemd[1]: Listening on Process Core Dump Socket.
kauditd_printk_skb: 24 callbacks suppressed
igc 0000:56:00.0: 4.000 Gb/s available PCIe bandwidth (5.0 GT/s PCIe x1 link)
mlx5_core 0000:9a:00.0: 504.112 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)
"""


def test_what_healthy_machines_say_at_boot_is_no_more_than_information(tmp_path: Path) -> None:
    found = [(f.fault, f.evidence.get("text")) for _, f in findings(tmp_path, HEALTHY.splitlines()) if f.severity > 1]

    assert found == []
