"""Memory: what EDAC counted of each DIMM since boot (or since its driver was loaded), and the NUMA node of a page.

/sys/devices/system/edac/mc (Documentation/ABI/testing/sysfs-devices-edac), in its layouts with dimm*, rank* and csrow*.
/sys/devices/system/node/nodeN/memoryM and /sys/devices/system/memory/block_size_bytes
(Documentation/admin-guide/mm/memory-hotplug.rst): block M holds the addresses from M times the block's size on. GPUs of
Grace machines are nodes without CPUs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from nodetriage.checks.model import Host
from nodetriage.checks.readers.sysfs import count, error_line, optional_count, optional_text

FOLDER = "/sys/devices/system/edac/mc"
_NODES = "/sys/devices/system/node"
_BLOCK = "/sys/devices/system/memory/block_size_bytes"
_PAGE_BYTES = (4096, 65536)  # of x86 and Arm, and of Arm servers whose kernel has large pages


@dataclass(frozen=True, slots=True)
class Dimm:
    """One DIMM. `name` is its label, else its place, such as "mc0/dimm3".

    The place "mc0" alone has errors that a controller assigns to no DIMM. `error` is set where a file holds no count.
    """

    name: str
    place: str
    corrected: int = 0
    uncorrected: int = 0
    at_s: float = 0  # CLOCK_BOOTTIME of the reading
    error: str = ""


def read_dimms(host: Host) -> tuple[Dimm, ...]:
    """Each DIMM, rank or row, and each memory controller. Empty where there is no EDAC driver."""
    at_s = host.boottime_s()
    found = [dimm for folder in host.glob(f"{FOLDER}/mc*") for dimm in _controller(host, folder, at_s)]
    names = [dimm.name for dimm in found]
    return tuple(
        dimm if names.count(dimm.name) == 1 else Dimm(f"{dimm.place} {dimm.name}", *_rest(dimm)) for dimm in found
    )


def _rest(dimm: Dimm) -> tuple[str, int, int, float, str]:
    return dimm.place, dimm.corrected, dimm.uncorrected, dimm.at_s, dimm.error


def _controller(host: Host, folder: PurePosixPath, at_s: float) -> Iterator[Dimm]:
    dimms = [*host.glob(str(folder / "dimm*")), *host.glob(str(folder / "rank*"))]
    found = []
    for path in dimms:
        found.append(_counted(host, path, folder.name, ("dimm_ce_count", "dimm_ue_count", "dimm_label"), at_s))
    if not dimms:  # kernels before 3.5, and some drivers
        for path in host.glob(str(folder / "csrow*")):
            found.append(_counted(host, path, folder.name, ("ce_count", "ue_count", "ch0_dimm_label"), at_s))
    yield from found
    whole = _counted(host, folder, "", ("ce_count", "ue_count", ""), at_s)
    corrected, uncorrected = sum(d.corrected for d in found), sum(d.uncorrected for d in found)
    left = max(whole.corrected - corrected, 0), max(whole.uncorrected - uncorrected, 0)
    yield Dimm(folder.name, folder.name, *left, at_s, whole.error)


def _counted(host: Host, path: PurePosixPath, mc: str, files: tuple[str, str, str], at_s: float) -> Dimm:
    place = f"{mc}/{path.name}" if mc else path.name
    label = ""
    try:
        label = optional_text(host, path / files[2])[:80].strip() if files[2] else ""
        corrected = count(host, path / files[0])
        uncorrected = optional_count(host, path / files[1]) or 0
    except (OSError, ValueError) as error:
        return Dimm(label or place, place, at_s=at_s, error=error_line(error, path))
    return Dimm(label or place, place, corrected, uncorrected, at_s)


@dataclass(frozen=True, slots=True)
class NumaNode:
    """`has_cpu` is False for memory of a GPU (or on CXL)."""

    number: int
    has_cpu: bool


def node_of_page(host: Host, pfn: int) -> NumaNode | None:
    """The node of the page frame; None where the kernel does not tell, or where it depends on the page size."""
    try:
        block_bytes = int(host.text(_BLOCK), 16)
        folders = host.glob(f"{_NODES}/node[0-9]*")
        blocks = {pfn * page // block_bytes for page in _PAGE_BYTES}
    except (FileNotFoundError, ValueError, ZeroDivisionError):
        return None
    found = {folder for folder in folders for block in blocks if host.exists(folder / f"memory{block}")}
    if len(found) != 1:
        return None
    folder = found.pop()
    return NumaNode(int(folder.name.removeprefix("node")), _has_cpu(host, f"{folder}/cpulist"))


def _has_cpu(host: Host, path: str) -> bool:
    try:
        return bool(host.text(path).strip())
    except FileNotFoundError:
        return True
