"""The verb `config`: checks the controller's files, and shows the settings in force."""

import argparse
from pathlib import Path
from typing import Any

from nodetriage.controller.cli.options import add_json, print_result


def add(verbs: Any) -> None:
    text = "check the controller's settings, or show those in force"
    verb = verbs.add_parser("config", help=text, description=text)
    inner = verb.add_subparsers(required=True, metavar="VERB", parser_class=type(verb))
    for name, text, run in (
        ("check", "check settings, policy and topology; the error names file, key and what was expected", _check),
        ("show", "show the settings in force, and the file that sets each", _show),
    ):
        added = inner.add_parser(name, help=text, description=text)
        added.add_argument("--config", type=Path, metavar="FILE", help="settings (/etc/nodetriage/controller.toml)")
        added.set_defaults(verb=run)
        add_json(added)
        if name == "show":
            added.add_argument("--changed", action="store_true", help="only settings that differ from their default")


def _check(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.config import DEFAULT_CONFIG, files, load

    path = arguments.config or DEFAULT_CONFIG
    settings = load(path)
    settings.load_policy()
    settings.load_topology()
    _ = settings.expected_nodes
    read = [*map(str, files(path)), *map(str, filter(None, (settings.policy.file, settings.controller.topology)))]
    print_result(arguments, {"ok": True, "files": read}, f"{', '.join(read)}: ok")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from nodetriage.checks.model.settings import as_toml, leaf_keys, leaves, load_toml, shown
    from nodetriage.controller.config import DEFAULT_CONFIG, files, load
    from nodetriage.controller.store.database import without_password

    path = arguments.config or DEFAULT_CONFIG
    settings = load(path)
    sources = {key: str(file) for file in files(path) for key in leaf_keys(load_toml(file))}
    policy = settings.policy.file
    sources |= {f"policy.{key}": str(policy) for key in leaf_keys(load_toml(policy))} if policy else {}
    lines = [(key, value) for key, value in leaves(settings) if not key.startswith("policy.")]
    lines = [
        (key, without_password(value) if key == "controller.database" and value else value) for key, value in lines
    ]
    lines += leaves(settings.load_policy(), "policy")
    lines = [(key, value) for key, value in lines if key in sources or not arguments.changed]
    found = [{"key": k, "value": as_toml(v), "source": sources.get(k, "default")} for k, v in lines]
    print_result(arguments, found, *shown(lines, lambda key: sources.get(key, "")))
    return 0
