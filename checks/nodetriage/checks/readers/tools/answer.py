"""JSON that a program prints, read with care: what is not of the expected form is absent, and never a default."""

import json
import math
import re
from typing import Any

_NUMBER = re.compile(r"\s{0,9}(-?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,4})?)")


def json_object(text: str, program: str) -> dict[str, Any]:
    """Raises ValueError where the text is no JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{program}: expected a JSON object, got {text[:80]!r}")
    return found


def table(within: Any, *keys: str) -> dict[str, Any]:
    """The table below the keys; empty where there is none."""
    for key in keys:
        within = within.get(key) if isinstance(within, dict) else None
    return within if isinstance(within, dict) else {}


def rows(within: Any, key: str) -> list[dict[str, Any]]:
    """The tables of a list; empty where there is none."""
    found = within.get(key) if isinstance(within, dict) else None
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def word(within: Any, key: str) -> str:
    """A text or number as text, at most 80 characters; "" where there is none."""
    found = within.get(key) if isinstance(within, dict) else None
    if isinstance(found, int) and not isinstance(found, bool) and abs(found) < 10**30:
        return str(found)
    return found.strip()[:80] if isinstance(found, str) else ""


def number(text: str) -> float | None:
    """The number with which the text begins; None where it begins with none."""
    found = _NUMBER.match(text)
    value = float(found[1]) if found else math.nan
    return value if math.isfinite(value) else None
