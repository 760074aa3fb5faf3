"""PCIe errors: AER, and ports that cut off what is below them (DPC, EDR). rules/reports/pcie.py puts reports together.

Source: drivers/pci/pcie/aer.c, err.c, dpc.c, edr.c. The words are Corrected and Uncorrected up to 6.1, Correctable and
Uncorrectable from 6.8; "AER: " stands before "PCIe Bus Error" in 5.4 alone. The NVIDIA driver has no recovery: after
a fatal error of a GPU "recovery successful" is the port's.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import PCI, KernelRule, KernelRules

_AER = "drivers/pci/pcie/aer.c"
_ERR = "drivers/pci/pcie/err.c"
_DPC = "drivers/pci/pcie/dpc.c"
_RECEIVED = rf"error (?:message )?received(?: from|:) (?P<source>{PCI})"


def _rule(
    name: str, text: str, fault: str, severity: Severity, source: str, *examples: str, component: str = r"\g<device>",
    state: str = "event", prefix: str = "pci", never: tuple[str, ...] = (), versions: str = "all",
) -> KernelRule:  # fmt: skip
    return KernelRule(name, text, fault, severity, examples, component, prefix, state, source, versions, never)


RULES = KernelRules((
    _rule(
        "aer.root.fatal", rf"AER: (?:Multiple )?Uncorrect(?:ed|able) \(Fatal\) {_RECEIVED}", "pcie_fatal", Severity.CRITICAL,
        f"{_AER}:aer_print_source",
        "pcieport 0000:16:01.0: AER: Uncorrectable (Fatal) error message received from 0000:16:01.0",
        "pcieport 0000:16:01.0: AER: Uncorrected (Fatal) error received: 0000:17:00.0", component=r"\g<source>",
    ),
    _rule(
        "aer.root.nonfatal", rf"AER: (?:Multiple )?Uncorrect(?:ed|able) \(Non-Fatal\) {_RECEIVED}", "pcie_nonfatal",
        Severity.MAJOR, f"{_AER}:aer_print_source",
        "pcieport 0000:16:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:17:00.0",
        "pcieport 0000:16:01.0: AER: Multiple Uncorrectable (Non-Fatal) error message received from 0000:17:00.0",
        component=r"\g<source>",
    ),
    _rule(
        "aer.root.corrected", rf"AER: (?:Multiple )?Correct(?:ed|able) {_RECEIVED}", "pcie_correctable", Severity.INFO,
        f"{_AER}:aer_print_source", "pcieport 0000:16:01.0: AER: Corrected error received: 0000:17:00.0",
        "pcieport 0000:16:01.0: AER: Correctable error message received from 0000:17:00.0",
        component=r"\g<source>", state="corrected",
    ),
    _rule(
        "aer.inaccessible",
        r"(?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \((?:Fatal|Non-Fatal)\), type=Inaccessible",
        "pcie_unreachable", Severity.CRITICAL, f"{_AER}:aer_print_error",
        "nvidia 0000:17:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, "
        "(Unregistered Agent ID)", state="lasting",
    ),
    _rule(
        "aer.bus.fatal", r"(?:AER: )?(?:PCIe|CXL) Bus Error: severity=Uncorrect(?:ed|able) \(Fatal\), type=(?P<layer>[\w ]{3,30})",
        "pcie_fatal", Severity.CRITICAL, f"{_AER}:aer_print_error",
        "mlx5_core 0000:9a:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)",
        "nvidia 0000:17:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
    ),
    _rule(
        "aer.bus.nonfatal",
        r"(?:AER: )?(?:PCIe|CXL) Bus Error: severity=Uncorrect(?:ed|able) \(Non-Fatal\), type=(?P<layer>[\w ]{3,30})",
        "pcie_nonfatal", Severity.MAJOR, f"{_AER}:aer_print_error",
        "cxl_pci 0000:c1:00.0: CXL Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer, (Receiver ID)",
        "nvidia 0000:17:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
    ),
    _rule(
        "aer.bus.corrected", r"(?:AER: )?(?:PCIe|CXL) Bus Error: severity=Correct(?:ed|able), type=(?P<layer>[\w ]{3,30})",
        "pcie_correctable", Severity.INFO, f"{_AER}:aer_print_error",
        "pcieport 0000:00:1c.5: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "nvidia 0000:17:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
        state="corrected",
    ),
    # Of an error that the firmware reported: only an uncorrected one has this line. The others belong to the report.
    _rule(
        "aer.ghes", r"(?:AER: )?aer_uncor_severity: 0x[0-9a-f]{8}", "pcie_nonfatal", Severity.MAJOR, f"{_AER}:pci_print_aer",
        "nvidia 0000:17:00.0: AER: aer_uncor_severity: 0x00062030",
    ),
    _rule(
        "aer.ghes.status", r"(?:AER: )?aer_status: 0x(?P<status>[0-9a-f]{8}), aer_mask: 0x", "", Severity.INFO,
        f"{_AER}:pci_print_aer", "nvidia 0000:17:00.0: AER: aer_status: 0x00004000, aer_mask: 0x00100000",
    ),
    _rule(
        "aer.no_device", r"AER: can't find device of ID(?P<id>[0-9a-f]{4})", "pcie_nonfatal", Severity.WARNING,
        f"{_AER}:find_source_device", "pcieport 0000:16:01.0: AER: can't find device of ID1700", versions="up to 6.14",
    ),
    _rule(
        "aer.gone", rf"AER: no pci_dev for (?P<source>{PCI})", "pcie_unreachable", Severity.CRITICAL,
        f"{_AER}:aer_recover_work_func", "AER: no pci_dev for 0000:17:00.0", component=r"\g<source>", state="lasting", prefix="",
    ),
    _rule(
        "aer.overflow", rf"AER: buffer overflow in recovery for (?P<source>{PCI})", "pcie_nonfatal", Severity.MAJOR,
        f"{_AER}:aer_recover_queue", "AER: buffer overflow in recovery for 0000:17:00.0", component=r"\g<source>", prefix="",
    ),
    _rule(
        "aer.link_reset", r"AER: (?:Root|Downstream|Upstream) Port link has been reset", "pcie_contained", Severity.MAJOR,
        f"{_AER}:aer_root_reset", "pcieport 0000:16:01.0: AER: Root Port link has been reset (0)",
    ),
    _rule(
        "aer.recovered", r"AER: device recovery successful", "pcie_recovered", Severity.WARNING, f"{_ERR}:pcie_do_recovery",
        "pcieport 0000:16:01.0: AER: device recovery successful", state="recovered",
    ),
    _rule(
        "aer.not_recovered", r"AER: (?:device recovery failed|subordinate device reset failed)", "pcie_not_recovered",
        Severity.CRITICAL, f"{_ERR}:pcie_do_recovery", "pcieport 0000:16:01.0: AER: device recovery failed",
        "pcieport 0000:16:01.0: AER: subordinate device reset failed", state="lasting",
    ),
    _rule(
        "aer.no_callback", r"AER: can't recover \(no error_detected callback\)", "pcie_not_recovered", Severity.CRITICAL,
        f"{_ERR}:report_error_detected", "nvidia 0000:17:00.0: AER: can't recover (no error_detected callback)",
        state="lasting",
    ),
    _rule(
        "dpc.event", r"DPC: containment event, status:0x(?P<status>[0-9a-f]{1,8})", "pcie_contained", Severity.MAJOR,
        f"{_DPC}:dpc_process_error", "pcieport 0000:16:01.0: DPC: containment event, status:0x1f01 source:0x0000",
        state="lasting", never=("pcieport 0000:16:01.0: DPC: error containment capabilities: Int Msg #0, RPExt+",),
    ),
    _rule(
        "dpc.detected",
        r"DPC: (?P<cause>unmasked uncorrectable error|ERR_NONFATAL|ERR_FATAL|RP PIO error|software trigger|reserved error) detected",
        "pcie_contained", Severity.MAJOR, f"{_DPC}:dpc_process_error", "pcieport 0000:16:01.0: DPC: ERR_FATAL detected",
        "pcieport 0000:16:01.0: DPC: unmasked uncorrectable error detected", state="lasting",
    ),
    _rule(
        "dpc.busy", r"DPC: root port still busy", "pcie_not_recovered", Severity.CRITICAL, f"{_DPC}:dpc_wait_rp_inactive",
        "pcieport 0000:16:01.0: DPC: root port still busy", state="lasting",
    ),
    _rule(
        "dpc.no_link", r"(?:DPC: )?Data Link Layer Link Active not set in \d{1,6} msec", "pcie_not_recovered", Severity.CRITICAL,
        f"{_DPC}:dpc_reset_link", "pcieport 0000:16:01.0: Data Link Layer Link Active not set in 1000 msec", state="lasting",
    ),
    _rule(
        "edr.event", r"EDR: EDR event received", "pcie_contained", Severity.MAJOR, "drivers/pci/pcie/edr.c:edr_handle_event",
        "pcieport 0000:16:01.0: EDR: EDR event received", state="lasting",
    ),
))  # fmt: skip
