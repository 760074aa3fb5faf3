"""Tables for a person at a terminal, one row a line elsewhere; no value of a node ever steers the terminal."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.service import table
from nodetriage.service.printable import printable
from nodetriage.service.table import Line, Table

LONG = "serial-" + "0123456789" * 30
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # rich's own colours


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, *parts: Table | Line | str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    table.write(out, *parts)
    return out.getvalue()


def in_pipe(*parts: Table | Line | str) -> str:
    out = io.StringIO()
    table.write(out, *parts)
    return out.getvalue()


def test_in_a_pipe_each_row_is_one_line_and_no_value_is_cut() -> None:
    text = in_pipe(Table(("node", "serial"), [("n1", LONG), ("node-2", "x")]))

    assert text.splitlines() == ["node    serial", f"n1      {LONG}", "node-2  x"]


def test_on_a_terminal_a_long_value_folds_within_the_width_and_no_value_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = STYLE.sub("", on_terminal(monkeypatch, Table(("node", "serial"), [("n1", LONG)]))).splitlines()

    assert max(map(len, lines)) <= 80
    assert "".join(line[4:].strip() for line in lines[1:]) == LONG


def test_a_severity_has_its_colour_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Table(("severity", "what"), [("critical", "x")])

    assert "\x1b[1;31mcritical" in on_terminal(monkeypatch, rows)
    assert "\x1b" not in in_pipe(rows)


def test_numbers_stand_to_the_right() -> None:
    text = in_pipe(Table(("n", "name"), [("7", "a"), ("1,234", "b")], frozenset({"n"})))

    assert text.splitlines() == ["    n  name", "    7  a", "1,234  b"]


@pytest.mark.parametrize("hostile", ["\x1b[2J", "\x1b]0;title\x07", "a\rb", "a\nb", "\x9b31m", "\u202ecod", "a\u2028b"])
def test_what_would_steer_a_terminal_is_shown_as_its_escape(monkeypatch: pytest.MonkeyPatch, hostile: str) -> None:
    parts = (Table(("a",), [(hostile,)]), Line(f"said {hostile}"), hostile)

    plain = in_pipe(*parts)
    assert len(plain.splitlines()) == 4
    seen = STYLE.sub("", on_terminal(monkeypatch, *parts))
    for text in (plain, seen):
        assert all(c.isprintable() or c == "\n" for c in text)
        assert printable(hostile) in text


def test_markup_of_the_renderer_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[red]x[/red]" in on_terminal(monkeypatch, Table(("a",), [("[red]x[/red]",)]))


@given(st.text())
def test_printable_text_is_one_line_and_stays_as_it_is(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
