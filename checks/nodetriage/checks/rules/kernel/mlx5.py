"""NVIDIA (Mellanox) ConnectX and BlueField adapters: firmware that died, commands without an answer, slots, modules, heat.

Source: drivers/net/ethernet/mellanox/mlx5/core. Errors and warnings name their function before the text, notes do not. From 6.1
the firmware gives its own severity: up to 2 lasting, 3 and 4 a reset likely, 5 and 6 a note.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import PCI, KernelRule, KernelRules

_DEVICE = "mlx5_core 0000:9a:00.0"
_WORTH = {
    "net_adapter_failed": Severity.CRITICAL, "net_adapter_error": Severity.MAJOR, "net_adapter_event": Severity.WARNING,
    "net_module_fault": Severity.MAJOR, "net_module_refused": Severity.WARNING, "net_adapter_hot": Severity.MAJOR,
    "net_slot_power": Severity.MAJOR,
}  # fmt: skip
_LASTING = ("net_adapter_failed", "net_module_fault", "net_module_refused", "net_slot_power")


def _mlx5(
    name: str,
    text: str,
    fault: str,
    file: str,
    *examples: str,
    state: str = "",
    severity: Severity | None = None,
    never: tuple[str, ...] = (),
    versions: str = "all",
) -> KernelRule:
    return KernelRule(
        f"mlx5.{name}",
        text,
        fault,
        _WORTH[fault] if severity is None else severity,
        tuple(e if e.startswith("mlx5_core ") else f"{_DEVICE}: {e}" for e in examples),
        r"\g<device>",
        prefix="mlx5",
        state=state or ("lasting" if fault in _LASTING else "event"),
        source=f"mlx5/core/{file}",
        versions=versions,
        never=tuple(f"{_DEVICE}: {n}" for n in never),
    )


_MODULE = r"Port module event\[error\]: module (?P<module>\d{1,3}), Cable error, "
RULES = KernelRules((
    _mlx5(
        "dead", r"device's health compromised - reached miss count", "net_adapter_failed", "health.c:poll_health",
        "poll_health:1030:(pid 0): device's health compromised - reached miss count",
    ),
    _mlx5(
        "fatal", r"Fatal error (?P<error>\d{1,3}) detected", "net_adapter_failed", "health.c:poll_health",
        "poll_health:1014:(pid 0): Fatal error 1 detected",
    ),
    _mlx5(
        "unload", r"(?:Driver is in error state\. Unloading|PCI channel offline, stop waiting for |Cold reset is required|health recovery failed)",
        "net_adapter_failed", "health.c", "mlx5_fw_fatal_reporter_err_work:665:(pid 0): Driver is in error state. Unloading",
        "mlx5_health_wait_pci_up:330:(pid 0): PCI channel offline, stop waiting for PCI",
        "print_health_info:460:(pid 0): Cold reset is required", "mlx5_health_try_recover:361:(pid 0): health recovery failed",
    ),
    _mlx5(
        "health.note", r"Health issue observed, [^\n]{1,60}\n?, severity\([56]\)", "net_adapter_event", "health.c:print_health_info",
        "print_health_info:492:(pid 0): Health issue observed, High temperature, severity(6) INFO:", severity=Severity.INFO,
        state="info", versions="6.1-",
    ),
    _mlx5(
        "health.hot", r"Health issue observed, High temperature, severity\([0-4]\)", "net_adapter_hot", "health.c:print_health_info",
        "print_health_info:492:(pid 0): Health issue observed, High temperature, severity(1) ALERT:", severity=Severity.CRITICAL,
        state="lasting", versions="6.1-",
    ),
    _mlx5(
        "health.queue", r"Health issue observed, (?:async EQ buffer overrun|EQ error|Invalid EQ referenced)", "net_adapter_error",
        "health.c:print_health_info", "print_health_info:492:(pid 0): Health issue observed, async EQ buffer overrun, severity(3) ERROR:",
        "print_health_info:492:(pid 0): Health issue observed, EQ error, severity(3) ERROR:", versions="6.1-",
    ),
    _mlx5(
        "health.unknown", r"Health issue observed, unrecognized error", "net_adapter_event", "health.c:print_health_info",
        "print_health_info:492:(pid 0): Health issue observed, unrecognized error, severity(4) WARNING:", versions="6.1-",
    ),
    _mlx5(
        "health", r"Health issue observed, (?P<issue>[^\n]{1,60})", "net_adapter_failed", "health.c:print_health_info",
        "print_health_info:492:(pid 0): Health issue observed, irisc not responding, severity(3) ERROR:",
        "print_health_info:492:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:",
        "print_health_info:492:(pid 0): Health issue observed, HW fatal error", versions="6.1-",
    ),
    _mlx5(
        "syndrome", r"synd 0x(?:1|7|8|a|c|f|10): (?P<issue>[^\n]{1,60})", "net_adapter_failed", "health.c:print_health_info",
        "print_health_info:396:(pid 0): synd 0x8: unrecoverable hardware error", "print_health_info:447:(pid 0): synd 0x1: firmware internal error",
    ),
    _mlx5(
        "recovering", r"(?:handling bad device here|starting health recovery flow|NIC IFC still \d after )", "net_adapter_error",
        "health.c:mlx5_health_try_recover", "mlx5_health_try_recover:338:(pid 0): handling bad device here",
        "mlx5_health_try_recover:344:(pid 0): starting health recovery flow", "NIC IFC still 0 after 1000ms.",
    ),
    _mlx5(
        "recovered", r"health recovery succeeded", "net_adapter_event", "health.c:mlx5_health_try_recover", "health recovery succeeded",
        "mlx5_health_try_recover:346:(pid 0): health recovery succeeded", state="recovered",
    ),
    _mlx5(
        "command.timeout", r"(?:cmd\[\d{1,3}\]: )?\w{3,40}\(0x[0-9a-f]{1,4}\) (?:Async, )?(?:timeout\. Will cause a leak|No done completion)",
        "net_adapter_error", "cmd.c:wait_func", "wait_func:1190:(pid 0): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource",
        "cb_timeout_handler:953:(pid 0): cmd[4]: CREATE_MKEY(0x200) Async, timeout. Will cause a leak of a command resource",
        "wait_func_handle_exec_timeout:1160:(pid 0): cmd[0]: QUERY_VPORT_COUNTER(0x770) No done completion",
    ),
    _mlx5(
        "command.internal", r"\w{3,40}\(0x[0-9a-f]{1,4}\) op_mod\(0x[0-9a-f]{1,4}\) failed, status internal error\(0x1\)",
        "net_adapter_event", "cmd.c:cmd_status_print",
        "mlx5_cmd_out_err:823:(pid 0): CREATE_QP(0x500) op_mod(0x0) failed, status internal error(0x1), syndrome (0x8c3b7f), err(-5)",
        never=("mlx5_cmd_out_err:823:(pid 0): ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter(0x3), syndrome (0x15c356)",),
    ),
    _mlx5(
        "module.slot_power", _MODULE + r"One or more network ports have been powered down", "net_slot_power", "events.c:port_module",
        "port_module:283:(pid 0): Port module event[error]: module 0, Cable error, One or more network ports have been powered down due to "
        "insufficient/unadvertised power on the PCIe slot", severity=Severity.CRITICAL,
    ),
    _mlx5(
        "module.broken", _MODULE + r"(?P<problem>Power budget exceeded|Bus stuck|No EEPROM|High Temperature|Bad or shorted|Shorted)",
        "net_module_fault", "events.c:port_module",
        "port_module:283:(pid 0): Port module event[error]: module 0, Cable error, Power budget exceeded",
        "Port module event[error]: module 0, Cable error, High Temperature",
        "port_module:283:(pid 0): Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)",
        never=("Port module event: module 0, Cable plugged",),
    ),
    _mlx5(
        "module.refused", _MODULE, "net_module_refused", "events.c:port_module",
        "port_module:283:(pid 0): Port module event[error]: module 0, Cable error, Enforce part number list",
        "port_module:283:(pid 0): Port module event[error]: module 0, Cable error, Unknown error",
    ),
    _mlx5(
        "hot", r"High temperature on sensors with bit set ", "net_adapter_hot", "events.c:temp_warn",
        "temp_warn:173:(pid 0): High temperature on sensors with bit set 0 1",
    ),
    _mlx5(
        "power", r"Detected insufficient power on the PCIe slot \(", "net_slot_power", "events.c:mlx5_pcie_event",
        "mlx5_pcie_event:327:(pid 0): Detected insufficient power on the PCIe slot (27W).", severity=Severity.WARNING,
        never=("PCIe slot advertised sufficient power (75W).",),
    ),
    _mlx5(
        "tx.failed", r"mlx5e_safe_reopen_channels failed recovering from a tx_timeout", "net_adapter_failed", "en_main.c",
        "mlx5_core 0000:9a:00.0 ens3f0np0: mlx5e_safe_reopen_channels failed recovering from a tx_timeout, err(-110).",
    ),
    _mlx5(
        "tx.packet", r"Error cqe on cqn 0x[0-9a-f]{1,8}, ci 0x", "net_adapter_event", "en_tx.c:mlx5e_dump_error_cqe",
        "mlx5_core 0000:9a:00.0 ens3f0np0: Error cqe on cqn 0x4b1, ci 0x2c, qn 0x11ab, opcode 0xd, syndrome 0x2, vendor syndrome 0x68",
    ),
    _mlx5(
        "cq", r"CQ error on CQN 0x[0-9a-f]{1,8}, syndrome 0x", "net_adapter_event", "eq.c:cq_err_event_notifier",
        "cq_err_event_notifier:506:(pid 0): CQ error on CQN 0x4b1, syndrome 0x1",
    ),
    _mlx5(
        "init.wait", r"Waiting for FW (?:initialization|pre-initialization), timeout abort in ", "net_adapter_event", "main.c:wait_fw_init",
        "wait_fw_init:212:(pid 0): Waiting for FW initialization, timeout abort in 100s (0x8000000)", state="info",
    ),
    _mlx5(
        "init.failed",
        r"(?:mlx5_(?:init_one|pci_init|load_one|function_setup|init_once) failed with error code|Firmware over \d{1,9} MS in (?:pre-)?initializing state)",
        "net_adapter_failed", "main.c:probe_one", "probe_one:2024:(pid 0): mlx5_init_one failed with error code -110",
        "probe_one:2010:(pid 0): mlx5_pci_init failed with error code -5",
        "mlx5_function_enable:1156:(pid 0): Firmware over 120000 MS in pre-initializing state, aborting",
    ),
    KernelRule(
        "mlx5.probe", rf"mlx5_core: probe of (?P<device>{PCI}) failed with error -(?!517)\d", "net_adapter_failed", Severity.CRITICAL,
        ("mlx5_core: probe of 0000:01:00.0 failed with error -22",), r"\g<device>", state="lasting", source="drivers/base/dd.c:really_probe",
        versions="-6.6",
    ),
    _mlx5(
        "probe.new", r"probe with driver mlx5_core failed with error -(?!517)\d", "net_adapter_failed", "drivers/base/dd.c",
        "probe with driver mlx5_core failed with error -22", versions="6.7-",
    ),
    _mlx5(
        "lag", r"(?:Failed to (?:modify|create|destroy) LAG|Failed to deactivate (?:RoCE|VF) LAG)", "net_adapter_error", "lag/lag.c",
        "mlx5_modify_lag:735:(pid 0): Failed to modify LAG (-22)",
        "mlx5_deactivate_lag:996:(pid 0): Failed to deactivate RoCE LAG; driver restart required", state="lasting",
    ),
    _mlx5(
        "reset.timeout", r"FW sync reset timeout after ", "net_adapter_error", "fw_reset.c",
        "mlx5_fw_reset_wait_reset_done:834:(pid 0): FW sync reset timeout after 150 seconds",
    ),
    _mlx5(
        "reset.link", r"PCI link not ready \(0x[0-9a-f]{1,8}\) after ", "net_adapter_failed", "fw_reset.c:mlx5_pci_link_toggle",
        "mlx5_pci_link_toggle:568:(pid 0): PCI link not ready (0x1041) after 2000 ms",
    ),
))  # fmt: skip
