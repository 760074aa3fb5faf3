"""The verb `nhc-import`: prints settings for an nhc.conf, and says of each line what it became."""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodetriage.agent.nhc.translate import Translated

FILE_LIMIT_BYTES = 4 << 20


def add(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("file", type=Path, metavar="NHC.CONF", help="such as /etc/nhc/nhc.conf")
    verb.add_argument("--with-nhc", action="store_true", help="let NHC run, one by one, the checks that we have not")


def run(arguments: argparse.Namespace) -> int:
    """0 where all lines have a translation, 1 where some have not or only in part."""
    from nodetriage.agent.nhc.conf import lines
    from nodetriage.agent.nhc.translate import translated
    from nodetriage.checks.model.settings import ConfigError

    try:
        with arguments.file.open("rb") as file:
            text = file.read(FILE_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"{arguments.file}: expected an nhc.conf that can be read: {error.strerror}") from error
    found = [translated(line, arguments.with_nhc) for line in lines(text)]
    settings = "\n".join(as_toml(found))
    if arguments.json:
        listed = [{"line": t.line.number, "text": t.line.text, "state": t.state, "note": t.note} for t in found]
        print(json.dumps({"settings": settings, "lines": listed}, indent=2))
    else:
        print(settings)
        print(summary(found), file=sys.stderr)
    return int(any(t.state != "full" for t in found))


def summary(found: Iterable["Translated"]) -> str:
    states = [t.state for t in found]
    full, partly, none = (states.count(state) for state in ("full", "partly", "none"))
    counts = f"{full} translated, {partly} in part, {none} not"
    return f"nodetriage: {len(states)} lines: {counts}; the comments say what and why"


def as_toml(found: Iterable["Translated"]) -> Iterator[str]:
    """A settings file: what became of each line as comments, then the tables for all nodes, then [[hosts]]."""
    found = list(found)
    words = {"full": "", "partly": "IN PART: ", "none": "NOT TRANSLATED: "}
    for one in found:
        yield f"# line {one.line.number}: {one.line.text}"
        if one.note:
            yield f"#     {words[one.state]}{one.note}"
    by_nodes: dict[str, dict[str, Any]] = {}
    for one in found:
        if one.settings:
            _merge(by_nodes.setdefault(one.line.nodes, {}), one.settings)
    for nodes in sorted(by_nodes, key=bool):
        if nodes:
            yield f"\n[[hosts]]\nnodes = {json.dumps(nodes)}"
        yield from _tables(by_nodes[nodes], "hosts." if nodes else "")


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """A later line wins, except that lists grow and the least memory is what is expected of all."""
    for key, value in more.items():
        old = into.get(key)
        if isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        elif isinstance(value, list) and isinstance(old, list):
            into[key] = [*old, *(v for v in value if v not in old)]
        else:
            into[key] = value


def _tables(table: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Each table that holds values, or nothing at all, by its full name."""
    from nodetriage.checks.model.settings import as_toml

    for key, value in table.items():
        if not isinstance(value, Mapping):
            continue
        name = f"{prefix}{_key(key)}"
        plain = {k: v for k, v in value.items() if not isinstance(v, Mapping)}
        if plain or not value:
            yield f"\n[{name}]"
            yield from (f"{_key(k)} = {as_toml(v)}" for k, v in plain.items())
        yield from _tables(value, f"{name}.")


def _key(name: str) -> str:
    return name if re.fullmatch(r"\w+", name, re.ASCII) else json.dumps(name)
