"""The lines of an nhc.conf: for which hosts each is, and what it checks (NHC's README, "Configuration File")."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

MOST_LINES = 20_000
LINE_LIMIT = 4096  # characters
_SETTING = re.compile(r"(?:export\s+)?[A-Za-z_]\w*=")
_SHELL = re.compile(r"[$`;|&<>(){}]")  # outside quotes these make the check a piece of shell code
_LITERAL = re.compile(r"[\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Line:
    """One line with something on it. `nodes` is the node set, "" for all; `why` says why the line cannot be used."""

    number: int
    text: str
    nodes: str = ""
    check: str = ""  # as it stands behind ||
    words: tuple[str, ...] = ()  # of the check; empty for a setting and for shell code
    is_setting: bool = False
    why: str = ""


def lines(text: str) -> Iterator[Line]:
    """Without comments and empty lines. What cannot be understood has a `why`."""
    for number, raw in enumerate(text.splitlines()[:MOST_LINES], 1):
        line = raw.expandtabs(1).strip()
        if line and not line.startswith("#"):
            yield _line(number, line)


def _line(number: int, text: str) -> Line:
    target, bars, check = text.partition("||")
    check = check.strip()
    if len(text) > LINE_LIMIT or not text.isprintable():
        return Line(number, ascii(text[:LINE_LIMIT])[1:-1], why="too long, or not printable")
    if not bars or not check:
        return Line(number, text, why="no check behind ||: NHC takes no such line either")
    if _SETTING.match(check):
        return Line(number, text, check=check, is_setting=True)
    try:
        nodes = node_set(target.strip())
    except ValueError as error:
        return Line(number, text, check=check, why=str(error))
    return Line(number, text, nodes, check, words(check))


def words(check: str) -> tuple[str, ...]:
    """The words of a plain command; empty for shell code, which only a shell can run."""
    unquoted = re.sub(r"'[^']*'|\\.", "", check)  # in double quotes a shell still expands
    unquoted = re.sub(r'"[^"$`]*"', "", unquoted)
    code, _, _ = unquoted.partition(" #")
    if _SHELL.search(code):
        return ()
    try:
        return tuple(shlex.split(check, comments=True))
    except ValueError:
        return ()


def node_set(target: str) -> str:
    """NHC's target as the node set of a [[hosts]] table; "" for every host. Raises ValueError."""
    if target == "*":
        return ""
    if target.startswith("!"):
        raise ValueError("a table [[hosts]] cannot mean all nodes but these")
    if len(target) > 2 and target[0] == target[-1] == "/":
        return ",".join(_patterns(target[1:-1]))
    if len(target) > 2 and target[0] == "{" and target[-1] == "}":
        target = target[1:-1]
    if not re.fullmatch(r"[\w.*?,-]+(?:\[[\d,-]+\][\w.*?,-]*)*", target, re.ASCII):
        raise ValueError(f"the host pattern {target[:60]} has no form as a node set")
    return target


def _patterns(regex: str) -> list[str]:
    """A regular expression of names, groups of names and `.*` as shell patterns. Raises ValueError."""
    begins, ends = regex.startswith("^"), regex.endswith("$") and not regex.endswith("\\$")
    body = regex[begins : len(regex) - ends]
    found = ["" if begins else "*"]
    for piece in re.findall(r"\((?:\?:)?([^()]*)\)|(\.\*)|(\[0-9\]|\\d)|([^().\[\\]+|\\[.-]|.)", body):
        group, anything, digit, literal = piece
        options = group.split("|") if group else ["*" if anything else "?" if digit else literal.removeprefix("\\")]
        if not all(_LITERAL.fullmatch(o) or o in ("*", "?") for o in options):
            raise ValueError(f"the regular expression /{regex[:60]}/ has no form as a node set")
        found = [before + option for before in found for option in options]
        if len(found) > 64:
            raise ValueError(f"the regular expression /{regex[:60]}/ means too many names")
    return [(pattern if ends else f"{pattern}*").replace("**", "*") for pattern in found]
