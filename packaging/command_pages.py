"""Writes a command's manual page and its completion for bash and zsh, from its own parser.

    python command_pages.py COMMAND ROOT

argparse-manpage writes the page, shtab the completions (docs/decisions/0062-packages.md).
"""

import argparse
import gzip
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from nodetriage.service.version import VERSION

PARSERS = {"nodetriage": "nodetriage.agent.cli.main", "nodetriagectl": "nodetriage.controller.cli.main"}
EXIT_STATUS = """\
0 ok, 1 warning, 2 major or critical, 3 unknown (hung, broken, nothing to look at, nobody answers),
78 bad configuration or command line."""
FILES = {
    "nodetriage": ("/etc/nodetriage/agent.toml", "/etc/nodetriage/conf.d", "/usr/share/doc/nodetriage"),
    "nodetriagectl": (
        "/etc/nodetriage/controller.toml",
        "/etc/nodetriage/controller.d",
        "/usr/share/doc/nodetriage-controller",
    ),
}
ZSH = "usr/share/zsh/vendor-completions"  # where Debian's zsh looks; others look in site-functions
COMPLETE = {"DIR": shtab.DIRECTORY, "FILE": shtab.FILE, "DIR|FILE": shtab.FILE, "NAME|FILE.toml": shtab.FILE}


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser with all verbs, each argument that names a file marked so for the shells."""
    module = import_module(PARSERS[command])
    parser: argparse.ArgumentParser = module._parser([]) if command == "nodetriagectl" else module._parser()
    for verb in every(parser):
        for action in verb._actions:
            if isinstance(action.metavar, str) and action.metavar in COMPLETE:
                action.complete = COMPLETE[action.metavar]  # type: ignore[attr-defined] # shtab's own interface
    return parser


def every(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from every(verb)


def manual(command: str, parser: argparse.ArgumentParser) -> str:
    """man(7) source of one page with all verbs."""
    page = Manpage(parser, format="single-commands-section")
    page.source, page.manual = f"nodetriage {VERSION}", "nodetriage"
    page.description = (parser.description or "").rstrip(".")
    settings, folder, documentation = FILES[command]
    page.add_section("exit status", "=", EXIT_STATUS)
    page.add_section(
        "files",
        "=",
        f".TP\n.I {settings}\n.TQ\n.I {folder}/*.toml\nsettings\n.TP\n.I {documentation}\nthe documentation",
    )
    return str(page)


def main(command: str, root: str) -> None:
    os.environ["COLUMNS"] = "80"
    parser = parser_of(command)
    files = {
        f"usr/share/man/man1/{command}.1.gz": gzip.compress(manual(command, parser).encode(), mtime=0),
        f"usr/share/bash-completion/completions/{command}": shtab.complete(parser, "bash").encode(),
        f"{ZSH}/_{command}": shtab.complete(parser, "zsh").encode(),
    }
    for name, content in files.items():
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    link = Path(root) / f"usr/share/zsh/site-functions/_{command}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"/{ZSH}/_{command}")


if __name__ == "__main__":
    main(*sys.argv[1:])
