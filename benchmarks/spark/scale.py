"""Measure how the cost of reading grows, and the cost of an idle stream.

    python -m benchmarks.spark.scale                 # all
    python -m benchmarks.spark.scale --only idle

rows         1, 4 and 16 million rows of 4 partitions, batch read to noop
partitions   4, 64 and 512 partitions, a task each, of 4 million rows
idle         a stream of a topic without new records, on an embedded broker that counts requests,
             and Spark without any stream

The result is the CPU of all processes of the driver. It must grow no faster than n log n.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import svg
from benchmarks.rows import OURS
from benchmarks.scaling.curve import Curve, slope, table
from benchmarks.spark.bench import SparkBench, drivers, running
from benchmarks.spark.rows import THEIRS
from tests.broker.threaded_broker import threaded_broker

DEFAULT_JSON = Path("build/bench/spark-scale.json")
PARTS = ("rows", "partitions", "idle")
MILLION = 1_000_000
ROWS = (1 * MILLION, 4 * MILLION, 16 * MILLION)
ROWS_OF_PARTITIONS = 4 * MILLION
PARTITIONS = (4, 64, 512)
MOST_ROWS = 8 * MILLION
"""Rows in all rounds of a size together, if there is more than one round."""
IDLE_SECONDS = 30.0
MOST_REQUESTS = 1.0
"""Most requests per second of an idle stream."""
MOST_BUSY = 0.02
"""Largest share of a core for our idle stream, including Spark."""

NO_STREAM = "no stream at all"
"""Label of the figures of a Spark without a stream: ours, before its stream."""

Figures = dict[str, dict[str, float]]


def cost(bench: SparkBench, name: str, rows: int, partitions: int) -> float:
    """Return the median CPU seconds of some rounds, fewer for many rows."""
    topic = bench.filled(rows, partitions)
    request = {"action": "batch", "columns": "", "options": {}, "rows": rows, "topic": topic}
    rounds = max(MOST_ROWS // rows, 1) if rows > MILLION else 3
    found = [bench.ask(name, request)["cpu_seconds"] for _ in range(rounds)]
    print(f"{name}: {rows:,} rows, {partitions} partitions: {found}", file=sys.stderr)
    return statistics.median(found)


def curves(parts: Sequence[str]) -> Iterator[Curve]:
    with running() as bench:
        for name in (OURS, THEIRS):
            # The first run is slow: the JVM has not compiled its code yet.
            cost(bench, name, MILLION, PARTITIONS[0])
            if "rows" in parts:
                points = tuple((rows, cost(bench, name, rows, 4)) for rows in ROWS)
                yield Curve(name, "rows", "s of CPU", points)
            if "partitions" in parts:
                points = tuple(
                    (count, cost(bench, name, ROWS_OF_PARTITIONS, count)) for count in PARTITIONS
                )
                yield Curve(name, "partitions", "s of CPU", points)


def idle() -> Figures:
    """Return requests per second and shares of a core, in percent, for both sides."""
    found: Figures = {}
    moments: list[float] = []

    def count(request: Any) -> None:
        moments.append(time.monotonic())

    with threaded_broker() as kafka, tempfile.TemporaryDirectory() as place:
        kafka.call(kafka.broker.create_topic, "idle", 4)
        with drivers(kafka.servers, Path(place)) as sides:
            kafka.call(kafka.broker.on, None, count)
            for name, action, side in (
                (NO_STREAM, "rest", sides[OURS]),
                *((name, "idle", side) for name, side in sides.items()),
            ):
                request: dict[str, Any] = {"action": action, "columns": "", "options": {}}
                answer = side.ask(request | {"topic": "idle", "seconds": IDLE_SECONDS})
                end = time.monotonic()
                requests = sum(end - moment < IDLE_SECONDS for moment in moments)
                found[name] = {"requests a second": requests / IDLE_SECONDS} | {
                    f"{what}, % of a core": 100 * share for what, share in answer["busy"].items()
                }
                print(f"{name}: {found[name]}", file=sys.stderr)
    return found


def grows_linearly(curve: Curve) -> bool:
    """Return True if each further row or partition costs the same.

    Because of fixed costs the exponent may be below 1, but never above.
    """
    return slope(curve.points) <= 1.1


def too_busy(found: Figures) -> list[str]:
    """Return what our idle stream uses too much of."""
    ours = found.get(OURS, {})
    limits = (
        ("requests", "requests a second", MOST_REQUESTS),
        ("CPU", "all, % of a core", 100 * MOST_BUSY),
    )
    return [name for name, what, most in limits if ours.get(what, 0) > most]


def drawn(found: Sequence[Curve]) -> str:
    panels: dict[str, dict[str, svg.Curve]] = {}
    for curve in found:
        title = f"{curve.name} ({curve.exponent:.2f})"
        panels.setdefault(curve.of, {})[title] = curve.points
    return svg.curves(
        "CPU of a batch read by size; the fitted exponent in brackets",
        [("s of CPU of all processes", of, named) for of, named in panels.items()],
    )


def figures_table(found: Figures) -> list[str]:
    columns = list(dict.fromkeys(what for values in found.values() for what in values))
    lines = [f"| an idle stream | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, values in found.items():
        shown = " | ".join(f"{values[what]:,.2f}" for what in columns)
        lines.append(f"| {name} | {shown} |")
    return lines


def save(path: Path, found: Sequence[Curve], figures: Figures) -> None:
    kept = json.loads(path.read_text()) if path.exists() else {"curves": {}, "idle": {}}
    for curve in found:
        kept["curves"][f"{curve.of}: {curve.name}"] = {
            "of": curve.of,
            "name": curve.name,
            "unit": curve.unit,
            "points": curve.points,
        }
    kept["idle"] |= figures
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n")


def load(path: Path) -> tuple[list[Curve], Figures]:
    """Return the results of earlier runs, grouped by kind of curve."""
    kept: Mapping[str, Any] = json.loads(path.read_text())
    found = [
        Curve(
            each["name"], each["of"], each["unit"], tuple((n, cost) for n, cost in each["points"])
        )
        for each in kept["curves"].values()
    ]
    return sorted(found, key=lambda curve: (curve.of != "rows", curve.name != OURS)), kept["idle"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--json", type=Path, default=DEFAULT_JSON)
    options = parser.parse_args()
    parts = options.only or list(PARTS)
    found: list[Curve] = []
    figures: Figures = {}
    if "idle" in parts:
        figures = idle()
        save(options.json, found, figures)
    if set(parts) - {"idle"}:
        for curve in curves(parts):
            found.append(curve)
            save(options.json, found, figures)
    found.sort(key=lambda curve: (curve.of != "rows", curve.name != OURS))
    print("\n".join([*table(found), "", *(figures_table(figures) if figures else [])]))
    faster = [f"{curve.name} by {curve.of}" for curve in found if not grows_linearly(curve)]
    if found:
        print(f"\nGrows linearly: {f'MISSED by {faster}' if faster else 'reached'}")
    busy = too_busy(figures)
    if figures:
        print(f"Idle: {f'MISSED by {busy}' if busy else 'reached'}")
    return 1 if faster or busy else 0


if __name__ == "__main__":
    sys.exit(main())
