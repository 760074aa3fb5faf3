"""Frozen dataclasses from TOML tables, strictly: each error names the file, the key and what was expected."""

import dataclasses
import enum
import json
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_WORDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


class ConfigError(Exception):
    """A setting is wrong. The text is one line: the file, the key and what was expected."""


def load_toml(path: Path) -> dict[str, Any]:
    """Raises ConfigError naming the file (and line, where TOML itself is at fault)."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def decode(cls: type[T], table: Mapping[str, Any], where: str, key: str = "") -> T:
    """`table` as a `cls`. `where` is the file, `key` the path of the table in it. Raises ConfigError."""
    return replace_from(cls, None, table, where, key)


def replace_from(cls: type[T], default: T | None, table: Any, where: str, key: str = "") -> T:
    """Like decode, but keys that the table lacks keep the values of `default`."""
    if not isinstance(table, Mapping):
        raise _wrong(where, key, "a table", table)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    values = {}
    for name, value in table.items():
        path = f"{key}.{name}" if key else name
        if name not in fields:
            raise ConfigError(f"{where}: {path}: unknown key; known keys: {', '.join(sorted(fields))}")
        old = getattr(default, name, None) if default is not None else _default(fields[name])
        values[name] = _value(hints[name], old, value, where, path)
    missing = [n for n, f in fields.items() if n not in values and not _has_default(f)]
    if missing and default is None:
        raise ConfigError(f"{where}: {key or 'the file'}: missing key: {', '.join(missing)}")
    try:
        return cls(**values) if default is None else dataclasses.replace(default, **values)  # type: ignore[type-var]
    except ValueError as error:
        raise ConfigError(": ".join(filter(None, (where, key, str(error))))) from error


def _value(hint: Any, old: Any, value: Any, where: str, key: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _union(args, old, value, where, key)
    if origin is typing.Literal:
        if value not in args:
            raise _wrong(where, key, f"one of {', '.join(map(repr, args))}", value)
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(where, key, "a list", value)
        return tuple(_value(args[0], None, v, where, f"{key}[{i}]") for i, v in enumerate(value))
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise _wrong(where, key, "a table", value)
        olds = old or {}
        return {
            **olds,
            **{k: _value(args[1], olds.get(k), v, where, f"{key}.{k}") for k, v in value.items()},
        }
    if dataclasses.is_dataclass(hint):
        return replace_from(typing.cast("type[Any]", hint), old, value, where, key)
    return _plain(hint, value, where, key)


def _union(args: tuple[Any, ...], old: Any, value: Any, where: str, key: str) -> Any:
    errors = []
    for option in (a for a in args if a is not types.NoneType):
        try:
            return _value(option, old, value, where, key)
        except ConfigError as error:
            errors.append(error)
    raise errors[0]


def _plain(hint: Any, value: Any, where: str, key: str) -> Any:
    if hint is Any:
        return value
    if hint is Path and isinstance(value, str):
        return Path(value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        for member in hint:
            if value in (member.name.lower(), member.value) and not isinstance(value, bool):
                return member
        raise _wrong(where, key, f"one of {', '.join(repr(m.name.lower()) for m in hint)}", value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is hint:
        return value
    raise _wrong(where, key, _WORDS.get(hint, str(getattr(hint, "__name__", hint))), value)


def _wrong(where: str, key: str, expected: str, value: Any) -> ConfigError:
    return ConfigError(f"{where}: {key or 'the file'}: expected {expected}, got {value!r}")


def _has_default(field: "dataclasses.Field[Any]") -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """`lower` with the values of `upper` over it, table by table; any other value, a list too, replaces the old one."""
    found = dict(lower)
    for name, value in upper.items():
        old = found.get(name)
        found[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return found


def leaf_keys(table: Mapping[str, Any], key: str = "") -> Iterator[str]:
    """The paths of all values in a table, as `checks.ib_link.every_s`; a list is one value."""
    for name, value in table.items():
        path = f"{key}.{name}" if key else name
        if isinstance(value, Mapping):
            yield from leaf_keys(value, path)
        else:
            yield path


def leaves(instance: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of each field, down to what is no table; without fields that are None."""
    if dataclasses.is_dataclass(instance):
        fields: Iterable[tuple[str, Any]] = ((f.name, getattr(instance, f.name)) for f in dataclasses.fields(instance))
    elif isinstance(instance, Mapping):
        fields = instance.items()
    else:
        if instance is not None:
            yield key, instance
        return
    for name, value in fields:
        yield from leaves(value, f"{key}.{name}" if key else str(name))


def as_toml(value: Any) -> str:
    """A value as it stands in a settings file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, enum.Enum):
        return f'"{value.name.lower() if isinstance(value, enum.IntEnum) else value.value}"'
    if isinstance(value, int | float):
        return str(value) if isinstance(value, int) else f"{value:g}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {as_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return json.dumps(str(value), ensure_ascii=False)


def shown(values: Iterable[tuple[str, Any]], source: Callable[[str], str]) -> Iterator[str]:
    """`key = value  # where it is set`, one on each line; a default has no comment."""
    for key, value in values:
        where = source(key)
        yield f"{key} = {as_toml(value)}{f'  # {where}' if where else ''}"
