"""The one place where an expression for kernel lines becomes a rule: it matches from the record's start, or is refused.

A user can make the kernel quote text: process names, mount options, paths, interface names, USB strings. Most of these
stand behind the driver's own words; a process name (15 characters, TASK_COMM_LEN) and an interface name (15, IFNAMSIZ)
may stand at the very start. So a rule begins at the start and asks there for more of the driver's own text than such a
name can hold, and for nothing free before it.
"""

import functools
import re
from collections.abc import Iterable
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

NAME_CHARS = 15  # the longest name at the start of a record that a user can choose
OWN_CHARS = (
    18  # what a rule asks for before any free text: more than the name, so that the quoting line would have to agree
)
# What nf_log_syslog prints behind a prefix that whoever may write firewall rules chose (up to 127 characters). It is
# longer than a process name, so that nobody hides a true line by his process's name in it.
_NETFILTER = re.compile(
    r"IN=\S* OUT=\S* (?:MAC=\S* ?)?(?:SRC=\S+ DST=\S+ LEN=|ARP HTYPE=\d+ PTYPE=|MACSRC=\S+ MACDST=)"
)
_ANY_TEXT = {op.ANY, op.ANY_ALL, op.NOT_LITERAL, op.NEGATE}


class ForgeablePattern(ValueError):
    """An expression that text chosen by a user could satisfy."""


class KernelPattern:
    """An expression that was found safe. `match` looks at a record from its first character, only at its first line.

    `whole_record`: it looks at all lines, for a driver whose own format has newlines in it.
    """

    def __init__(self, expression: str, whole_record: bool = False) -> None:
        self.expression = expression
        self._whole_record = whole_record
        self._regex = re.compile(expression)

    def match(self, text: str) -> "re.Match[str] | None":
        """What the driver's line says; None for every other record, and for one that a firewall rule's prefix makes."""
        found = self._regex.match(text if self._whole_record else first_line(text))
        return None if found is None or _NETFILTER.search(text) else found


@functools.cache
def kernel_pattern(expression: str, whole_record: bool = False) -> KernelPattern:
    """The rule of that expression. Raises ForgeablePattern where a user could make the kernel print what it matches.

    Each alternative has to ask for OWN_CHARS characters before its first free part (`.`, `\\S`, a negated class, a
    repeated class with a blank in it). A free part of at most NAME_CHARS characters, as a process name, may stand
    among them. NAME_CHARS are enough for an expression without a free part that ends with `$`: behind a user's name the
    kernel always prints more.
    """
    parsed = _parser.parse(expression).data
    own, ends = _own_chars(parsed)
    is_whole_line = not ends and bool(parsed) and parsed[-1] == (op.AT, op.AT_END)
    if own < (NAME_CHARS if is_whole_line else OWN_CHARS):
        raise ForgeablePattern(
            f"kernel pattern {expression!r}: expected at least {OWN_CHARS} characters of the driver's own text "
            f"from the start, before anything free; got {own}. Begin it with the driver's prefix, as 'NVRM: Xid (PCI:'."
        )
    return KernelPattern(expression, whole_record)


def any_of(expressions: Iterable[str]) -> str:
    """One expression for all of these."""
    return "|".join(f"(?:{expression})" for expression in expressions)


def first_line(text: str) -> str:
    """What stands before the first newline: a process name may hold one, and the rest is then the user's."""
    return text.partition("\n")[0]


def _own_chars(parsed: Iterable[tuple[Any, Any]]) -> tuple[int, bool]:
    """The least number of characters before anything free, and whether something free ends the count."""
    total = 0
    for kind, argument in parsed:
        width, ends = _item_chars(kind, argument)
        total += width
        if ends:
            return total, True
    return total, False


def _item_chars(kind: Any, argument: Any) -> tuple[int, bool]:
    if kind is op.LITERAL:
        return 1, False
    if kind in _ANY_TEXT:
        return 0, True
    if kind is op.IN:
        return (0, True) if any(_is_free(*member) for member in argument) else (1, False)
    if kind is op.SUBPATTERN:
        return _own_chars(argument[3])
    if kind is op.BRANCH:
        counted = [_own_chars(branch) for branch in argument[1]]
        return min(width for width, _ in counted), any(ends for _, ends in counted)
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        least, most, repeated = argument
        width, ends = _own_chars(repeated)
        ends = ends or (repeated[0][0] is op.IN and _takes_blanks(repeated[0][1]))
        return (0, most > NAME_CHARS) if ends else (least * width, False)
    return 0, False  # an assertion or an anchor


def _takes_blanks(members: Iterable[tuple[Any, Any]]) -> bool:
    """Whether the class, repeated, takes in several words: text as free as any."""
    members = tuple(members)
    return len(members) > 1 and any(
        member in ((op.LITERAL, ord(" ")), (op.CATEGORY, op.CATEGORY_SPACE)) for member in members
    )


def _is_free(kind: Any, argument: Any) -> bool:
    negated = (op.CATEGORY_NOT_SPACE, op.CATEGORY_NOT_WORD, op.CATEGORY_NOT_DIGIT)
    return kind is op.NEGATE or (kind is op.CATEGORY and argument in negated)
