"""One NVLink of a GPU that is much worse than the GPU's other links, though no counter of it is over a limit. Pure.

Blocks that the physical layer sends again (PLR) and symbols that FEC corrects are normal on NVLink 5; absolute limits
of them gave false alarms, so each link is compared with its siblings.
"""

import statistics
from collections.abc import Iterator, Mapping

from nodetriage.checks.model import Finding, Scalar, Severity
from nodetriage.checks.readers.nvlink import Links
from nodetriage.checks.rules.counters import increase

COMPARED = ("plr_retries", "symbol_errors", "effective_errors")
NORMAL = frozenset({*COMPARED, "plr_blocks"})  # counters that grow on healthy links
_LEAST_LINKS = 4  # that are needed to say what is usual


def growth(old: Links, now: Links) -> dict[tuple[str, str], int]:
    """How much the counters of errors grew, by link and counter, without those that did not."""
    counts = ((link, name, count) for link, by_name in now.counters.items() for name, count in by_name.items())
    grown = {
        (link, name): increase(old.counters.get(link, {}).get(name), count)
        for link, name, count in counts
        if name not in NORMAL
    }
    return {key: new for key, new in grown.items() if new}


def judge(old: Links, now: Links, times: float, at_least: int) -> Iterator[Finding]:
    """One finding for each link that grew `times` as much as the median of the GPU's links, and at least `at_least`."""
    for counter in COMPARED:
        grown = _growth(old, now, counter)
        if len(grown) < _LEAST_LINKS:
            continue
        usual = statistics.median(grown.values())
        for link, new in grown.items():
            if new >= at_least and new > times * max(usual, 1.0):
                evidence: dict[str, Scalar] = {
                    "link": link, "counter": counter, "new": new, "median": usual, "uuid": now.uuid,
                }  # fmt: skip
                yield Finding(f"{now.pci}/nvlink{link}", "gpu_nvlink_uneven", Severity.WARNING, evidence)


def _growth(old: Links, now: Links, counter: str) -> Mapping[str, int]:
    both = {
        link: (old.counters.get(link, {}).get(counter), c[counter]) for link, c in now.counters.items() if counter in c
    }
    return {link: increase(before, count) for link, (before, count) in both.items() if before is not None}
