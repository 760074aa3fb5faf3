"""A moment as all commands take it: so long ago, or a date or time in UTC."""

import argparse
import re
from datetime import UTC, datetime, timedelta

TEXT = "30m, 3h or 2d ago, or a UTC date or time: 2026-01-31, 2026-01-31T12:00"

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse(text: str, now: datetime) -> datetime:
    """The moment in UTC: a duration before `now`, or ISO 8601, in UTC unless it names an offset. Raises ValueError."""
    try:
        if match := re.fullmatch(r"([0-9]{1,6})([smhd])", text):
            return now - timedelta(**{_UNITS[match[2]]: int(match[1])})
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"expected {TEXT}; got {text!r}") from None


def add_since(verb: argparse._ActionsContainer, text: str, default: str | None = None) -> None:
    """The option --since, a datetime in UTC. `text` says what it selects."""
    shown = f"{text} {TEXT}" + (f" (default: {default})" if default else "")
    verb.add_argument("--since", type=argument, default=default, metavar="WHEN", help=shown)


def argument(text: str) -> datetime:
    """The `type` of an argparse option."""
    try:
        return parse(text, datetime.now(UTC))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
