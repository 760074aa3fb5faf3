"""The settings of a profile for machines like one that is known to be good, from its readings. Pure.

Only what is the same on all good machines of one kind: numbers of devices, rates, versions, and where adapters are on
the PCI bus. It leaves out names of interfaces that jobs do not use, and current mounts.
"""

from collections.abc import Callable, Mapping
from typing import Any

from nodetriage.checks.gpu.gpu_driver import Driven
from nodetriage.checks.gpu.gpu_ecc import Errors
from nodetriage.checks.readers.disks import Disk
from nodetriage.checks.readers.gpu_inventory import Inventory
from nodetriage.checks.readers.ib_port import Port
from nodetriage.checks.readers.nvlink import Links

Settings = dict[str, Any]
_FABRIC_COMPLETED = 3  # NVML_GPU_FABRIC_STATE_COMPLETED
_STEPS_GIB = ((256, 64), (32, 8), (0, 1))  # from so much memory on, it is sold in such steps


def _gpu_lost(gpus: Inventory) -> Settings:
    return {"expected_gpus": len(gpus.bus)} if gpus.bus else {}


def _gpu_driver(gpus: tuple[Driven, ...]) -> Settings:
    return {"expect_persistence": True} if gpus and all(gpu.persistence for gpu in gpus) else {}


def _gpu_ecc(gpus: tuple[Errors, ...]) -> Settings:
    return {"expect_ecc": True} if gpus and all(gpu.enabled for gpu in gpus) else {}


def _gpu_nvlink(gpus: tuple[Links, ...]) -> Settings:
    learned: Settings = {}
    ups = {len(gpu.up) for gpu in gpus if not gpu.mig}
    if len(ups) == 1 and ups != {0}:  # where GPUs differ, no number fits all
        learned["expected_links"] = ups.pop()
    if gpus and all(gpu.fabric_state == _FABRIC_COMPLETED for gpu in gpus):
        learned["expect_fabric"] = True
    return learned


def _ib_link(ports: tuple[Port, ...]) -> Settings:
    """One role for each rate, because only a person knows what a port is for."""
    kinds: dict[tuple[str, float, int], list[Port]] = {}
    for port in ports:
        if port.state == "ACTIVE" and not port.error:
            kinds.setdefault((port.link_layer.lower() or "unknown", port.rate_gbps, port.width), []).append(port)
    roles = {
        f"{layer}_{rate:g}g_{width}x": {
            **({"pci": sorted({port.pci for port in of})} if all(port.pci for port in of) else {}),
            "hcas": sorted({port.hca for port in of}),
            "ports": len(of),
            "rate_gbps": rate,
            "width": width,
        }
        for (layer, rate, width), of in sorted(kinds.items())
    }
    return {"roles": roles} if roles else {}


def _mem_size(total_kib: int) -> Settings:
    """The kernel keeps some memory for itself, so the installed amount is the next size up."""
    total_gib = total_kib / (1 << 20)
    step = next(step for least, step in _STEPS_GIB if total_gib >= least)
    return {"expected_gib": int(-(-total_gib // step) * step)}


def _node_drift(versions: Mapping[str, str]) -> Settings:
    return {name: [version] for name, version in versions.items() if version}


def _disk_health(disks: tuple[Disk, ...]) -> Settings:
    controllers = sum(1 for disk in disks if disk.state)
    return {"expected_nvme": controllers} if controllers else {}


BY_CHECK: Mapping[str, Callable[[Any], Settings]] = {
    "gpu_lost": _gpu_lost,
    "gpu_driver": _gpu_driver,
    "gpu_ecc": _gpu_ecc,
    "gpu_nvlink": _gpu_nvlink,
    "ib_link": _ib_link,
    "mem_size": _mem_size,
    "node_drift": _node_drift,
    "disk_health": _disk_health,
}


def learn(memories: Mapping[str, Any]) -> dict[str, Settings]:
    """Settings by check, from the state that each check keeps after one run on a good machine; without empty ones."""
    learned = {name: teach(memories[name]) for name, teach in BY_CHECK.items() if memories.get(name) is not None}
    return {name: settings for name, settings in learned.items() if settings}
