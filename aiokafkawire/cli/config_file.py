"""Files of client options: Java properties, and TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aiokafkawire.errors import InvalidOption

__all__ = ("FileOption", "read_file_options")

MAX_FILE_CHARACTERS = 2**20
"""Maximum number of characters of a config file."""

_NAME = re.compile(r"[\w.-]{1,60}", re.ASCII)
"""Form of an option's name. Anything else is perhaps a line of a key, which is not shown."""

_PROPERTY = re.compile(r"(?P<name>(?:[^\\=:]|\\.)*?)\s*[=:]\s*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|(?P<character>.?))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


class FileOption(NamedTuple):
    """An option of a file. `place` says where: `line 3`, or a key of TOML."""

    place: str
    name: str
    value: str


def read_file_options(path: Path) -> list[FileOption]:
    """Read a file: TOML if its name ends with `.toml`, otherwise Java properties.

    Raises:
        InvalidOption: The file cannot be read, or is not of its form. The text has no values.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(MAX_FILE_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        # The error itself has the bytes of the file.
        raise InvalidOption(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise InvalidOption(f"{path} cannot be read: {error.strerror}") from None
    if len(text) > MAX_FILE_CHARACTERS:
        raise InvalidOption(f"{path} has more than {MAX_FILE_CHARACTERS} characters")
    if path.suffix.lower() == ".toml":
        return _read_toml(path, text)
    return list(_read_properties(path, text))


def _read_properties(path: Path, text: str) -> Iterator[FileOption]:
    for number, line in _logical_lines(text):
        place = f"line {number}"
        found = _PROPERTY.fullmatch(line)
        if found is None or not _NAME.fullmatch(_unescape(found["name"], path, place)):
            raise InvalidOption(f"{path}, {place} is not of the form option=value")
        yield FileOption(place, found["name"], _unescape(found["value"], path, place))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return each line with its number; a backslash at the end continues a line."""
    joined, first = "", 0
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        if not joined and (not line or line.startswith(("#", "!"))):
            continue
        first = first if joined else number
        backslashes = len(line) - len(line.rstrip("\\"))
        joined += line
        if backslashes % 2:
            joined = joined[:-1]
            continue
        yield first, joined
        joined = ""
    if joined:
        yield first, joined


def _unescape(text: str, path: Path, place: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match["code"]:
            return chr(int(match["code"], 16))
        if match["character"] == "u":
            raise InvalidOption(f"{path}, {place}: \\u must be followed by four hexadecimal digits")
        return _ESCAPES.get(match["character"], match["character"])

    return _ESCAPE.sub(replace, text)


def _read_toml(path: Path, text: str) -> list[FileOption]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidOption(f"{path} is not TOML: {error}") from None
    return [FileOption(name, name, value) for name, value in _flatten(path, tables, "")]


def _flatten(path: Path, table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Return the values with the names that dots make of nested tables."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flatten(path, value, f"{name}.")
        elif isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, str | int):
            yield name, str(value)
        elif isinstance(value, list) and all(isinstance(part, str) for part in value):
            yield name, ",".join(value)
        else:
            raise InvalidOption(
                f"{path}, {name} must be a string, a whole number, a boolean or a list of strings,"
                f" not {type(value).__name__}"
            )
