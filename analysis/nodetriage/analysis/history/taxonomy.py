"""What a fault is evidence of: its category, who can be the cause, and how near to the cause it is."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Literal

import polars as pl

from nodetriage.checks.model import faults
from nodetriage.checks.model.faults import Domain
from nodetriage.checks.model.settings import decode, load_toml

DOMAINS: tuple[Domain, ...] = ("user", "system", "hardware")

# What Slurm's word for the end leaves possible, before any event is looked at.
STATE_DOMAINS: Mapping[str, tuple[Domain, ...]] = {
    "OUT_OF_MEMORY": ("user",),
    "TIMEOUT": ("user",),
    "NODE_FAIL": ("system", "hardware"),
    "BOOT_FAIL": ("system", "hardware"),
}


@dataclass(frozen=True, slots=True)
class Symptom:
    """One entry of taxonomy.toml, which explains the fields."""

    pattern: str
    category: str
    priority: int
    domains: tuple[Domain, ...]
    lasts: Literal["permanent", "transient", "either"]
    symptom: bool = False


@dataclass(frozen=True, slots=True)
class Taxonomy:
    symptom: tuple[Symptom, ...]
    xids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def of(self, fault: str, xid: int | None = None) -> Symptom:
        """The entry for a fault code; an event that has only an Xid is taken for the code that the table gives it."""
        if not fault or fault == "xid":
            fault = next((code for code, xids in self.xids.items() if xid in xids), fault)
        entry = next(s for s in self.symptom if re.search(s.pattern, fault))
        known = faults.faults().get(fault)
        if known is None:
            return entry
        # A code that came later than this table is at least placed by the class that the checks give it.
        category = known.class_ if not entry.pattern else entry.category
        return replace(entry, category=category, domains=known.domains)


@functools.cache
def taxonomy() -> Taxonomy:
    """The shipped table. Raises ConfigError where it is wrong (a test walks it)."""
    with resources.as_file(resources.files("nodetriage.analysis.history") / "taxonomy.toml") as path:
        return decode(Taxonomy, load_toml(path), path.name)


def table_of(events: pl.DataFrame) -> pl.DataFrame:
    """For each (fault, xid) in `events`: category, priority, domains (bits of DOMAINS), symptom, lasts, condition.

    `condition` marks faults that stay until they are cleared (faults.toml: latching = "no"); others happen at a time.
    """
    kinds = events.select("fault", "xid").unique(maintain_order=True)
    rows = []
    for fault, xid in kinds.iter_rows():
        entry = taxonomy().of(fault, xid)
        known = faults.faults().get(fault)
        lasting = known is not None and known.latching == "no"
        rows.append(
            (fault, xid, entry.category, entry.priority, bits(entry.domains), entry.symptom, entry.lasts, lasting)
        )
    schema = {
        "fault": pl.String,
        "xid": pl.Int32,
        "category": pl.String,
        "priority": pl.Int32,
        "domains": pl.Int8,
        "symptom": pl.Boolean,
        "lasts": pl.String,
        "condition": pl.Boolean,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def bits(domains: tuple[Domain, ...]) -> int:
    """A set of domains as a number, so that columns of sets can be intersected."""
    return sum(1 << i for i, d in enumerate(DOMAINS) if d in domains)


def domain_names(column: str) -> pl.Expr:
    """A column of sets of domains, as text."""
    names = [pl.when(pl.col(column) & (1 << i) > 0).then(pl.lit(d)) for i, d in enumerate(DOMAINS)]
    return pl.concat_str(names, separator=", ", ignore_nulls=True).alias(column)
