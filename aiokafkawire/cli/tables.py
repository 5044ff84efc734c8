"""Output as aligned tables and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafkawire.cli.error_text import printable

__all__ = ("format_table", "json_line", "pluralize")

GAP = "  "


def format_table(headings: Sequence[str], rows: Iterable[Sequence[Any]], indent: str = "") -> str:
    """Format rows under headings: right-align numbers, print None as a dash."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        any(row[column].isdecimal() for row in cells)
        and all(row[column].isdecimal() or row[column] == "-" for row in cells)
        for column in range(len(headings))
    ]
    widths = [
        max(len(text) for text in (head, *(row[column] for row in cells)))
        for column, head in enumerate(headings)
    ]
    lines = []
    for row in ([*headings], *cells):
        parts = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ]
        lines.append(f"{indent}{GAP.join(parts)}".rstrip() + "\n")
    return "".join(lines)


def json_line(form: Any) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(form, ensure_ascii=False, separators=(",", ":")) + "\n"


def pluralize(number: int, what: str) -> str:
    """Return a count with its noun: 1 member, 2 members."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list | tuple):
        return printable(",".join(map(str, value))) or "-"
    return printable(str(value))
