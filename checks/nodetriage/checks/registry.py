"""All checks: ours in an explicit tuple, those of other packages through the entry point group `nodetriage.checks`."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodetriage.checks.bmc import (
    bmc_power,
    bmc_redfish,
    bmc_sel,
    bmc_sensors,
)
from nodetriage.checks.fabric import (
    eth_link,
    ib_errors,
    ib_firmware,
    ib_link,
    net_errors,
    nic_cables,
    nic_health,
)
from nodetriage.checks.gpu import (
    accelerators,
    gpu_c2c,
    gpu_driver,
    gpu_ecc,
    gpu_ecc_corrected,
    gpu_inforom,
    gpu_link_speed,
    gpu_lost,
    gpu_nvlink,
    gpu_pcie,
    gpu_processes,
    gpu_recovery,
    gpu_remap,
    gpu_repair,
    gpu_retired_pages,
    gpu_settings,
    gpu_thermal,
    gpu_throttle,
    gpu_xid,
)
from nodetriage.checks.host import (
    accelerator_errors,
    after_job,
    clock_sync,
    cpu_mce,
    gpu_driver_errors,
    kernel_hang,
    last_reboot,
    mem_edac,
    mem_errors,
    mem_size,
    node_drift,
    platform_errors,
    services,
)
from nodetriage.checks.model import Check
from nodetriage.checks.pcie import (
    pcie_aer,
    pcie_errors,
    pcie_link,
)
from nodetriage.checks.storage import (
    disk_errors,
    disk_health,
    disk_state,
    fs_errors,
    fs_full,
    fs_mounts,
    fs_servers,
    raid_controller,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "nodetriage.checks"

# In the order of reports.
ALL: tuple[Check[Any, Any], ...] = (
    gpu_xid.CHECK,
    gpu_driver_errors.CHECK,
    accelerator_errors.CHECK,
    gpu_lost.CHECK,
    gpu_recovery.CHECK,
    gpu_ecc.CHECK,
    gpu_ecc_corrected.CHECK,
    gpu_remap.CHECK,
    gpu_repair.CHECK,
    gpu_retired_pages.CHECK,
    gpu_nvlink.CHECK,
    gpu_c2c.CHECK,
    gpu_pcie.CHECK,
    gpu_link_speed.CHECK,
    gpu_thermal.CHECK,
    gpu_throttle.CHECK,
    gpu_processes.CHECK,
    gpu_inforom.CHECK,
    gpu_driver.CHECK,
    gpu_settings.CHECK,
    accelerators.CHECK,
    pcie_link.CHECK,
    pcie_aer.CHECK,
    pcie_errors.CHECK,
    ib_link.CHECK,
    ib_errors.CHECK,
    ib_firmware.CHECK,
    eth_link.CHECK,
    nic_health.CHECK,
    nic_cables.CHECK,
    net_errors.CHECK,
    fs_mounts.CHECK,
    fs_full.CHECK,
    disk_state.CHECK,
    disk_health.CHECK,
    raid_controller.CHECK,
    disk_errors.CHECK,
    fs_errors.CHECK,
    fs_servers.CHECK,
    mem_edac.CHECK,
    mem_errors.CHECK,
    mem_size.CHECK,
    cpu_mce.CHECK,
    kernel_hang.CHECK,
    platform_errors.CHECK,
    clock_sync.CHECK,
    services.CHECK,
    after_job.CHECK,
    last_reboot.CHECK,
    node_drift.CHECK,
    bmc_power.CHECK,
    bmc_sensors.CHECK,
    bmc_sel.CHECK,
    bmc_redfish.CHECK,
)


def all_checks(others: "Iterable[EntryPoint] | None" = None) -> tuple[tuple[Check[Any, Any], ...], tuple[str, ...]]:
    """Our checks and those of installed packages, and one line for each that could not be loaded.

    Tests pass their own entry points as `others`. A check of another package never replaces one of the same name.
    """
    checks, troubles = list(ALL), []
    for entry in _installed() if others is None else others:
        try:
            found = entry.load()
        except Exception as error:  # noqa: BLE001 a broken package must not keep our checks from running
            troubles.append(f"check {entry.name} ({entry.value}): {type(error).__name__}: {error}")
            continue
        if not isinstance(found, Check):
            troubles.append(f"check {entry.name} ({entry.value}): expected a Check, got {type(found).__name__}")
        elif any(found.name == known.name for known in checks):
            troubles.append(f"check {entry.name} ({entry.value}): the name {found.name} is taken")
        else:
            checks.append(found)
    return tuple(checks), tuple(troubles)


def _installed() -> "Iterable[EntryPoint]":
    if not _are_declared(sys.path):
        return ()
    from importlib.metadata import entry_points  # imported here: it takes more time and memory than all checks

    return entry_points(group=GROUP)


def _are_declared(folders: Iterable[str]) -> bool:
    """Whether a package in these folders may declare checks in its entry_points.txt (entry points specification).

    A path that is a file (a zip archive) may, because it is not opened.
    """
    for folder in map(Path, folders):
        if folder.is_file():
            return True
        for declared in folder.glob("*.*-info/entry_points.txt"):
            if f"[{GROUP}]" in declared.read_text(encoding="utf-8", errors="replace"):
                return True
    return False
