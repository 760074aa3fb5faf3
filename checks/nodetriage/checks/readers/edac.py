"""Memory error counters of EDAC (Documentation/ABI/testing/sysfs-devices-edac), in its old and new layouts."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from nodetriage.checks.model import Host
from nodetriage.checks.readers.sysfs import count, count_if_told, text_if_told, told

FOLDER = "/sys/devices/system/edac/mc"


@dataclass(frozen=True, slots=True)
class Dimm:
    """Errors since boot or since the driver was loaded. `name` is the label, else the place, as "mc0/dimm3".

    "mc0" alone is the controller's errors that it gives to no DIMM. `error` is set where a counter made no sense.
    """

    name: str
    place: str
    corrected: int = 0
    uncorrected: int = 0
    at_s: float = 0
    error: str = ""


def read_dimms(host: Host) -> tuple[Dimm, ...]:
    """Every DIMM, rank or row, and each memory controller. Empty where there is no EDAC driver."""
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
        label = text_if_told(host, path / files[2])[:80].strip() if files[2] else ""
        corrected = count(host, path / files[0])
        uncorrected = count_if_told(host, path / files[1]) or 0
    except (OSError, ValueError) as error:
        return Dimm(label or place, place, at_s=at_s, error=told(error, path))
    return Dimm(label or place, place, corrected, uncorrected, at_s)
