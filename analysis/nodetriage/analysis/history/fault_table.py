"""What faults are evidence of, as columns: categories and sets of domains, for tables of events."""

import polars as pl

from nodetriage.checks.model.faults import Domain, faults
from nodetriage.checks.model.taxonomy import taxonomy

DOMAINS: tuple[Domain, ...] = ("user", "system", "hardware")


def table_of(events: pl.DataFrame) -> pl.DataFrame:
    """For each (fault, xid) in `events`: category, priority, domains (bits of DOMAINS), symptom, lasts, condition.

    `condition` marks faults that stay until they are cleared (faults.toml: latching = "no"); others happen at a time.
    """
    kinds = events.select("fault", "xid").unique(maintain_order=True)
    rows = []
    for fault, xid in kinds.iter_rows():
        entry = taxonomy().of(fault, xid)
        known = faults().get(fault)
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
