"""Jobs and events as CSV, one column each by the names of tables.py; lists as Slurm node lists, times as ISO 8601."""

from pathlib import Path

import polars as pl

from nodetriage.analysis.imports.node_columns import expand_column
from nodetriage.analysis.tables import TIME, Imported, Problems, Schema, TableError

_TIME_FORMATS = ("%Y-%m-%dT%H:%M:%S%.f%z", "%Y-%m-%d %H:%M:%S%.f%z")
_LOCAL_FORMATS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f")


def read_csv(path: Path, schema: Schema) -> Imported:
    """The rows of `path` with the types of `schema`, other columns as they are. A time without an offset is UTC.

    Raises TableError where the file cannot be read or is not CSV.
    """
    try:
        raw = pl.read_csv(path, infer_schema=False, encoding="utf8-lossy", null_values=[""], truncate_ragged_lines=True)
    except pl.exceptions.NoDataError:
        return Imported(pl.DataFrame(schema=dict(schema)))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TableError(f"{path}: not a CSV file: {error}") from error
    kept: dict[str, int] = {}
    columns = [_typed(raw[name], dtype) for name, dtype in schema.items() if name in raw.columns]
    for column in columns:
        if lost := column.null_count() - raw[column.name].null_count():
            kept[f"{column.name} cannot be read"] = lost
    return Imported(raw.with_columns(columns), Problems(kept))


def _typed(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, pl.List):
        return expand_column(column)[0]
    if dtype != TIME:
        return column.cast(dtype, strict=False)
    text = pl.col(column.name).str.strip_chars()
    zoned = [text.str.to_datetime(f, time_unit="us", strict=False).cast(TIME) for f in _TIME_FORMATS]
    local = [text.str.to_datetime(f, time_unit="us", strict=False).dt.replace_time_zone("UTC") for f in _LOCAL_FORMATS]
    return column.to_frame().select(pl.coalesce(*zoned, *local).alias(column.name)).to_series()
