"""Other network adapters (Intel i40e, ice, ixgbe, igb; Chelsio; ena), and what the network core says of any adapter.

Source: drivers/net/ethernet/{intel,chelsio}, drivers/net/ethernet/amazon/ena, net/sched/sch_generic.c. Links that go up and down are
not here: every boot and every ifdown prints them, and eth_link and ib_link see the state.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_WORTH = {
    "net_adapter_failed": Severity.CRITICAL, "net_adapter_error": Severity.MAJOR, "net_adapter_event": Severity.WARNING,
    "net_module_fault": Severity.MAJOR,
}  # fmt: skip


def _nic(
    name: str, text: str, fault: str, source: str, *examples: str, prefix: str = "pci", never: tuple[str, ...] = ()
) -> KernelRule:
    lasting = fault in ("net_adapter_failed", "net_module_fault")
    return KernelRule(
        name,
        text,
        fault,
        _WORTH[fault],
        examples,
        r"\g<device>",
        prefix=prefix,
        state="lasting" if lasting else "event",
        source=source,
        never=never,
    )


RULES = KernelRules((
    _nic(
        "net.watchdog", r"NETDEV WATCHDOG: (?:CPU: \d{1,5}: )?transmit queue \d{1,6} timed out", "net_adapter_error",
        "net/sched/sch_generic.c:dev_watchdog", "ice 0000:31:00.0 ens2f0: NETDEV WATCHDOG: CPU: 12: transmit queue 3 timed out 5012 ms",
    ),
    _nic(
        "net.watchdog.once", r"NETDEV WATCHDOG: (?P<device>[\w.-]{1,15}) \([\w-]{1,30}\): transmit queue \d{1,6} timed out",
        "net_adapter_error", "net/sched/sch_generic.c:dev_watchdog", "NETDEV WATCHDOG: ens2f0 (ice): transmit queue 3 timed out", prefix="",
    ),
    _nic(
        "net.tx", r"TX timeout detected(?:, starting reset task!)?$", "net_adapter_error", "mlx5e_tx_timeout, bnxt_tx_timeout",
        "mlx5_core 0000:9a:00.0 ens3f0np0: TX timeout detected",
        "bnxt_en 0000:41:00.0 eno12399np0: TX timeout detected, starting reset task!",
    ),
    _nic(
        "net.checksum", r"hw csum failure$", "net_adapter_event", "net/core/dev.c:netdev_rx_csum_fault", "ens2f0: hw csum failure",
        prefix="netdev",
    ),
    _nic(
        "intel.driver", r"Malicious Driver Detection event 0x", "net_adapter_event", "i40e_main.c",
        "i40e 0000:18:00.0: Malicious Driver Detection event 0x02 on TX queue 9 PF number 0x00 VF number 0x00",
    ),
    _nic(
        "intel.recovery", r"Firmware recovery mode detected\. Limiting functionality", "net_adapter_failed", "i40e_main.c, ice_main.c",
        "i40e 0000:18:00.0: Firmware recovery mode detected. Limiting functionality.",
    ),
    _nic(
        "intel.tx", r"tx_timeout recovery unsuccessful, device is in (?:non-recoverable|unrecoverable) state", "net_adapter_failed",
        "i40e_main.c, ice_main.c", "i40e 0000:18:00.0 ens1f0: tx_timeout recovery unsuccessful, device is in non-recoverable state.",
        "ice 0000:31:00.0 ens2f0: tx_timeout recovery unsuccessful, device is in unrecoverable state.",
    ),
    _nic(
        "intel.module", r"(?:Rx/Tx is disabled on this device because the module does not meet thermal|The module's power requirements exceed )",
        "net_module_fault", "i40e_main.c, ice_main.c",
        "i40e 0000:18:00.0: Rx/Tx is disabled on this device because the module does not meet thermal requirements.",
        "ice 0000:31:00.0: The module's power requirements exceed the device's power supply. Cannot start link",
    ),
    _nic(
        "intel.recovering", r"(?:[\w.-]{1,15}: )?tx_timeout recovery level \d{1,3}", "net_adapter_error", "i40e_main.c, ice_main.c",
        "i40e 0000:18:00.0 ens1f0: tx_timeout recovery level 1, hung_queue 31", "i40e 0000:08:00.1: eth9: tx_timeout recovery level 1",
        never=("i40e 0000:08:00.1: eth9: NIC Link is Down",),
    ),
    _nic(
        "intel.hang", r"Detected (?:Tx|Hardware) Unit Hang", "net_adapter_event", "ixgbe_main.c, igb_main.c, e1000e/netdev.c",
        "ixgbe 0000:02:00.1 eth3: Detected Tx Unit Hang", "e1000e 0000:00:1f.6 eno1: Detected Hardware Unit Hang:",
    ),
    _nic(
        "intel.firmware", r"Warning firmware error detected FWSM: 0x", "net_adapter_event", "ixgbe_main.c:ixgbe_check_fw_error",
        "ixgbe 0000:01:00.1: Warning firmware error detected FWSM: 0x00000000",
    ),
    _nic(
        "chelsio.firmware", r"(?:Firmware reports adapter error: |could not connect to FW, error -)", "net_adapter_failed",
        "drivers/net/ethernet/chelsio/cxgb4", "cxgb4 0000:01:00.4: Firmware reports adapter error: During Device Preparation",
        "cxgb4 0000:01:00.4: could not connect to FW, error -6", never=("cxgb4 0000:01:00.0: Could not fetch port params",),
    ),
    _nic("intel.hmc", r"HMC error interrupt$", "net_adapter_error", "i40e_main.c", "i40e 0000:18:00.0: HMC error interrupt"),
    _nic(
        "intel.rebuild", r"Rebuild failed, unload and reload driver", "net_adapter_failed", "ice_main.c",
        "ice 0000:31:00.0: Rebuild failed, unload and reload driver",
    ),
    _nic("intel.removed", r"Adapter removed$", "net_adapter_failed", "ixgbe_main.c", "ixgbe 0000:01:00.0: Adapter removed"),
    _nic(
        "intel.heat", r"Network adapter has been stopped because it has over heated", "net_adapter_failed", "ixgbe_main.c",
        "ixgbe 0000:01:00.0 eno1: Network adapter has been stopped because it has over heated. Restart the computer.",
    ),
    _nic(
        "ena.keep_alive", r"Keep alive watchdog timeout", "net_adapter_event", "ena_netdev.c",
        "ena 0000:00:06.0 ens6: Keep alive watchdog timeout.",
    ),
))  # fmt: skip
