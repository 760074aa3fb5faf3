"""InfiniBand and RDMA devices: the core, mlx5_ib, IPoIB, irdma, efa, hfi1; Broadcom's bnxt_en and bnxt_re.

Source: drivers/infiniband, drivers/net/ethernet/broadcom/bnxt. Most broken connections are the other end's: only what the
adapter says of itself is its own fault.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_FN = r"(?:\w{1,60}:\d{1,6}:\(pid \d{1,10}\): )?"
_WORTH = {
    "net_adapter_failed": Severity.CRITICAL, "net_adapter_error": Severity.MAJOR, "net_adapter_event": Severity.WARNING,
    "net_adapter_hot": Severity.MAJOR, "net_connection_broken": Severity.WARNING,
}  # fmt: skip


def _rule(
    name: str,
    prefix: str,
    text: str,
    fault: str,
    source: str,
    *examples: str,
    severity: Severity | None = None,
    state: str = "",
    never: tuple[str, ...] = (),
) -> KernelRule:
    return KernelRule(
        name,
        text,
        fault,
        _WORTH[fault] if severity is None else severity,
        examples,
        r"\g<device>",
        prefix=prefix,
        state=state or ("lasting" if fault == "net_adapter_failed" else "event"),
        source=source,
        never=never,
    )


RULES = KernelRules((
    _rule(
        "rdma.cqe", "infiniband", _FN + r"(?:dump error cqe|WC error: \d{1,3}, Message: (?P<status>[\w ]{1,60}))", "net_connection_broken",
        "drivers/infiniband/hw/mlx5/cq.c:dump_cqe", "infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe",
        "infiniband mlx5_0: dump_cqe:277:(pid 0): WC error: 12, Message: transport retry counter exceeded",
    ),
    KernelRule(
        "rdma.qp", r"mlx5_(?P<number>\w{1,20})/(?P<port>\d{1,3}): QP \d{1,10} error: (?P<status>[\w ]{1,60})", "net_connection_broken",
        Severity.WARNING, ("mlx5_0/1: QP 4711 error: local protection error (0x1b 0x4 0x51)",), r"mlx5_\g<number>",
        source="drivers/infiniband/hw/mlx5/qp.c",
    ),
    _rule(
        "rdma.mkey", "infiniband", _FN + r"async reg mr failed\. status", "net_adapter_event", "drivers/infiniband/hw/mlx5/mr.c",
        "infiniband mlx5_0: create_mkey_warn:142:(pid 0): async reg mr failed. status -5",
    ),
    _rule(
        "rdma.query", "infiniband", r"ib_query_port failed \(", "net_adapter_error", "drivers/infiniband/core",
        "infiniband mlx5_0: ib_query_port failed (-5)",
    ),
    _rule(
        "ipoib.tx", "netdev", r"transmit timeout: latency \d{1,9} msecs", "net_adapter_event", "drivers/infiniband/ulp/ipoib/ipoib_main.c",
        "ib0: transmit timeout: latency 10012 msecs",
    ),
    _rule(
        "irdma", "infiniband", r"(?:critical PE Error, GLPE_CRITERR=0x|HMC Error$)", "net_adapter_error", "drivers/infiniband/hw/irdma",
        "infiniband irdma0: critical PE Error, GLPE_CRITERR=0x00000102", "infiniband irdma0: HMC Error",
    ),
    _rule(
        "efa.poll", "infiniband", r"Wait for completion \(polling\) timeout", "net_adapter_error", "drivers/infiniband/hw/efa/efa_com.c",
        "infiniband efa_0: Wait for completion (polling) timeout",
    ),
    _rule(
        "efa.register", "infiniband", r"Reading register timed out\. expected: ", "net_adapter_failed",
        "drivers/infiniband/hw/efa/efa_com.c",
        "infiniband efa_0: Reading register timed out. expected: req id[17] offset[0x54] actual: req id[16] offset[0x0]",
    ),
    _rule(
        "hfi1", "pci", r"hfi1_\d{1,3}: (?:Critical temperature reached! Forcing|Aborted freeze recovery\. Please REBOOT)",
        "net_adapter_failed", "drivers/infiniband/hw/hfi1/chip.c",
        "hfi1 0000:18:00.0: hfi1_0: Critical temperature reached! Forcing device into freeze mode!",
        "hfi1 0000:18:00.0: hfi1_0: Aborted freeze recovery. Please REBOOT system",
    ),
    _rule(
        "bnxt.stall", "pci", r"QPLIB: bnxt_re_is_fw_stalled: FW STALL Detected", "net_adapter_failed",
        "drivers/infiniband/hw/bnxt_re/qplib_rcfw.c",
        "bnxt_en 0000:41:00.0: QPLIB: bnxt_re_is_fw_stalled: FW STALL Detected. cmdq[0xa4]=0x3 waited (110132 > 110000) msec active 1 ",
    ),
    _rule(
        "bnxt.firmware", "pci", r"(?:Firmware not responding, status: 0x|Firmware reset aborted|Failed to reinitialize after aborted firmware reset)",
        "net_adapter_failed", "bnxt/bnxt.c", "bnxt_en 0000:41:00.0 eno12399np0: Firmware not responding, status: 0x10009",
        "bnxt_en 0000:41:00.0 eno12399np0: Firmware reset aborted, rc = -110",
        "bnxt_en 0000:41:00.0 eno12399np0: Failed to reinitialize after aborted firmware reset",
    ),
    _rule(
        "bnxt.hot", "pci", r"Chip temperature has gone above the (?P<level>\w{1,20}) thermal threshold", "net_adapter_hot",
        "bnxt/bnxt.c:bnxt_event_error_report", "bnxt_en 0000:41:00.0 eno12399np0: Chip temperature has gone above the critical thermal threshold!",
        never=("bnxt_en 0000:41:00.0 eno12399np0: Chip temperature has gone below the critical thermal threshold!",),
    ),
    _rule(
        "bnxt.doorbell", "pci", r"One or more MMIO doorbells dropped by the device", "net_adapter_event", "bnxt/bnxt.c",
        "bnxt_en 0000:41:00.0 eno12399np0: One or more MMIO doorbells dropped by the device!",
    ),
    _rule(
        "bnxt.command", "pci", r"(?:Error \(timeout: \d{1,9}\) msg \{0x|PCI I/O error detected)", "net_adapter_error",
        "bnxt/bnxt_hwrm.c", "bnxt_en 0000:41:00.0 eno12399np0: Error (timeout: 500) msg {0x20 0x4b2} len:0",
        "bnxt_en 0000:41:00.0 eno12399np0: PCI I/O error detected",
    ),
))  # fmt: skip
