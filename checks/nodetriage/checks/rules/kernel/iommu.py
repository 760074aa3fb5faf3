"""IOMMUs: DMA that was refused, and devices that do not answer them.

Source: drivers/iommu/intel/dmar.c, drivers/iommu/amd/iommu.c, drivers/iommu/arm/arm-smmu-v3. A refused DMA is a mistake
of a driver or of firmware as often as of a device. A device that answers no invalidation is gone or hangs. Intel's
lines have no PCI domain.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import PCI, KernelRule, KernelRules

_DMAR = "drivers/iommu/intel/dmar.c"
_AMD = "drivers/iommu/amd/iommu.c:iommu_print_event"
_SMMU = "drivers/iommu/arm/arm-smmu-v3/arm-smmu-v3.c"
_BDF = r"(?:0x)?(?P<bus>[0-9a-f]{2}):(?:0x)?(?P<slot>[0-9a-f]{2}\.[0-7])"  # with 0x in 5.14
_ARM = r"arm-smmu-v3 (?P<smmu>[\w.:-]{1,40}): "
_OF = rf"\w{{0,10}}device=(?P<source>{PCI})"


def _rule(
    name: str, text: str, fault: str, severity: Severity, source: str, *examples: str, component: str = "iommu",
    prefix: str = "", state: str = "event", never: tuple[str, ...] = (),
) -> KernelRule:  # fmt: skip
    return KernelRule(name, text, fault, severity, examples, component, prefix, state, source, never=never)


RULES = KernelRules((
    _rule(
        "dmar.fault", rf"DMAR: \[(?P<what>DMA Read|DMA Write|INTR-REMAP)(?: NO_PASID)?\] Request device \[{_BDF}\]", "iommu_fault", Severity.WARNING,
        f"{_DMAR}:dmar_fault_do_one",
        "DMAR: [DMA Read] Request device [17:00.0] PASID ffffffff fault addr 7f3a10000000 [fault reason 06] PTE Read "
        "access is not set",
        "DMAR: [DMA Write NO_PASID] Request device [5e:00.0] fault addr 0x38bf40000000 [fault reason 0x05] PTE Write",
        "DMAR: [DMA Read NO_PASID] Request device [0x5e:0x02.0] fault addr 0x70ad5000 [fault reason 0x07] Next page",
        "DMAR: [INTR-REMAP] Request device [17:00.0] fault index 0x25 [fault reason 0x22] Present field in the IRTE",
        component=r"0000:\g<bus>:\g<slot>", never=("DMAR: DRHD: handling fault status reg 2",),
    ),
    _rule(
        "dmar.timeout", r"DMAR: VT-d detected Invalidation Time-out Error: SID (?P<id>[0-9a-f]{1,4})$", "pcie_unreachable",
        Severity.CRITICAL, f"{_DMAR}:qi_check_fault", "DMAR: VT-d detected Invalidation Time-out Error: SID 1700",
        state="lasting", never=("DMAR: Invalidation Time-out Error (ITE) cleared",),
    ),
    _rule(
        "dmar.queue", r"DMAR: VT-d detected (?:Invalidation Queue Error|Invalidation Completion Error|invalid descriptor|invalid "
        r"wait descriptor)", "iommu_error", Severity.MAJOR, f"{_DMAR}:qi_check_fault",
        "DMAR: VT-d detected Invalidation Queue Error: Reason 8",
        "DMAR: VT-d detected invalid descriptor: qw0 = 200000025, qw1 = 1003a0f4",
    ),
    _rule(
        "amdvi.timeout", rf"AMD-Vi: Event logged \[IOTLB_INV_TIMEOUT {_OF}", "pcie_unreachable", Severity.CRITICAL, _AMD,
        "pci 0000:00:00.2: AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device=0000:17:00.0 address=0x10003c6f20]",
        component=r"\g<source>", prefix="pci", state="lasting",
    ),
    _rule(
        "amdvi.timeout.plain", rf"AMD-Vi: Event logged \[IOTLB_INV_TIMEOUT {_OF}", "pcie_unreachable", Severity.CRITICAL, _AMD,
        "AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device=0000:17:00.0 address=0x10003c6f20]",
        component=r"\g<source>", state="lasting",
    ),
    _rule(
        "amdvi.fault", r"AMD-Vi: Event logged \[IO_PAGE_FAULT domain=", "iommu_fault", Severity.WARNING, _AMD,
        "nvidia 0000:17:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x002a address=0x7f3a10000000 flags=0x0030]",
        component=r"\g<device>", prefix="pci",
    ),
    _rule(
        "amdvi.fault.plain", rf"AMD-Vi: Event logged \[IO_PAGE_FAULT {_OF}", "iommu_fault", Severity.WARNING, _AMD,
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:17:00.0 domain=0x002a address=0x7f3a10000000 flags=0x0030]",
        component=r"\g<source>",
    ),
    # From 4.9 to 4.19 the event is a record of its own, behind "AMD-Vi: Event logged [".
    _rule(
        "amdvi.fault.split", rf"IO_PAGE_FAULT device={_BDF} domain=0x[0-9a-f]{{4}} address=0x", "iommu_fault", Severity.WARNING, _AMD,
        "IO_PAGE_FAULT device=05:00.0 domain=0x0012 address=0x00000000ff6101b0 flags=0x0070]",
        component=r"0000:\g<bus>:\g<slot>",
    ),
    _rule(
        "amdvi.error",
        r"AMD-Vi: Event logged \[(?P<what>PAGE_TAB_HARDWARE_ERROR|DEV_TAB_HARDWARE_ERROR|COMMAND_HARDWARE_ERROR"
        rf"|ILLEGAL_DEV_TABLE_ENTRY|INVALID_DEVICE_REQUEST|ILLEGAL_COMMAND_ERROR|RMP_HW_ERROR)(?: {_OF})?",
        "iommu_error", Severity.MAJOR, _AMD,
        "pci 0000:00:00.2: AMD-Vi: Event logged [PAGE_TAB_HARDWARE_ERROR device=0000:17:00.0 pasid=0x0000 address=0x10a3c2000]",
        component=r"\g<device>", prefix="pci",
    ),
    _rule(
        "amdvi.wait", r"AMD-Vi: Completion-Wait loop timed out", "iommu_error", Severity.MAJOR,
        "drivers/iommu/amd/iommu.c:wait_on_sem", "AMD-Vi: Completion-Wait loop timed out", state="lasting",
    ),
    _rule(
        "smmu.failed", rf"{_ARM}device has entered Service Failure Mode", "iommu_error", Severity.CRITICAL,
        f"{_SMMU}:arm_smmu_gerror_handler", "arm-smmu-v3 arm-smmu-v3.5.auto: device has entered Service Failure Mode!",
        component=r"\g<smmu>", state="lasting",
    ),
    _rule(
        "smmu.sync", rf"{_ARM}CMD_SYNC timeout at 0x", "iommu_error", Severity.CRITICAL,
        f"{_SMMU}:arm_smmu_cmdq_issue_cmdlist",
        "arm-smmu-v3 arm-smmu-v3.5.auto: CMD_SYNC timeout at 0x0000f61c [hwprod 0x0000f61c, hwcons 0x0000f5d8]",
        component=r"\g<smmu>", state="lasting",
    ),
    _rule(
        "smmu.global", rf"{_ARM}unexpected global error reported", "iommu_error", Severity.MAJOR,
        f"{_SMMU}:arm_smmu_gerror_handler",
        "arm-smmu-v3 arm-smmu-v3.5.auto: unexpected global error reported (0x00000001), this could be serious",
        component=r"\g<smmu>",
    ),
    _rule(
        "smmu.event.client", rf"{_ARM}event: (?P<what>\w{{3,30}}) client: (?P<source>{PCI}) sid: ", "iommu_fault", Severity.WARNING,
        f"{_SMMU}:arm_smmu_dump_event",
        "arm-smmu-v3 arm-smmu-v3.5.auto: event: F_TRANSLATION client: 0009:01:00.0 sid: 0x10100 ssid: 0x0 iova: 0xffff9c000000",
        component=r"\g<source>",
    ),
    _rule(
        "smmu.event", rf"{_ARM}event (?P<what>0x[0-9a-f]{{2}}) received:", "iommu_fault", Severity.WARNING,
        f"{_SMMU}:arm_smmu_evtq_thread", "arm-smmu-v3 arm-smmu-v3.5.auto: event 0x10 received:", component=r"\g<smmu>",
    ),
))  # fmt: skip
