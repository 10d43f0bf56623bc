"""Python's values in TOML's notation. The standard library reads TOML and does not write it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral, Real
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def key(name: str) -> str:
    """Returns one part of a dotted key."""
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    # JSON escapes what TOML escapes, except for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def value(given: Any) -> str:
    """Returns a value on one line.

    Raises:
        TypeError: if a scenario has no such values.
    """
    if isinstance(given, str):
        return _text(given)
    # Bools of numpy are neither bools nor numbers.
    if isinstance(given, bool) or type(given).__name__ in ("bool_", "bool"):
        return "true" if given else "false"
    if isinstance(given, Integral):
        return str(int(given))
    if isinstance(given, Real):
        return repr(float(given))
    if isinstance(given, Mapping):
        return "{ " + ", ".join(f"{key(str(name))} = {value(item)}" for name, item in given.items()) + " }"
    if isinstance(given, Iterable) and not isinstance(given, (bytes, bytearray)):
        return "[" + ", ".join(map(value, given)) + "]"
    raise TypeError(f"a scenario has no values of type {type(given).__name__}: {given!r}")


def leaves(tables: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted key and the value of each entry that is not a table."""
    for name, item in tables.items():
        dotted = f"{path}.{name}" if path else str(name)
        if isinstance(item, Mapping):
            yield from leaves(item, dotted)
        else:
            yield dotted, item


def document(tables: Mapping[str, Any]) -> str:
    """Returns the text of a file. Each item of a list has a line of its own, so that errors can name it."""
    plain = {name: item for name, item in tables.items() if not _is_tables(item) and not isinstance(item, Mapping)}
    lines = [f"{key(str(name))} = {value(item)}" for name, item in plain.items()]
    for name, item in tables.items():
        if isinstance(item, Mapping):
            lines += _table(f"[{key(str(name))}]", item)
        elif _is_tables(item):
            for entry in item:
                lines += _table(f"[[{key(str(name))}]]", entry)
    return "\n".join(lines) + "\n"


def _table(header: str, entries: Mapping[str, Any]) -> list[str]:
    return ["", header, *(f"{key(str(name))} = {value(item)}" for name, item in entries.items())]


def _is_tables(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and bool(given) and all(isinstance(item, Mapping) for item in given)
