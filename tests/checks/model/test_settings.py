"""Settings from TOML: strict, and every error says where, which key and what was expected."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.checks.model import Severity
from nodetriage.checks.model.settings import ConfigError, decode, load_toml, merged, replace_from


class Colour(enum.StrEnum):
    RED = "red-ish"


@dataclass(frozen=True, slots=True)
class Inner:
    count: int = 1
    rate: float = 0.5


@dataclass(frozen=True, slots=True)
class Outer:
    name: str
    on: bool = False
    severity: Severity = Severity.MAJOR
    colour: Colour = Colour.RED
    mode: Literal["a", "b"] = "a"
    inner: Inner = Inner()
    many: tuple[str, ...] = ()
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    limit: int | None = None
    where: Path = Path("/")

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise ValueError("limit must not be negative")


def test_every_kind_of_value_is_decoded() -> None:
    table = {
        "name": "n",
        "on": True,
        "severity": "critical",
        "colour": "red-ish",
        "mode": "b",
        "inner": {"count": 3, "rate": 2},
        "many": ["x", "y"],
        "by_name": {"one": {"count": 7}},
        "limit": 4,
        "where": "/tmp",
    }

    assert decode(Outer, table, "f.toml") == Outer(
        "n", True, Severity.CRITICAL, Colour.RED, "b", Inner(3, 2.0), ("x", "y"), {"one": Inner(7)}, 4, Path("/tmp")
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "f.toml: top: missing key: name"),
        ({"name": 1}, "f.toml: top.name: expected a string, got 1"),
        (
            {"name": "n", "nmae": "n"},
            "f.toml: top.nmae: unknown key; known keys: by_name, colour, inner, limit, many, ",
        ),
        ({"name": "n", "on": 1}, "f.toml: top.on: expected true or false, got 1"),
        ({"name": "n", "inner": {"count": True}}, "f.toml: top.inner.count: expected a whole number, got True"),
        ({"name": "n", "inner": {"count": 1.5}}, "f.toml: top.inner.count: expected a whole number, got 1.5"),
        ({"name": "n", "inner": {"rate": "1"}}, "f.toml: top.inner.rate: expected a number, got '1'"),
        ({"name": "n", "inner": []}, "f.toml: top.inner: expected a table, got []"),
        ({"name": "n", "many": "xy"}, "f.toml: top.many: expected a list, got 'xy'"),
        ({"name": "n", "many": ["x", 2]}, "f.toml: top.many[1]: expected a string, got 2"),
        (
            {"name": "n", "severity": "bad"},
            "f.toml: top.severity: expected one of 'info', 'warning', 'major', 'critical', got ",
        ),
        ({"name": "n", "severity": True}, "f.toml: top.severity: expected one of 'info', "),
        ({"name": "n", "mode": "c"}, "f.toml: top.mode: expected one of 'a', 'b', got 'c'"),
        ({"name": "n", "by_name": {"x": {"y": 1}}}, "f.toml: top.by_name.x.y: unknown key; known keys: count, rate"),
        ({"name": "n", "limit": "4"}, "f.toml: top.limit: expected a whole number, got '4'"),
        ({"name": "n", "limit": -1}, "f.toml: top: limit must not be negative"),
    ],
)
def test_a_wrong_table_is_refused_with_one_line_that_helps(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        decode(Outer, table, "f.toml", "top")

    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_what_a_table_leaves_out_keeps_its_default_at_every_depth() -> None:
    default = Outer("n", inner=Inner(5, 6.0), by_name={"one": Inner(7, 8.0)})

    changed = replace_from(
        Outer, default, {"inner": {"count": 1}, "by_name": {"one": {"count": 2}, "two": {}}}, "f.toml"
    )

    assert changed == Outer("n", inner=Inner(1, 6.0), by_name={"one": Inner(2, 8.0), "two": Inner()})


def test_a_change_that_the_settings_refuse_themselves_is_a_config_error_too() -> None:
    with pytest.raises(ConfigError, match=r"^f\.toml: top: limit must not be negative$"):
        replace_from(Outer, Outer("n"), {"limit": -1}, "f.toml", "top")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["name", "on", "severity", "colour", "mode", "inner", "many", "by_name", "limit", "where", "x"])


@given(st.dictionaries(keys, values))
def test_any_table_is_decoded_or_refused_as_a_config_error(table: dict[str, Any]) -> None:
    try:
        found = decode(Outer, table, "f.toml")
    except ConfigError as error:
        assert str(error).startswith("f.toml: ")  # noqa: PT017 either way is right, another error is not
    else:
        assert isinstance(found, Outer)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"x = ", "not TOML"), (b"x = 1\nx = 2", "not TOML"), (b"\xff", "not TOML"), (None, "No such file")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, data: bytes | None, message: str) -> None:
    path = tmp_path / "f.toml"
    if data is not None:
        path.write_bytes(data)

    with pytest.raises(ConfigError, match=message) as error:
        load_toml(path)
    assert str(error.value).startswith(f"{path}: ")


tables = st.dictionaries(
    st.sampled_from("ab"), st.fixed_dictionaries({}, optional={"count": st.integers(), "rate": st.floats(0, 9)})
)


@dataclass(frozen=True, slots=True)
class Roles:
    roles: Mapping[str, Inner] = field(default_factory=dict)


@given(tables, tables)
def test_two_tables_merged_give_what_they_give_one_after_the_other(
    lower: dict[str, Any], upper: dict[str, Any]
) -> None:
    first = replace_from(Roles, Roles(), {"roles": lower}, "first")

    both = replace_from(Roles, Roles(), merged({"roles": lower}, {"roles": upper}), "both")

    assert both == replace_from(Roles, first, {"roles": upper}, "second")
