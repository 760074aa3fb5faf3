"""Whether a node's name is in a set such as `gpu-h100-[1-64,70],login*`. Pure.

The notation of Slurm and ClusterShell, and shell patterns. Numbers are compared; no list is expanded.
"""

import re
from fnmatch import fnmatchcase

_BRACKET = re.compile(r"\[([^\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def matches(nodes: str, name: str) -> bool:
    """`[01-12]` matches numbers of two digits, `[1-12]` those without leading zeros. Raises ValueError."""
    return any(_one(part, name) for part in split(nodes))


def split(nodes: str) -> list[str]:
    """The parts between commas outside brackets. Raises ValueError."""
    parts, depth = [""], 0
    for c in nodes:
        depth += (c == "[") - (c == "]")
        if depth not in (0, 1):
            break
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    found = [part.strip() for part in parts]
    if depth or not all(found):
        raise ValueError(f"expected node names such as 'gpu-[1-64,70],login*', got {nodes!r}")
    return found


def _one(part: str, name: str) -> bool:
    brackets = [_ranges(text) for text in _BRACKET.findall(part)]
    if not brackets:
        return fnmatchcase(name, part)
    words = _BRACKET.split(part)[::2]
    numbers = r"(\d+)".join(".*".join(map(re.escape, word.split("*"))).replace(r"\?", ".") for word in words)
    found = re.fullmatch(numbers, name)
    return found is not None and all(_within(n, ranges) for n, ranges in zip(found.groups(), brackets, strict=True))


def _ranges(text: str) -> list[tuple[int, int, int]]:
    """(first, last, width) of each range; width 0 means no leading zeros."""
    found = []
    for one in text.split(","):
        match = _RANGE.fullmatch(one.strip())
        if match is None:
            raise ValueError(f"expected numbers and ranges in brackets, got [{text}]")
        first, last = match[1], match[2] or match[1]
        if int(first) > int(last):
            raise ValueError(f"expected the smaller number first, got [{text}]")
        found.append((int(first), int(last), len(first) if first.startswith("0") and len(first) > 1 else 0))
    return found


def _within(digits: str, ranges: list[tuple[int, int, int]]) -> bool:
    return any(
        first <= int(digits) <= last and (len(digits) == width if width else digits == str(int(digits)))
        for first, last, width in ranges
    )
