"""The nodes' facts by name, with the groups of nodes that a step asks for: it never looks at the whole fleet."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from immutables import Map

from nodetriage.controller.policy.facts.kinds import DrainStatus, NodeState

if TYPE_CHECKING:
    from nodetriage.controller.policy.state import NodeFacts

Names = Map[str, None]


class Nodes(Mapping[str, "NodeFacts"]):
    """Never changed: `put` and `forget` return another one, which shares with this one what is the same."""

    __slots__ = ("_all", "busy", "lemons", "out", "waiting")

    def __init__(
        self, all_nodes: "Map[str, NodeFacts]", waiting: Names, out: Names, busy: Names, lemons: Names
    ) -> None:
        self._all = all_nodes
        self.waiting = waiting  # their drain is wanted, and held by a limit
        self.out = out  # drained, or about to be
        self.busy = busy  # of which the passing of time may change something
        self.lemons = lemons

    def put(self, node: "NodeFacts") -> "Nodes":
        name, drain = node.node, node.drain
        waits = drain is not None and drain.status is DrainStatus.WANTED
        return Nodes(
            self._all.set(name, node),
            _with(self.waiting, name, waits),
            _with(self.out, name, drain is not None and not waits),
            _with(self.busy, name, is_busy(node)),
            _with(self.lemons, name, node.state is NodeState.LEMON),
        )

    def __getitem__(self, name: str) -> "NodeFacts":
        return self._all[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self._all.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._all

    # In the order of the names: that of a map differs from process to process, and what a step does must not.
    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Nodes):
            return self._all == other._all
        return isinstance(other, Mapping) and dict(self._all) == dict(other)

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return f"Nodes({dict(self._all)!r})"


NO_NODES = Nodes(Map(), Map(), Map(), Map(), Map())


def is_busy(node: "NodeFacts") -> bool:
    """Something is open or under way on it."""
    if node.drain is not None or node.maintenance is not None or node.reboot_at is not None:
        return True
    return node.upkeep.held_told_at is not None or any(f.is_open for f in node.findings)


def nodes_of(nodes: Mapping[str, "NodeFacts"]) -> Nodes:
    """The same nodes; costs nothing where they are `Nodes` already."""
    if isinstance(nodes, Nodes):
        return nodes
    waiting = [n for n, f in nodes.items() if f.drain is not None and f.drain.status is DrainStatus.WANTED]
    out = [n for n, f in nodes.items() if f.drain is not None and f.drain.status is not DrainStatus.WANTED]
    busy = [n for n, f in nodes.items() if is_busy(f)]
    lemons = [n for n, f in nodes.items() if f.state is NodeState.LEMON]
    groups = [Map(dict.fromkeys(names)) for names in (waiting, out, busy, lemons)]
    return Nodes(Map(nodes), *groups)


def persistent(mapping: Mapping[str, Any]) -> Map[str, Any]:
    """A map that shares what did not change with those that are made from it; maps in it become such maps too."""
    if isinstance(mapping, Map):
        return mapping
    return Map({k: persistent(v) if isinstance(v, Mapping) else v for k, v in mapping.items()})


def _with(names: Names, name: str, belongs: bool) -> Names:
    if belongs:
        return names if name in names else names.set(name, None)
    return names.delete(name) if name in names else names
