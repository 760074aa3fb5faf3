"""What a fault is evidence of (taxonomy.toml): its category, who can cause it, and how near to the cause it is.

Controller and analysis name the primary cause of an incident and of a failed job by it.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Literal

from nodetriage.checks.model.faults import Domain, faults
from nodetriage.checks.model.settings import decode, load_toml


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of taxonomy.toml, which explains the fields."""

    pattern: str
    category: str
    priority: int
    domains: tuple[Domain, ...]
    lasts: Literal["permanent", "transient", "either"]
    symptom: bool = False


@dataclass(frozen=True, slots=True)
class Taxonomy:
    entry: tuple[Entry, ...]
    xids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def of(self, fault: str, xid: int | None = None) -> Entry:
        """The entry for a fault code; an event that has only an Xid is taken for the code that the table gives it."""
        if not fault or fault == "xid":
            fault = next((code for code, xids in self.xids.items() if xid in xids), fault)
        entry = next(s for s in self.entry if re.search(s.pattern, fault))
        known = faults().get(fault)
        if known is None:
            return entry
        # A code that came later than this table is at least placed by the class that the checks give it.
        category = known.class_ if not entry.pattern else entry.category
        return replace(entry, category=category, domains=known.domains)


@functools.cache
def taxonomy() -> Taxonomy:
    """The shipped table. Raises ConfigError where it is wrong (a test walks it)."""
    with resources.as_file(resources.files("nodetriage.checks.model") / "taxonomy.toml") as path:
        return decode(Taxonomy, load_toml(path), path.name)
