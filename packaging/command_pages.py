"""Writes a command's manual page and its completion for bash, both from what argparse knows of it.

python command_pages.py COMMAND ROOT
"""

import argparse
import gzip
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module, metadata
from pathlib import Path

PARSERS = {"nodetriage": "nodetriage.agent.cli.main", "nodetriagectl": "nodetriage.controller.cli.main"}
ENDING = """\
.SH EXIT STATUS
0 ok, 1 warning, 2 major or critical, 3 unknown (hung, broken, nothing could be looked at, nobody answers),
78 bad configuration or command line.
.SH FILES
.TP
.I /etc/nodetriage/{file}
settings; after it what lies in
.I /etc/nodetriage/{folder}
.TP
.I /usr/share/doc/{package}
the documentation
"""
WHERE = {
    "nodetriage": {"file": "agent.toml", "folder": "conf.d", "package": "nodetriage"},
    "nodetriagectl": {"file": "controller.toml", "folder": "controller.d", "package": "nodetriage-controller"},
}


def parser_of(command: str) -> argparse.ArgumentParser:
    module = import_module(PARSERS[command])
    parser: argparse.ArgumentParser = module._parser([]) if command == "nodetriagectl" else module._parser()
    return parser


def verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The sub-commands by name; none for a command without."""
    found = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def leaves(parser: argparse.ArgumentParser, words: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every verb that does something, with the words that lead to it: "report mttf"."""
    below = verbs(parser)
    for name, verb in below.items():
        yield from leaves(verb, f"{words} {name}".strip())
    if not below:
        yield words, parser


def roff(text: str) -> str:
    """Text that troff takes as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.splitlines())


def manual(command: str, parser: argparse.ArgumentParser) -> str:
    """man(7) source of one page with all verbs."""
    date = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC).date()
    lines = [
        f'.TH {command.upper()} 1 {date} "nodetriage {metadata.version("nodetriage")}"',
        f".SH NAME\n{command} \\- {roff((parser.description or '').rstrip('.'))}",
        f".SH SYNOPSIS\n.B {command}\n.I VERB\n[options]\n.SH VERBS",
    ]
    for words, verb in leaves(parser):
        usage = " ".join(verb.format_usage().removeprefix("usage: ").split())
        lines.append(f".SS {command} {words}\n{roff(verb.description or '')}\n.PP\n{roff(usage)}")
        lines += options(verb)
    return "\n".join([*lines, ENDING.format(**WHERE[command])])


def options(verb: argparse.ArgumentParser) -> Iterator[str]:
    formatter = verb._get_formatter()
    for action in verb._actions:
        if action.help and action.help is not argparse.SUPPRESS and action.dest != "help":
            names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            yield f".TP\n.B {roff(names)}\n{roff(formatter._expand_help(action))}"


def completion(command: str, parser: argparse.ArgumentParser) -> str:
    """bash(1), Programmable Completion: words by position, then a verb's options; files where nothing else fits."""
    cases = []
    for words, verb in leaves(parser):
        offered = [name for a in verb._actions for name in a.option_strings]
        offered += [str(choice) for a in verb._actions if not a.option_strings for choice in a.choices or ()]
        cases.append(f'        "{words} "*) words="{" ".join(offered)}" ;;')
    for words, group in groups(parser):
        cases.append(f'        "{words} "*) words="{" ".join(verbs(group))}" ;;')
    name = f"_{command}"
    return (
        f"# Completion for {command}; made from its own --help.\n{name}() {{\n"
        '    local words="" so_far="${COMP_WORDS[*]:1:COMP_CWORD-1} "\n'
        '    case "$so_far" in\n' + "\n".join(cases) + "\n    esac\n"
        '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}")\n'
        f"}}\ncomplete -o default -F {name} {command}\n"
    )


def groups(parser: argparse.ArgumentParser, words: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Commands that want a further word, the longest first."""
    for name, verb in verbs(parser).items():
        yield from groups(verb, f"{words} {name}".strip())
    if verbs(parser):
        yield words, parser


def main(command: str, root: str) -> None:
    os.environ["COLUMNS"] = "1000"  # usage in one line
    parser = parser_of(command)
    page = Path(root) / f"usr/share/man/man1/{command}.1.gz"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_bytes(gzip.compress(manual(command, parser).encode(), mtime=0))
    script = Path(root) / f"usr/share/bash-completion/completions/{command}"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(completion(command, parser))


if __name__ == "__main__":
    main(*sys.argv[1:])
