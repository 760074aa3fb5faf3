"""Writes what is made from the code: docs/settings.md from the settings' dataclasses, docs/commands.md from the
commands' own --help, and the transcript in README.md.

A setting's explanation is the comment on its line, so that there is one place to keep true.
"""

import ast
import dataclasses
import enum
import inspect
import os
import re
import subprocess
import sys
import textwrap
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from terminal import on_a_terminal

from nodetriage.agent.reach.settings import ReachSettings
from nodetriage.agent.settings import config as agent
from nodetriage.agent.site_commands import SiteCommand
from nodetriage.checks.model.settings import as_toml
from nodetriage.checks.registry import ALL
from nodetriage.controller import config as controller
from nodetriage.controller.settings import rules

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BIN = Path(sys.executable).parent
MADE = "<!-- Made by `make docs`; edit the code instead. -->"

AGENT = """\
# Settings

{made}

Files are TOML. An unknown key, a value of the wrong type or out of its range ends the program with exit code 78 and
one line that names file, key and what was expected. On SIGHUP (`systemctl reload`) a wrong file changes nothing, and
the log says so.

## Agent

`/etc/nodetriage/agent.toml`, then `conf.d/*.toml` beside it in the order of their names; a later key wins.
`nodetriage config check` says whether they are right, `nodetriage config show` what is in force and where it is set.

One file can serve a whole fleet: a `[[hosts]]` table holds settings for some nodes, and wins over the rest of its file.

```toml
[[hosts]]
nodes = "gpu-h100-[001-064],login*"   # Slurm's notation and shell patterns, by the node's name in Slurm
profile.name = "hgx-h100"
[hosts.checks.ib_link]
every_s = 60
```
"""
CHECKS = """
### `[checks.NAME]`

Every check has `enabled`, `every_s` (between two runs; events wake it in between), `timeout_s` (before it counts as
hung), `raise_after` and `clear_after` (how many runs in a row must show a finding, or no longer show it, before that
counts). The other keys are the check's own; [checks](checks.md) says how they work together.
"""
CONTROLLER = """
## Controller

`/etc/nodetriage/controller.toml`, then `controller.d/*.toml` beside it.
"""
SITE_COMMAND = """
### `[checks.command.NAME]`

A program of the site as a check with that name ([checks](checks.md#commands-of-the-site)).

"""
REACH = """
### `[checks.reach]`

What must answer over the network ([checks](checks.md#reach)).

"""
POLICY = """
## Policy

`policy.toml`, beside `controller.toml` or where `policy.file` says: which fault costs what. Without one, the policy
that comes with the package is in force (`controller/nodetriage/controller/settings/policy.toml`).

"""
COMMANDS = """\
# Commands

{made}

Exit codes: 0 ok, 1 warning, 2 major or critical, 3 unknown (hung, broken, nothing to look at, nobody answers), 78
bad configuration or command line.
"""


def settings_page() -> str:
    """The whole of docs/settings.md."""
    parts = [AGENT.format(made=MADE), *tables(agent.Sections), CHECKS]
    for check in ALL:
        parts.append(
            f"\n### `[checks.{check.name}]`\n\n`every_s = {check.every_s:g}`, `timeout_s = {check.timeout_s:g}`\n"
        )
        parts += ["\n", table(type(check.policy))] if plain(type(check.policy)) else []
        parts += tables(type(check.policy), f"checks.{check.name}", "####")
    parts += [SITE_COMMAND, table(SiteCommand), REACH, table(ReachSettings)]
    parts += [CONTROLLER, *tables(controller.ControllerSettings), POLICY, table(rules.Policy), *tables(rules.Policy)]
    return "".join(parts)


def tables(cls: Any, prefix: str = "", level: str = "###") -> Iterator[str]:
    """A section for each field that is a table of its own."""
    for field in dataclasses.fields(cls):
        if (found := inner(cls, field)) is None:
            continue
        kind, brackets = found
        key = brackets.format(f"{prefix}.{field.name}" if prefix else field.name)
        value = default_of(field)
        yield f"\n{level} `{key}`\n\n{table(kind, value if isinstance(value, kind) else None)}"
        yield from tables(kind, f"{prefix}.{field.name}" if prefix else field.name, level)


