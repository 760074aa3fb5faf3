"""Counters of PCIe errors: numbers of errors since the device appeared or the counters were reset.

aer_dev_fatal, aer_dev_nonfatal and aer_dev_correctable of a PCI function
(Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats): one "NAME COUNT" a line, and TOTAL_ lines.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from nodetriage.checks.model import Host
from nodetriage.checks.readers.pci import Hop
from nodetriage.checks.readers.sysfs import REFUSED, error_line, to_count

_FILES = {"fatal": "aer_dev_fatal", "nonfatal": "aer_dev_nonfatal", "correctable": "aer_dev_correctable"}


@dataclass(frozen=True, slots=True)
class Counts:
    """Errors of one function by class and name, without zeros. `component` is the lower end of its link."""

    address: str
    component: str
    kind: str
    at_s: float  # CLOCK_BOOTTIME of the reading
    errors: Mapping[str, Mapping[str, int]]  # a class that the kernel does not count is absent
    error: str = ""
    behind: tuple[str, ...] = ()  # functions whose traffic crosses the link


def read_counts(host: Host, folder: str, hop: Hop, at_s: float) -> Counts:
    """The counters in `folder`. A class whose file is absent or refused is left out; any other trouble is `error`."""
    errors: dict[str, Mapping[str, int]] = {}
    trouble = ""
    for name, file in _FILES.items():
        path = f"{folder}/{file}"
        try:
            errors[name] = _parsed(host.text(path))
        except OSError as error:
            if error.errno not in REFUSED:
                trouble = error_line(error, path)
        except ValueError as error:
            trouble = f"{path}: {error}"
        if trouble:
            errors = {}
            break
    address = folder.rpartition("/")[2]
    return Counts(address, hop.address, hop.kind, at_s, errors, trouble, hop.behind)


@functools.lru_cache(maxsize=64)  # without errors nearly all files are the same
def _parsed(text: str) -> Mapping[str, int]:
    """Raises ValueError where a line is not a name and a count, or there is no line."""
    words = text.split()
    names, counts = words[::2], words[1::2]
    if not words or len(names) != len(counts) or any(name.isdecimal() for name in names):
        raise ValueError(f"expected lines of a name and a count, got {text[:40]!r}")
    # Most counts on some sixty functions are 0, so those are not parsed.
    return {name[:60]: to_count(word, name) for name, word in zip(names, counts, strict=True) if word != "0"}
