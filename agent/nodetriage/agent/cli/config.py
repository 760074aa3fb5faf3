"""The verb `config`: checks the files as a start of the agent does, and shows what is in force on this node."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodetriage.agent.settings.config import AgentSettings


def add(verb: argparse.ArgumentParser, default: Path, parser_class: Any) -> None:
    """`config check` and `config show`."""
    verbs = verb.add_subparsers(required=True, metavar="VERB", parser_class=parser_class)
    for name, text, run in (
        ("check", "check the settings, for every node that they name, as a start does", _check),
        ("show", "say what is in force, and where it is set", _show),
    ):
        added = verbs.add_parser(name, help=text, description=text)
        added.add_argument("--config", type=Path, default=default, metavar="FILE", help=f"settings ({default})")
        added.add_argument("--node", default="", metavar="NAME", help="as on this node")
        added.set_defaults(verb=run)
        json_help = "one JSON object" if name == "check" else "a JSON list of key, value and source"
        added.add_argument("--json", action="store_true", help=json_help)
        if name == "show":
            added.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="as on a recorded machine")
            added.add_argument("--changed", action="store_true", help="only what is not a check's or our default")


def _check(arguments: argparse.Namespace) -> int:
    from nodetriage.agent.delivery.identity import identify_by
    from nodetriage.agent.machine.host import Host
    from nodetriage.agent.settings.config import node_name
    from nodetriage.agent.settings.expected import with_profile

    settings = with_profile(_load(arguments), Host("/"))
    if arguments.node in ("", node_name("")):  # another node's keys are on that node
        identify_by(settings)
    files = list(map(str, settings.files))
    print(json.dumps({"ok": True, "files": files}, indent=2) if arguments.json else f"{', '.join(files)}: ok")
    return 0


def _load(arguments: argparse.Namespace) -> "AgentSettings":
    from nodetriage.agent.installed_checks import CHECKS
    from nodetriage.agent.settings.config import load

    return load(arguments.config, CHECKS, arguments.node)


def _show(arguments: argparse.Namespace) -> int:
    from nodetriage.agent.machine.host import Host
    from nodetriage.agent.settings.expected import with_profile
    from nodetriage.checks.model.settings import as_toml, shown

    settings = with_profile(_load(arguments), Host(arguments.root))
    lines = [(k, v, w) for k, v in values(settings) if (w := source(settings, k)) or not arguments.changed]
    if arguments.json:
        print(json.dumps([{"key": k, "value": as_toml(v), "source": w or "default"} for k, v, w in lines], indent=2))
        return 0
    wheres = {key: where for key, _, where in lines}
    for line in shown(((k, v) for k, v, _ in lines), wheres.__getitem__):
        print(line)
    return 0


def values(settings: "AgentSettings") -> Iterator[tuple[str, Any]]:
    """All that is in force, by key: the sections, then each check's schedule and policy."""
    from dataclasses import fields

    from nodetriage.agent.settings.config import COMMON_KEYS, Sections
    from nodetriage.checks.model.settings import leaves

    for section in fields(Sections):
        yield from leaves(getattr(settings, section.name), section.name)
    yield from leaves(settings.commands, "checks.command")
    yield from leaves(settings.reach, "checks.reach")
    for name, one in settings.checks.items():
        if name in (*settings.commands, "reach"):
            continue
        yield f"checks.{name}.enabled", one.enabled
        yield from ((f"checks.{name}.{key}", getattr(one.check, key)) for key in COMMON_KEYS if key != "enabled")
        yield from leaves(one.check.policy, f"checks.{name}")


def source(settings: "AgentSettings", key: str) -> str:
    """Where a key is set: file and table, or the profile; "" for a default."""
    from nodetriage.checks.model.settings import leaf_keys
    from nodetriage.checks.profiles.catalogue import profiles

    if where := settings.sources.get(key):
        return where
    if key == "profile.name":
        return "chosen by what the machine is"
    profile = profiles().get(settings.profile.name)
    of_profile = set(leaf_keys({"checks": profile.checks})) if profile else set()
    return f"profile {settings.profile.name}" if key in of_profile else ""
