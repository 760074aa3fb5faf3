"""NHC's match strings (NHC's README, "Match Strings") as commands of grep(1)."""

import re
import shlex


def as_grep(match: str) -> tuple[str, str]:
    """ "! " where no line may match, else ""; and the command that succeeds where a line of its input matches.

    Raises ValueError for a form that grep has not.
    """
    negated, pattern = match.startswith("!"), match.removeprefix("!")
    if len(pattern) > 1 and pattern[0] == pattern[-1] == "/":
        options, regex = "-qE", pattern[1:-1]
    elif pattern.startswith(("{", "&", "(")):
        raise ValueError(f"a match string of the kind {pattern[:20]} needs NHC")
    else:
        options, regex = "-qxE", _glob(pattern)
    return "! " if negated else "", f"grep {options} -e {shlex.quote(regex)}"


def is_pattern(text: str) -> bool:
    """Whether a word in the place of a name is a match string rather than the name itself."""
    return bool(re.search(r"[*?\[\]{}()|^$!]", text))


def _glob(pattern: str) -> str:
    if "[" in pattern:
        raise ValueError(f"a match string with a set of characters, {pattern[:20]}, needs NHC")
    return "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
