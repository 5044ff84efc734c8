"""Text tables for people."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[object]], indent: str = "  ") -> list[str]:
    """Return lines with columns of equal width, numbers aligned to the right."""
    cells = [[_shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    right = [
        all(isinstance(row[number], int | float) for row in rows) and bool(rows)
        for number in range(len(head))
    ]

    def line(texts: Sequence[str]) -> str:
        placed = [
            text.rjust(width) if at_right else text.ljust(width)
            for text, width, at_right in zip(texts, widths, right, strict=True)
        ]
        return (indent + "  ".join(placed)).rstrip()

    return [line(list(head)), line(["-" * width for width in widths]), *map(line, cells)]


def _shown(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
