"""Compare the PySpark data source with Spark's Kafka connector, on real Kafka 4.3.0.

    python -m benchmarks.spark                       # what `make bench-spark` runs
    python -m benchmarks.spark --only batch --pairs 3
    python -m benchmarks.spark --only sum --conf spark.python.unix.domain.socket.enabled=true

Each has its own Spark, `local[2]`: connector 4.0.0 with the PySpark version it supports, in a
separate environment, ours with the newest. Both run for the whole benchmark and are warm. Only one
side works at a time, every second round in the opposite order. The broker shares the cores. Results
go to --json, a file that keeps the rows of earlier runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.report import Found, to_json
from benchmarks.rows import OURS, Actor, Row
from benchmarks.spark.bench import SparkBench, running
from benchmarks.spark.report import report
from benchmarks.spark.rows import ROWS

DEFAULT_JSON = Path("build/bench/spark.json")


def rounds(bench: SparkBench, row: Row, actors: Sequence[Actor], pairs: int) -> Found:
    """Run each side once as a warm-up, and then `pairs` times."""
    found: Found = {actor.name: [] for actor in actors}
    for number in range(-1, pairs):
        if number < 0 and row.waits:
            continue
        for actor in actors if number % 2 == 0 else reversed(actors):
            result = bench.measure(row, actor)
            shown = f"{result.per_second:,.0f}/s, {result.cpu_us_per_message:.2f} us CPU"
            if result.p50_ms is not None:
                shown += f", p50 {result.p50_ms:.0f} ms"
            print(f"{row.name} {number + 1}/{pairs}: {actor.name}: {shown}", file=sys.stderr)
            if number >= 0:
                found[actor.name].append(result)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=3, help="rounds in which each side runs once")
    parser.add_argument("--only", choices=ROWS, action="append", metavar="ROW")
    parser.add_argument("--alone", action="store_true", help="run our side only")
    parser.add_argument("--quick", action="store_true", help="a quarter of the rows")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--json", type=Path, default=DEFAULT_JSON)
    options = parser.parse_args()
    rows = [ROWS[name] for name in options.only or ROWS]
    rows = [row.quick() for row in rows] if options.quick else rows
    if options.alone:
        mine = [tuple(a for a in row.actors if a.client == OURS) for row in rows]
        rows = [replace(row, actors=actors) for row, actors in zip(rows, mine, strict=True)]
    began = time.monotonic()
    found: list[tuple[Row, Found]] = []
    with running(theirs=not options.alone, conf=tuple(options.conf)) as bench:
        for row in rows:
            found.append((row, rounds(bench, row, row.actors, options.pairs)))
            if not options.alone:
                kept = json.loads(options.json.read_text()) if options.json.exists() else {}
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(kept | to_json(found[-1:], "none"), indent=1))
    lines, missed = report(found)
    print("\n".join(lines))
    print(f"\n{options.pairs} rounds in {time.monotonic() - began:.0f} s; {options.json}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
