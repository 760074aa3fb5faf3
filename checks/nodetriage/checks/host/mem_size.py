"""A node with less memory than it should have: the firmware leaves out a DIMM that fails its training at boot.

Reads MemTotal of /proc/meminfo (proc_meminfo(5)): what the kernel may use, about 2 % less than what is installed. Where
GPUs share their memory with the CPUs (Grace), the kernel counts it too, as NUMA nodes without CPUs; then only the nodes
with CPUs count (/sys/devices/system/node, Documentation/ABI/stable/sysfs-devices-node).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Severity, Unavailable

_FILE = "/proc/meminfo"
_TOTAL = re.compile(r"^(?:Node \d+ )?MemTotal:\s+(\d{1,15}) kB$", re.MULTILINE | re.ASCII)
_NODES = "/sys/devices/system/node"
_CXL = "/sys/bus/cxl/devices/region*"  # memory on CXL is the host's, though no CPU is in its node
_KIB_PER_GIB = 1 << 20
# GiB that each GPU adds to MemTotal, by PCI device, as nvidia-smi gives them in public reports: GH200 97,871 MiB, GH200
# 144G (142.5 GiB by cuDeviceTotalMem), GB200 189,471 MiB, GB300 284,208 MiB. Only for a kernel without NUMA nodes,
# which cannot say it.
_COHERENT_GIB = {0x2342: 95, 0x2348: 143, 0x2941: 185, 0x31C2: 277, 0x31C3: 277}
_CPUS = "/proc/cpuinfo"
_ARM = "CPU implementer"  # only there does a GPU share memory with the CPUs


@dataclass(frozen=True, slots=True)
class Policy:
    """The tolerance has to be less than one DIMM of the machine, and more than what the kernel keeps for itself."""

    expected_gib: float = 0  # installed memory; 0: the check is skipped
    tolerance_pct: float = 2.8  # that may be missing; one of 32 DIMMs is 3.1 %
    severity: Severity = Severity.MAJOR  # of missing memory; the running job has what it asked for


def read(host: Host) -> int:
    """The CPUs' memory in KiB.

    Raises Unavailable without the file, or where GPUs may have an unknown part of it; ValueError for another form.
    """
    if not host.exists(_FILE):
        raise Unavailable(f"no {_FILE}")
    total = _total(host, _FILE)
    with_cpu, with_memory = _nodes(host, "has_cpu"), _nodes(host, "has_memory")
    if not with_cpu or not with_memory:
        return max(0, total - _of_gpus(host) * _KIB_PER_GIB)
    if with_memory <= with_cpu or host.glob(_CXL):
        return total
    return sum(_total(host, f"{_NODES}/node{node}/meminfo") for node in sorted(with_memory & with_cpu))


def _of_gpus(host: Host) -> int:
    """GiB of MemTotal that are the GPUs'. Raises Unavailable where that is not known."""
    devices = [d.device for d in host.pci_devices() if d.is_nvidia_gpu and not d.is_virtual]
    strange = [device for device in devices if device not in _COHERENT_GIB]
    if strange and host.exists(_CPUS) and _ARM in host.text(_CPUS):
        raise Unavailable(f"no NUMA nodes, and the part of GPUs 10de:{strange[0]:04x} in MemTotal is not known")
    return sum(_COHERENT_GIB.get(device, 0) for device in devices)


def _total(host: Host, path: str) -> int:
    found = _TOTAL.search(host.text(path))
    if not found:
        raise ValueError(f'{path}: expected a line "MemTotal: NUMBER kB", found none')
    return int(found[1])


def _nodes(host: Host, name: str) -> frozenset[int]:
    """A list of NUMA nodes such as 0-1,4; empty where this kernel has none."""
    try:
        text = host.text(f"{_NODES}/{name}")
    except FileNotFoundError:
        return frozenset()
    spans = [part.split("-") for part in text.split(",") if part]
    if not all(len(span) <= 2 and all(n.isdecimal() and len(n) < 5 for n in span) for span in spans):
        raise ValueError(f"{_NODES}/{name}: expected a list of nodes such as 0-1,4, got {text[:60]!r}")
    return frozenset(node for span in spans for node in range(int(span[0]), int(span[-1]) + 1))


def judge(now: int, before: int | None, policy: Policy) -> Iterator[Finding]:
    """Raises Unavailable where neither profile nor settings say how much memory there should be."""
    if not policy.expected_gib:
        raise Unavailable("expected_gib is not set")
    found_gib = now / _KIB_PER_GIB
    if found_gib < policy.expected_gib * (1 - policy.tolerance_pct / 100):
        evidence = {"found_gib": round(found_gib, 1), "expected_gib": policy.expected_gib}
        yield Finding("memory", "mem_missing", policy.severity, evidence)


CHECK = Check(
    name="mem_size",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("mem_missing",),
    every_s=3600,
    in_prolog=True,
)