def table(cls: Any, instance: Any = None) -> str:
    """Key, default and explanation of every plain field; `instance` has defaults of its own."""
    texts, hints = comments(cls), typing.get_type_hints(cls)
    lines = ["| key | default | |\n|---|---|---|\n"]
    for field in plain(cls):
        value = default_of(field) if instance is None else getattr(instance, field.name)
        default = (
            "must be given" if value is dataclasses.MISSING else f"`{as_toml(value)}`" if value is not None else ""
        )
        about = "; ".join(filter(None, (choices(hints[field.name]), texts.get(field.name, ""))))
        lines.append(f"| `{field.name}` | {default} | {about} |\n")
    return "".join(lines)


def plain(cls: Any) -> list[Any]:
    return [f for f in dataclasses.fields(cls) if inner(cls, f) is None]


def inner(cls: Any, field: Any) -> tuple[Any, str] | None:
    """The dataclass within a field, and how TOML writes such a table."""
    hint = typing.get_type_hints(cls)[field.name]
    arguments = typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return hint, "[{}]"
    if typing.get_origin(hint) is tuple and dataclasses.is_dataclass(arguments[0]):
        return arguments[0], "[[{}]]"
    if typing.get_origin(hint) is Mapping and dataclasses.is_dataclass(arguments[1]):
        return arguments[1], "[{}.NAME]"
    return None


def default_of(field: Any) -> Any:
    """MISSING where there is none."""
    if field.default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def choices(hint: Any) -> str:
    """The values that may be chosen, where they are few."""
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{as_toml(value)}`" for value in typing.get_args(hint))
    members = [a for a in (hint, *typing.get_args(hint)) if isinstance(a, type) and issubclass(a, enum.Enum)]
    return ", ".join(f"`{as_toml(value)}`" for value in members[0]) if members else ""


def comments(cls: Any) -> dict[str, str]:
    """The comment behind each field of a dataclass."""
    source = textwrap.dedent(inspect.getsource(cls))
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    lines = source.splitlines()
    fields = [f for f in definition.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)]
    found = {f.target.id: lines[(f.end_lineno or 1) - 1][f.end_col_offset :] for f in fields}  # type: ignore[union-attr]
    return {name: rest.partition("# ")[2].strip().replace("|", "\\|") for name, rest in found.items()}


def commands_page() -> str:
    """The whole of docs/commands.md."""
    parts = [COMMANDS.format(made=MADE)]
    for program, about in (("nodetriage", "on a node"), ("nodetriagectl", "the fleet")):
        parts.append(f"\n## `{program}`: {about}\n")
        parts += [f"\n### `{' '.join(v)}`\n\n```text\n{help_of(*v)}\n```\n" for v in verbs(program)]
    return "".join(parts)


def verbs(*command: str) -> list[tuple[str, ...]]:
    """A program's verbs, and what those have of their own, from its own help."""
    listed = help_of(*command).partition("VERB\n")[2].partition("\n\n")[0]
    names = [(*command, line.split()[0]) for line in listed.splitlines() if line[4:5].strip()]
    return [verb for name in names for verb in (verbs(*name) or [name])]


def help_of(*command: str) -> str:
    """A --help, 100 columns wide."""
    argv = [str(BIN / command[0]), *command[1:], "--help"]
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=environment).stdout.strip()


def first_page() -> str:
    """README.md with its transcript as the command prints it now."""
    shown = re.compile(r"^    \$ \.venv/bin/(nodetriage check .*)\n(?:    .*\n|\n(?=    ))*", re.MULTILINE)

    def again(match: re.Match[str]) -> str:
        argv = [str(BIN / "nodetriage"), *match[1].split()[1:]]
        printed = on_a_terminal(argv, 80, {"NO_COLOR": "1"}, ROOT).rstrip()
        lines = (f"    {line}".rstrip() for line in [f"$ .venv/bin/{match[1]}", *printed.splitlines()])
        return "\n".join(lines) + "\n"

    return shown.sub(again, (ROOT / "README.md").read_text())


if __name__ == "__main__":
    (ROOT / "README.md").write_text(first_page())
    (DOCS / "settings.md").write_text(settings_page())
    (DOCS / "commands.md").write_text(commands_page())
