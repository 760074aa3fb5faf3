"""The tables of [checks] that make checks of their own: [checks.command.NAME] and [checks.reach]."""

from collections.abc import Collection, Mapping
from typing import Any

from nodetriage.agent.reach import settings as reach
from nodetriage.agent.reach.settings import ReachSettings
from nodetriage.agent.settings.layers import Layer
from nodetriage.agent.site_commands import SiteCommand, check_name
from nodetriage.checks.model.faults import faults
from nodetriage.checks.model.settings import ConfigError, decode, replace_from

KEY = "command"  # in [checks]; no check of ours has this name


def without(checks: Mapping[str, Any]) -> dict[str, Any]:
    """The table [checks] without these."""
    return {name: table for name, table in checks.items() if name not in (KEY, reach.NAME)}


def reach_of(known: ReachSettings, layer: Layer) -> ReachSettings:
    """[checks.reach] of one layer over what was set so far. Raises ConfigError."""
    table = layer.table.get("checks", {}).get(reach.NAME, {})
    return replace_from(ReachSettings, known, table, layer.where, f"checks.{reach.NAME}")


def merged(known: Mapping[str, SiteCommand], layer: Layer, taken: Collection[str]) -> dict[str, SiteCommand]:
    """The commands so far and those of one layer over them; a later key wins. `taken` are names that none may have.

    Raises ConfigError: one line with the file, the key, and what was expected.
    """
    tables = layer.table.get("checks", {}).get(KEY, {})
    if not isinstance(tables, Mapping):
        raise ConfigError(f"{layer.where}: checks.{KEY}: expected tables [checks.{KEY}.NAME], got {tables!r}")
    found = dict(known)
    for name, table in tables.items():
        key = f"checks.{KEY}.{name}"
        try:
            check_name(name)
        except ValueError as error:
            raise ConfigError(f"{layer.where}: {key}: {error}") from None
        if name in taken or name in faults():  # a fault of that name may act at once; a command's begins in shadow
            raise ConfigError(f"{layer.where}: {key}: the name is taken by a check or a fault; choose another name")
        if name in found:
            found[name] = replace_from(SiteCommand, found[name], table, layer.where, key)
        else:
            found[name] = _new(table, layer.where, key)
    return found


def _new(table: Any, where: str, key: str) -> SiteCommand:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: {key}: expected a table with the key run, got {table!r}")
    return decode(SiteCommand, table, where, key)
