"""The arguments of NHC's checks, as bash's getopts reads them, and its sizes."""

import re
from collections.abc import Sequence

_SIZE = re.compile(r"(\d{1,15})(?:\.\d+)?\s*([kmgtp]?)i?b?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 1, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}  # without a unit NHC takes kilobytes


class Untranslatable(Exception):
    """The text says why, in half a sentence."""


def options(arguments: Sequence[str], flags: str, with_value: str) -> tuple[dict[str, list[str]], list[str]]:
    """The options by letter, and the other arguments. Raises Untranslatable for an option that nobody here knows."""
    found: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        letters = rest.pop(0)[1:]
        if letters == "-":
            break
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in with_value:
                if not letters and not rest:
                    raise Untranslatable(f"-{letter} has no value")
                found.setdefault(letter, []).append(letters or rest.pop(0))
                letters = ""
            elif letter in flags:
                found.setdefault(letter, [])
            else:
                raise Untranslatable(f"-{letter} has no meaning here")
    return found, rest


def gib(size: str) -> float:
    """A size as NHC writes it, as 32gb. Raises Untranslatable."""
    found = _SIZE.fullmatch(size)
    if found is None:
        raise Untranslatable(f"{size[:20]} is no size")
    return float(int(found[1]) * 1024 ** _POWERS[found[2].lower()]) / (1 << 30)


def seconds(found: dict[str, list[str]]) -> float:
    """-t of NHC's checks of commands. Raises Untranslatable."""
    text = found.get("t", ["10"])[-1]
    if not text.isdecimal() or not 1 <= int(text) <= 600:
        raise Untranslatable(f"a time limit of {text[:20]} s")
    return float(text)
