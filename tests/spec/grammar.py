"""Reads the transcriptions of the protocol documents beside this file.

`name:type` is a field, `name[...]` an array (of fields, of one type, or of what the document does
not say), `[...]` an array without a name, `(...)` a group, `|...|` one that may be absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ("FOLDER", "Grammar", "Item", "grammars", "keys", "snake_case")

FOLDER = Path(__file__).parent

_TOKEN = re.compile(r"[\w]*\[|\]|\w*\(|\)|\||\w+(?::\w+)?")


class Item(NamedTuple):
    """One field: of a primitive `type`, or an array (`elements`, empty if not given), or a
    group."""

    name: str
    type: str | None = None
    elements: tuple[Item, ...] | None = None
    optional: bool = False


class Grammar(NamedTuple):
    """Parts of a message as a document lists them; `version` is a number or a word."""

    document: str
    message: str
    version: str
    items: tuple[Item, ...]

    def __str__(self) -> str:
        return f"{self.document}: {self.message} {self.version}"


def grammars(document: str) -> list[Grammar]:
    """The grammars of a transcription, in its order."""
    found = []
    for head, body in _lines(document):
        if head != "keys":
            message, version = head.split()
            found.append(Grammar(document, message, version, _parse(body)))
    return found


def keys(document: str) -> dict[str, int]:
    """The keys of APIs by the names that a document has for them."""
    body = dict(_lines(document))["keys"]
    return {name: int(key) for name, _, key in (pair.partition(":") for pair in body.split())}


def snake_case(name: str) -> str:
    """ReplicaId and replica_id are one name."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _lines(document: str) -> Iterator[tuple[str, str]]:
    for line in (FOLDER / f"{document}.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            head, _, body = line.partition("=")
            yield head.strip(), body.strip()


def _parse(text: str) -> tuple[Item, ...]:
    tokens = _TOKEN.findall(text)
    assert "".join(tokens) == text.replace(" ", ""), text
    items = _items(iter(tokens), None)
    return tuple(items)


def _items(tokens: Iterator[str], end: str | None) -> list[Item]:
    items: list[Item] = []
    for token in tokens:
        if token == end:
            return items
        if token.endswith("["):
            items.append(Item(snake_case(token[:-1]), elements=_elements(tokens)))
        elif token.endswith("("):
            items += _items(tokens, ")")
        elif token == "|":
            items += [item._replace(optional=True) for item in _items(tokens, "|")]
        else:
            name, _, kind = token.partition(":")
            items.append(Item(snake_case(name), kind or None))
    assert end is None, f"no {end}"
    return items


def _elements(tokens: Iterator[str]) -> tuple[Item, ...]:
    inner = _items(tokens, "]")
    if len(inner) == 1 and inner[0].type is None and inner[0].elements is None:
        return (Item("", inner[0].name),)
    return tuple(inner)
