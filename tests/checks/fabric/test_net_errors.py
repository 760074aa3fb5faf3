"""Network adapters that fail, as the kernel logs it."""

from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.fabric.net_errors import CHECK, judge, read
from nodetriage.checks.model import Finding, KernelRecord
from nodetriage.checks.rules.kernel_log import Log, remembered

ADAPTER = "0000:9a:00.0"


def log(tmp_path: Path, *lines: str, at_s: float = 5000.0, here: tuple[str, ...] = (ADAPTER,)) -> Log:
    for address in here:
        (tmp_path / "sys/bus/pci/devices" / address).mkdir(parents=True, exist_ok=True)
    records = tuple(KernelRecord(i, round((at_s + i) * 1e6), 3, line) for i, line in enumerate(lines))
    return read(Host(tmp_path).for_check(CHECK, records))


def found(now: Log, before: Log | None = None) -> list[Finding]:
    return list(judge(now, before, CHECK.policy))


def mlx5(text: str, function: str = ADAPTER) -> str:
    return f"mlx5_core {function}: {text}"


@pytest.mark.parametrize(
    ("text", "fault", "severity"),
    [
        ("poll_health:840:(pid 0): device's health compromised - reached miss count", "net_adapter_failed", "CRITICAL"),
        ("mlx5_health_try_recover:361:(pid 1112): handling bad device here", "net_adapter_error", "MAJOR"),
        ("wait_func:1153:(pid 196): CREATE_MKEY(0x200) timeout. Will cause a leak of a command resource", "net_adapter_error", "MAJOR"),
        ("mlx5_pcie_event:301:(pid 2012): Detected insufficient power on the PCIe slot (27W).", "net_slot_power", "WARNING"),
        ("Port module event[error]: module 0, Cable error, High Temperature", "net_module_fault", "MAJOR"),
        ("temp_warn:181:(pid 0): High temperature on sensors with bit set 0 1", "net_adapter_hot", "MAJOR"),
        ("health recovery succeeded", "net_adapter_event", "WARNING"),
        ("probe_one:2024:(pid 9): mlx5_init_one failed with error code -110", "net_adapter_failed", "CRITICAL"),
        ("print_health_info:492:(pid 0): Health issue observed, firmware CRC error, severity(2) CRITICAL:", "net_adapter_failed", "CRITICAL"),
    ],
)  # fmt: skip
def test_what_an_adapter_says_of_itself_has_its_fault(tmp_path: Path, text: str, fault: str, severity: str) -> None:
    (finding,) = found(log(tmp_path, mlx5(text)))

    assert (finding.component, finding.fault, finding.severity.name) == (ADAPTER, fault, severity)


@pytest.mark.parametrize(
    "text",
    [
        "mlx5_cmd_out_err:835:(pid 4102): ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter(0x3), syndrome (0x305684)",
        "Port module event: module 0, Cable plugged",
        "PCIe slot advertised sufficient power (75W).",
        "252.048 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)",
        "firmware version: 28.39.1002",
    ],
)
def test_what_every_adapter_prints_is_no_fault(tmp_path: Path, text: str) -> None:
    assert found(log(tmp_path, mlx5(text))) == []


def test_all_functions_of_an_adapter_are_one_part(tmp_path: Path) -> None:
    dead = "poll_health:801:(pid 0): device's health compromised - reached miss count"
    functions = ("0000:0d:00.0", "0000:0d:00.1", "0000:0d:00.2")

    (finding,) = found(log(tmp_path, *(mlx5(dead, f) for f in functions), here=functions))

    assert (finding.component, finding.evidence["lines"]) == ("0000:0d:00.0", 3)


def test_a_virtual_function_is_its_physical_one_s(tmp_path: Path) -> None:
    virtual = tmp_path / "sys/bus/pci/devices/0000:0d:01.2"
    virtual.mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:0d:00.0").mkdir()
    (virtual / "physfn").symlink_to(tmp_path / "sys/bus/pci/devices/0000:0d:00.0")

    (finding,) = found(log(tmp_path, mlx5("Fatal error 3 detected", "0000:0d:01.2"), here=()))

    assert (finding.component, finding.evidence["device"]) == ("0000:0d:00.0", "0000:0d:01.2")


def test_an_rdma_device_and_an_interface_are_the_adapter_behind_them(tmp_path: Path) -> None:
    device = tmp_path / "sys/devices/pci0000:00" / ADAPTER
    device.mkdir(parents=True)
    for kind, name in (("infiniband", "mlx5_0"), ("net", "ens2f0")):
        (tmp_path / f"sys/class/{kind}/{name}").mkdir(parents=True)
        (tmp_path / f"sys/class/{kind}/{name}/device").symlink_to(device)

    lines = (
        "infiniband mlx5_0: ib_query_port failed (-5)",
        "NETDEV WATCHDOG: ens2f0 (mlx5_core): transmit queue 3 timed out",
    )
    (finding,) = found(log(tmp_path, *lines))

    assert (finding.component, finding.fault, finding.evidence["lines"]) == (ADAPTER, "net_adapter_error", 2)


def test_slot_power_at_the_driver_s_load_is_no_fault_and_ports_that_lose_their_power_are(tmp_path: Path) -> None:
    low = mlx5("mlx5_pcie_event:301:(pid 0): Detected insufficient power on the PCIe slot (27W).")
    off = mlx5(
        "Port module event[error]: module 0, Cable error, One or more network ports have been powered down due to insufficient power"
    )

    assert found(log(tmp_path, low, at_s=300.0)) == []
    assert [(f.fault, f.severity.name) for f in found(log(tmp_path, low, off, at_s=300.0))] == [
        ("net_slot_power", "CRITICAL")
    ]


def test_an_adapter_that_is_not_here_is_a_warning_that_says_so(tmp_path: Path) -> None:
    now = log(tmp_path, mlx5("Fatal error 3 detected"), here=("0000:1a:00.0",))
    before = remembered(None, log(tmp_path / "before", here=(ADAPTER,)))

    assert [(f.fault, f.severity.name) for f in found(now)] == [("kernel_line_unknown_device", "WARNING")]
    assert [f.fault for f in found(now, before)] == ["net_adapter_failed"]
