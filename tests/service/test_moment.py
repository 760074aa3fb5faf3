"""--since: one grammar for every command, and a word on what was expected where it is not met."""

import argparse
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.service import moment

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("45s", timedelta(seconds=45)),
        ("30m", timedelta(minutes=30)),
        ("3h", timedelta(hours=3)),
        ("2d", timedelta(days=2)),
    ],
)
def test_a_duration_is_so_long_before_now(text: str, ago: timedelta) -> None:
    assert moment.parse(text, NOW) == NOW - ago


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31 12:00:30", datetime(2026, 1, 31, 12, 0, 30, tzinfo=UTC)),
        ("2026-01-31T12:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
    ],
)
def test_a_date_or_time_is_in_utc_unless_it_says_otherwise(text: str, at: datetime) -> None:
    assert moment.parse(text, NOW) == at
    assert moment.parse(text, NOW).utcoffset() == timedelta(0)


@pytest.mark.parametrize("text", ["yesterday", "", "3", "h", "3w", "-3h", "3.5h", "999999d", "2026-13-01", "\u0663h"])
def test_what_is_neither_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected 30m, 3h or 2d ago, or a UTC date or time: .*; got '"):
        moment.parse(text, NOW)


@given(st.text(max_size=30))
def test_no_text_gives_anything_but_a_moment_in_utc_or_a_refusal(text: str) -> None:
    try:
        at = moment.parse(text, NOW)
    except ValueError:
        return
    assert at.utcoffset() == timedelta(0)


def test_the_option_has_a_default_in_the_same_grammar() -> None:
    parser = argparse.ArgumentParser()
    moment.add_since(parser, "not older than", "7d")

    assert datetime.now(UTC) - parser.parse_args([]).since > timedelta(days=6.9)
    assert parser.parse_args(["--since", "2026-01-31"]).since == datetime(2026, 1, 31, tzinfo=UTC)
