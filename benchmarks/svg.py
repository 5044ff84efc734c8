"""Draw bars in blocks, and curves over two logarithmic axes, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 760
INK, PALE, PAPER = "#222", "#ddd", "#fff"
COLOURS = ("#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#a16207", "#0e7490", "#be123c", "#475569")


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; `text` follows it, `colour` is an index of `COLOURS`."""

    label: str
    value: float
    text: str
    colour: int


def bars(title: str, blocks: Iterable[tuple[str, Sequence[Bar]]]) -> str:
    """Draw blocks of bars, each with its own scale from 0 to its longest bar."""
    left, right, height = 250, 190, 18
    y = 56
    body: list[str] = []
    for heading, block in blocks:
        body.append(text(16, y, heading, weight="bold"))
        y += 8
        longest = max((bar.value for bar in block), default=0.0) or 1.0
        for bar in block:
            width = (WIDTH - left - right) * bar.value / longest
            body.append(text(left - 8, y + 13, bar.label, anchor="end"))
            body.append(
                f'<rect x="{left}" y="{y + 2}" width="{max(width, 1):.1f}" height="{height - 4}"'
                f' fill="{COLOURS[bar.colour % len(COLOURS)]}"/>'
            )
            body.append(text(left + max(width, 1) + 6, y + 13, bar.text))
            y += height
        y += 30
    return document(y, title, body)


Curve = Sequence[tuple[float, float]]


def curves(title: str, panels: Iterable[tuple[str, str, Mapping[str, Curve]]]) -> str:
    """Draw panels: a heading, the name of the horizontal axis, and curves of positive values."""
    y = 44
    body: list[str] = []
    for heading, axis, named in panels:
        height = 250
        body += panel(heading, axis, named, y, height)
        y += height + 60
    return document(y, title, body)


def panel(
    heading: str, axis: str, named: Mapping[str, Curve], top: int, height: int
) -> Iterator[str]:
    left, right = 80, 250
    points = [point for curve in named.values() for point in curve if min(point) > 0]
    if not points:
        return
    x_from, x_to = decades(x for x, _ in points)
    y_from, y_to = decades(y for _, y in points)
    foot = top + 20 + height - 50

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x_from) / (x_to - x_from)
        up = (math.log10(y) - y_from) / (y_to - y_from)
        return left + across * (WIDTH - left - right), foot - up * (foot - top - 20)

    yield text(16, top + 8, heading, weight="bold")
    for decade in range(y_from, y_to + 1):
        _, y = at(10**x_from, 10**decade)
        yield line(left, y, WIDTH - right, y, PALE)
        yield text(left - 6, y + 4, f"{10.0**decade:g}", anchor="end")
    for decade in range(x_from, x_to + 1):
        x, _ = at(10**decade, 10**y_from)
        yield line(x, top + 20, x, foot, PALE)
        yield text(x, foot + 16, f"{10**decade:,}", anchor="middle")
    yield text((left + WIDTH - right) / 2, foot + 32, axis, anchor="middle")
    for number, (name, curve) in enumerate(named.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [at(x, y) for x, y in curve if min(x, y) > 0]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        yield from (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>' for x, y in places
        )
        key = top + 26 + 17 * number
        yield line(WIDTH - right + 14, key, WIDTH - right + 32, key, colour, 2.5)
        yield text(WIDTH - right + 38, key + 4, name)


def decades(values: Iterable[float]) -> tuple[int, int]:
    """Return the powers of ten around all values, at least one apart."""
    logarithms = [math.log10(value) for value in values]
    low, high = math.floor(min(logarithms)), math.ceil(max(logarithms))
    return low, max(high, low + 1)


def text(
    x: float, y: float, what: str, *, anchor: str = "start", weight: str = "normal", size: int = 12
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
        f' font-size="{size}" fill="{INK}">{escape(what)}</text>'
    )


def line(  # noqa: PLR0917
    x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1
) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        f' stroke-width="{width}"/>'
    )


def document(height: float, title: str, body: Iterable[str]) -> str:
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}"'
        f' width="{WIDTH}" height="{height:.0f}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="{PAPER}"/>',
        text(16, 26, title, weight="bold", size=15),
        *body,
        "</svg>",
    )
    return "\n".join(lines) + "\n"
