"""What the NVIDIA driver says beside Xid and SXid (readers/nvidia_log.py): GPUs that do not start, firmware, NVSwitch.

Source: open-gpu-kernel-modules 515-595, kernel-open/nvidia/nv.c, nv-pci.c, src/nvidia. Many of these lines name a GPU by the
driver's own number only, which is no PCI address.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import PCI, KernelRule, KernelRules

_GPU = rf"NVRM: GPU (?P<device>{PCI}): "
_NUMBER = r"NVRM: GPU(?P<gpu>\d{1,3}) "
_WORTH = {
    "gpu_driver_failed": Severity.CRITICAL, "gpu_driver_error": Severity.MAJOR, "gpu_driver_event": Severity.WARNING, "": Severity.INFO
}  # fmt: skip


def _nv(
    name: str,
    text: str,
    fault: str,
    *examples: str,
    component: str = "driver",
    source: str = "kernel-open/nvidia/nv.c",
    versions: str = "515-595",
    never: tuple[str, ...] = (),
) -> KernelRule:
    state = "lasting" if fault == "gpu_driver_failed" else "event"
    return KernelRule(
        f"nv.{name}",
        text,
        fault,
        _WORTH[fault],
        examples,
        component,
        state=state,
        source=source,
        versions=versions,
        never=never,
    )


RULES = KernelRules((
    _nv(
        "start", rf"{_GPU}(?:rm_init_adapter failed|GPU does not have the necessary power cables)", "gpu_driver_failed",
        "NVRM: GPU 0000:83:00.0: rm_init_adapter failed, device minor number 3",
        "NVRM: GPU 0000:83:00.0: GPU does not have the necessary power cables connected.", component=r"\g<device>",
    ),
    _nv(
        "start.probe", rf"NVRM: Device start failed for (?P<device>{PCI}) \(ret=", "gpu_driver_failed",
        "NVRM: Device start failed for 0000:83:00.0 (ret=-5)", component=r"\g<device>", versions="595",
    ),
    _nv(
        "bar", r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid", "gpu_driver_failed",
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR1 is 0M @ 0x0 (PCI:0000:83:00.0)",
    ),
    _nv(
        "probe", r"NVRM: The NVIDIA probe routine failed for \d{1,4} device", "gpu_driver_error",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
        never=("NVRM: The NVIDIA probe routine was not called for 1 device(s).",),
    ),
    _nv(
        "none", r"NVRM: None of the NVIDIA devices were initialized", "gpu_driver_failed",
        "NVRM: None of the NVIDIA devices were initialized.",
    ),
    _nv(
        "removal", rf"NVRM: Failed removal of device (?P<device>{PCI})!", "gpu_driver_event",
        "NVRM: Failed removal of device 0000:83:00.0!", component=r"\g<device>",
    ),
    _nv(
        "interrupt", r"NVRM: Going over RM unhandled interrupt threshold for irq (?P<irq>\d{1,6})", "gpu_driver_event",
        "NVRM: Going over RM unhandled interrupt threshold for irq 212",
    ),
    _nv(
        "dump", r"NVRM: A GPU crash dump has been created", "gpu_driver_event",
        "NVRM: A GPU crash dump has been created. If possible, please run\nNVRM: nvidia-bug-report.sh as root to collect this data before",
    ),
    _nv(
        "firmware",
        rf"{_NUMBER}(?:_kgspRpcGspEventPmuHalted: Received signal|_kgspClassifyGspTimeout: =+ GSP core unresponsive"
        r"|_kgspBootGspRm: unexpected WPR2 already up|kgspInitRm_IMPL: Max GSP-RM boot attempts exceeded"
        r"|\w{3,60}: Timeout GPU not back on the bus after)",
        "gpu_driver_failed", "NVRM: GPU3 _kgspRpcGspEventPmuHalted: Received signal from GSP that PMU has halted.",
        "NVRM: GPU3 _kgspClassifyGspTimeout: ================ GSP core unresponsive ===============",
        "NVRM: GPU3 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP",
        "NVRM: GPU3 kgspInitRm_IMPL: Max GSP-RM boot attempts exceeded: 3/3",
        "NVRM: GPU3 kbifRestorePcieConfigRegisters_GH100: Timeout GPU not back on the bus after FLR,", component=r"driver GPU\g<gpu>",
        source="src/nvidia/src/kernel/gpu/gsp", versions="535-595",
    ),
    # A laptop's GPU that slept says so at each wake: Xid 119, 120 or 154 tells whether it is lost.
    _nv(
        "firmware.silent", r"NVRM:(?P<gpu> GPU\d{1,3}|) _kgsp(?:RpcRecvPoll: (?:GSP RM|LibOS) heartbeat timed out|IsHeartbeatTimedOut: Heartbeat timed out)",
        "gpu_driver_event", "NVRM: _kgspRpcRecvPoll: GSP RM heartbeat timed out", "NVRM: GPU6 _kgspRpcRecvPoll: LibOS heartbeat timed out",
        "NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 812751949 heartbeat 1899482",
        component=r"driver\g<gpu>", source="src/nvidia/src/kernel/gpu/gsp", versions="590-595",
    ),
    _nv(
        "uvm", r"(?:NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x|nvidia-uvm: \w{1,40}\.c:\d{1,6} uvm_global_set_fatal_error)",
        "gpu_driver_failed", "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
        "nvidia-uvm: uvm_global.c:425 uvm_global_set_fatal_error_impl[pid:4711] ERROR: Encountered a global fatal error: ECC error",
        component="driver uvm", source="src/nvidia/src/kernel/rmapi/nv_gpu_ops.c",
    ),
    _nv(
        "switch.isr", r"nvidia-nvswitch: unrecoverable error in ISR", "gpu_driver_failed", "nvidia-nvswitch: unrecoverable error in ISR",
        component="nvswitches", source="kernel-open/nvidia/linux_nvswitch.c",
    ),
    _nv(
        "switch", r"nvidia-nvswitch(?P<switch>\d{1,3}): (?:Interrupts disabled to avoid a storm|Failed to initialize device)",
        "gpu_driver_failed", "nvidia-nvswitch0: Interrupts disabled to avoid a storm", "nvidia-nvswitch0: Failed to initialize device : -5",
        component=r"nvswitch\g<switch>", source="kernel-open/nvidia/linux_nvswitch.c",
    ),
    _nv(
        "switch.version", r"nvidia-nvswitch: Version mismatch, kernel version ", "gpu_driver_error",
        "nvidia-nvswitch: Version mismatch, kernel version 570.86.15 user version 570.124.06", component="nvswitches",
        source="kernel-open/nvidia/linux_nvswitch.c",
    ),
    _nv(
        "peermem", r"nvidia-peermem nv_mem_acquire:\d{1,6} ERROR nv_mem_acquire -- error", "gpu_driver_event",
        "nvidia-peermem nv_mem_acquire:283 ERROR nv_mem_acquire -- error -22 while calling nvidia_p2p_put_pages()",
        source="kernel-open/nvidia-peermem/nvidia-peermem.c",
    ),
    _nv(
        "online", r"NVRM: Failing GPU memory onlining as the onlining zone is not movable", "gpu_driver_error",
        "NVRM: Failing GPU memory onlining as the onlining zone is not movable. pa: 0x400000000000 size: 0x1000000000",
        source="kernel-open/nvidia/nv-vtophys.c",
    ),
    _nv(
        "loaded", r"NVRM: loading NVIDIA UNIX ", "", "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build",
    ),
))  # fmt: skip
