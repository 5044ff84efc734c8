"""A curve of cost, and how fast it grows."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

SLACK = 0.1
"""Tolerance of a fitted exponent over that of n log n: measurements vary."""
LARGE = 100
"""From this size on, fixed costs no longer hide the growth."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of size and cost, by size. `of` names the size: partitions or members."""

    name: str
    of: str
    unit: str
    points: tuple[tuple[int, float], ...]

    @property
    def fitted(self) -> tuple[tuple[int, float], ...]:
        large = tuple(point for point in self.points if point[0] >= LARGE)
        return large if len(large) > 1 else self.points

    @property
    def exponent(self) -> float:
        """The fitted exponent of the size, from LARGE on."""
        return slope(self.fitted)

    @property
    def last(self) -> float:
        """The exponent between the last two sizes, where fast growth shows first."""
        return slope(self.points[-2:])

    @property
    def limit(self) -> float:
        """The exponent of n log n over the fitted sizes."""
        sizes = [size for size, _ in self.fitted]
        return slope([(size, size * math.log(size + 1)) for size in sizes])

    @property
    def bounded(self) -> bool:
        """True if it grows no faster than n log n."""
        ends = [size for size, _ in self.points[-2:]]
        last = slope([(size, size * math.log(size + 1)) for size in ends])
        return self.exponent <= self.limit + SLACK and self.last <= last + SLACK


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection within: its time depends on all live objects."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line that fits the logarithms best."""
    xs = [math.log(size) for size, _ in points]
    ys = [math.log(max(cost, 1e-9)) for _, cost in points]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - x_mean) ** 2 for x in xs)


def table(curves: Sequence[Curve]) -> list[str]:
    """Return one line per curve; curves of the same sizes must be adjacent."""
    lines: list[str] = []
    heads: tuple[object, ...] = ()
    for curve in curves:
        sizes = tuple(size for size, _ in curve.points)
        if heads != (curve.of, sizes):
            heads = (curve.of, sizes)
            lines += [""] if lines else []
            lines.append(
                f"| {curve.of}: | {' | '.join(f'{size:,}' for size in sizes)} | exponent | last |"
                " n log n |  |"
            )
            lines.append("|---" * (len(sizes) + 5) + "|")
        costs = " | ".join(f"{cost:,.3g}" for _, cost in curve.points)
        outcome = "" if curve.bounded else "GROWS FASTER"
        lines.append(
            f"| {curve.name}, {curve.unit} | {costs} | {curve.exponent:.2f} | {curve.last:.2f} |"
            f" {curve.limit:.2f} | {outcome} |"
        )
    return lines
