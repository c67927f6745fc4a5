"""Writes TOML, which the standard library can only read."""

import json
from collections.abc import Mapping
from pathlib import Path

TomlValue = str | bool | int | float | Path | list[str] | list[float]
Table = Mapping[str, "TomlValue | Table"]


def to_toml(table: Table) -> str:
    """The table as a TOML document; tables in it become sections."""
    return "\n".join(_lines(table, ())) + "\n"


def _lines(table: Table, path: tuple[str, ...]) -> list[str]:
    lines = [f"[{'.'.join(map(_text, path))}]"] if path else []
    for key, value in table.items():
        if not isinstance(value, Mapping):
            lines.append(f"{_text(key)} = {_value(value)}")
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _lines(value, (*path, key))
    return lines


def _value(value: TomlValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    return _text(str(value))


def _text(text: str) -> str:
    # A JSON string is a TOML string, except for surrogate pairs, so non-ASCII characters stay unescaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
