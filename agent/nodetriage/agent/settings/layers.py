"""The settings' files as a list of tables, the strongest last: each file's own, then its [[hosts]] tables."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nodetriage.agent.settings import node_set
from nodetriage.checks.model.settings import ConfigError, load_toml


@dataclass(frozen=True, slots=True)
class Layer:
    """`where` names the file and the table in it. `nodes` is the node set that it is for ("": every node)."""

    where: str
    table: Mapping[str, Any]
    nodes: str = ""

    def applies(self, node: str) -> bool:
        return not self.nodes or node_set.matches(self.nodes, node)


def read(files: Iterable[Path], ignore: Collection[str] = ()) -> tuple[Layer, ...]:
    """Without the tables that `ignore` names. Raises ConfigError."""
    found = (layer for file in files for layer in _file(load_toml(file), str(file)))
    return tuple(replace(one, table={k: v for k, v in one.table.items() if k not in ignore}) for one in found)


def _file(table: dict[str, Any], file: str) -> list[Layer]:
    hosts = table.pop("hosts", [])
    if not isinstance(hosts, list) or not all(isinstance(host, dict) for host in hosts):
        raise ConfigError(f"{file}: hosts: expected tables [[hosts]], got {hosts!r}")
    return [Layer(file, table), *(_hosts(host, f"{file}: hosts[{i}]") for i, host in enumerate(hosts))]


def _hosts(table: dict[str, Any], where: str) -> Layer:
    nodes = table.pop("nodes", None)
    if not isinstance(nodes, str):
        raise ConfigError(f"{where}: nodes: expected node names such as 'gpu-[1-64,70],login*', got {nodes!r}")
    if "node" in table.get("agent", {}):
        raise ConfigError(f"{where}: agent.node: the name chooses the [[hosts]] tables; set it outside of them")
    try:
        node_set.matches(nodes, "")
    except ValueError as error:
        raise ConfigError(f"{where}: nodes: {error}") from error
    return Layer(where, table, nodes)
