"""What nodes share, from the site's own file: racks, switches, power feeds, anything that fails as one.

    [rack]
    r1 = "n[1-8]"
    [switch]
    leaf1 = ["n1", "n[3-4]"]

A table is a kind, a key a name, its value a node list in the scheduler's notation, or several. A node may be in many.
"""

from collections.abc import Mapping
from pathlib import Path

from nodetriage.checks.model.settings import ConfigError, load_toml
from nodetriage.controller.slurm.node_list import expand

MOST_NODES = 100_000  # in one file: n[1-999999] is a slip


def load(path: Path) -> Mapping[str, tuple[str, ...]]:
    """Node -> what it shares, as "rack r1". Raises ConfigError: one line, the file, the key, what was expected."""
    found: dict[str, list[str]] = {}
    total = 0
    for kind, names in load_toml(path).items():
        if not isinstance(names, dict):
            raise ConfigError(f"{path}: {kind}: expected a table, got {names!r}")
        for name, value in names.items():
            nodes = _nodes(value, f"{path}: {kind}.{name}")
            total += len(nodes)
            if total > MOST_NODES:
                raise ConfigError(f"{path}: {kind}.{name}: expected at most {MOST_NODES} nodes in the file")
            for node in nodes:
                found.setdefault(node, []).append(f"{kind} {name}")
    return {node: tuple(shared) for node, shared in found.items()}


def _nodes(value: object, where: str) -> list[str]:
    lists = value if isinstance(value, list) else [value]
    found: list[str] = []
    for one in lists:
        nodes = expand(one) if isinstance(one, str) else None
        if not nodes:
            raise ConfigError(f"{where}: expected a node list such as n[1-8], or several, got {value!r}")
        found += nodes
    return found
