"""PCI devices that left their slot, do not wake up, or cannot be set up; and power that a slot lost.

Source: drivers/pci/hotplug, drivers/pci/pci.c, quirks.c, setup-res.c; drivers/acpi/device_pm.c. An NVMe disk that a
person pulls prints what a card prints that lost its link: the line does not tell them apart.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_HOTPLUG = "drivers/pci/hotplug/pciehp_ctrl.c"
_HPC = "drivers/pci/hotplug/pciehp_hpc.c"
_PCI = "drivers/pci/pci.c"
_SLOT = r"pciehp: Slot\((?P<slot>[\w.-]{1,20})\): "


def _rule(
    name: str, text: str, fault: str, severity: Severity, source: str, *examples: str, state: str = "lasting",
    never: tuple[str, ...] = (), versions: str = "all",
) -> KernelRule:  # fmt: skip
    return KernelRule(name, text, fault, severity, examples, r"\g<device>", "pci", state, source, versions, never)


RULES = KernelRules((
    _rule(
        "pciehp.recovered", rf"{_SLOT}Link Down/Up ignored", "pcie_recovered", Severity.WARNING,
        f"{_HPC}:pciehp_ignore_dpc_link_change",
        "pcieport 0000:16:01.0: pciehp: Slot(7-1): Link Down/Up ignored (recovered by DPC)", state="recovered",
    ),
    _rule(
        "pciehp.lost", rf"{_SLOT}(?:Link Down|Card not present)$", "pcie_card_lost", Severity.CRITICAL,
        f"{_HOTPLUG}:pciehp_handle_presence_or_link_change", "pcieport 0000:16:01.0: pciehp: Slot(7-1): Link Down",
        "pcieport 0000:16:01.0: pciehp: Slot(7-1): Card not present",
        never=("pcieport 0000:16:01.0: pciehp: Slot(7-1): Link Up", "pcieport 0000:16:01.0: pciehp: Slot(7-1): Card present"),
    ),
    _rule(
        "pciehp.no_link", rf"{_SLOT}(?:No link|Cannot train link|No device found|Failed to check link status)",
        "pcie_card_lost", Severity.MAJOR, f"{_HPC}:pciehp_check_link_status",
        "pcieport 0000:16:01.0: pciehp: Slot(7-1): No link", "pcieport 0000:16:01.0: pciehp: Slot(7-1): No device found",
        "pcieport 0000:16:01.0: pciehp: Slot(7-1): Cannot train link: status 0x1041",
    ),
    _rule(
        "pciehp.button", rf"{_SLOT}Button press: will power off", "pcie_degraded", Severity.WARNING,
        f"{_HOTPLUG}:pciehp_handle_button_press",
        "pcieport 0000:16:01.0: pciehp: Slot(7-1): Button press: will power off in 5 sec", state="event",
    ),
    _rule(
        "pciehp.power", rf"{_SLOT}Power fault", "pcie_card_lost", Severity.CRITICAL, f"{_HPC}:pciehp_isr",
        "pcieport 0000:16:01.0: pciehp: Slot(7-1): Power fault",
    ),
    _rule(
        "pci.inaccessible",
        r"(?:can't change power state from \w{2,8} to \w{2,8} \(config space inaccessible\)"
        r"|Unable to change power state from \w{2,8} to \w{2,8}, device inaccessible)",
        "pcie_unreachable", Severity.CRITICAL, f"{_PCI}:pci_power_up",
        "nvidia 0000:17:00.0: can't change power state from D3cold to D0 (config space inaccessible)",
        "nvidia 0000:17:00.0: Unable to change power state from D3cold to D0, device inaccessible",
    ),
    _rule(
        "pci.refused", r"(?i:Refused) to change power state", "pcie_degraded", Severity.MAJOR, f"{_PCI}:pci_set_full_power_state",
        "nvidia 0000:17:00.0: Refused to change power state from D3hot to D0",
        "nvidia 0000:17:00.0: refused to change power state from D3hot to D0",
    ),
    _rule(
        "pci.not_ready", r"not ready \d{1,7}ms after (?P<after>[\w >-]{2,30}); giving up", "pcie_unreachable", Severity.CRITICAL,
        f"{_PCI}:pci_dev_wait", "nvidia 0000:17:00.0: not ready 65535ms after FLR; giving up",
        never=("nvidia 0000:17:00.0: not ready 1023ms after FLR; waiting",),
    ),
    _rule(
        "pci.flr_pending", r"timed out waiting for pending transaction; performing function level reset", "pcie_degraded",
        Severity.WARNING, f"{_PCI}:pcie_flr",
        "nvidia 0000:17:00.0: timed out waiting for pending transaction; performing function level reset anyway", state="event",
    ),
    _rule(
        "pci.retrain", r"broken device, retraining non-functional downstream link", "pcie_degraded", Severity.MAJOR,
        "drivers/pci/quirks.c:pcie_failed_link_retrain",
        "pcieport 0000:16:01.0: broken device, retraining non-functional downstream link at 2.5GT/s", versions="6.8 and later",
    ),
    _rule(
        "pci.retrain.failed", r"retraining failed$", "pcie_not_recovered", Severity.CRITICAL,
        "drivers/pci/quirks.c:pcie_failed_link_retrain", "pcieport 0000:16:01.0: retraining failed", versions="6.8 and later",
    ),
    # Which width a slot has is for pcie_link to judge, by sysfs: some boards give a card fewer lanes on purpose.
    _rule(
        "pci.bandwidth", r"[\d.]{1,9} Gb/s available PCIe bandwidth, limited by (?P<link>[\d.]{1,5} GT/s PCIe x\d{1,2}) link at",
        "pcie_degraded", Severity.INFO, f"{_PCI}:__pcie_print_link_status",
        "mlx5_core 0000:9a:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x4 link at 0000:99:00.0 "
        "(capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)",
    ),
    # A BAR of a virtual function or of I/O ports is left without an address on many healthy boards.
    _rule(
        "pci.bar", r"BAR \d \[mem size 0x[0-9a-f]{1,16} 64bit pref\]: failed to assign", "pcie_degraded", Severity.WARNING,
        "drivers/pci/setup-res.c:pci_assign_resource",
        "pci 0000:17:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: failed to assign", versions="6.8 and later",
        never=("pci 0000:17:00.0: BAR 5 [io  size 0x0080]: failed to assign",),
    ),
    KernelRule(
        "acpi.power", r"ACPI: (?P<path>[\w\\.^]{1,80}): Device has suffered a power fault", "power_fault", Severity.MAJOR,
        ("ACPI: \\_SB_.PC00.RP01: Device has suffered a power fault",), r"\g<path>", state="lasting",
        source="drivers/acpi/bus.c",
    ),
))  # fmt: skip
