"""Compare our client with others on real Kafka, in interleaved rounds.

    python -m benchmarks.table                              # all rows: what `make bench` runs
    python -m benchmarks.table --only consume --pairs 5
    python -m benchmarks.table --only produce --quick --pairs 1 --with aiokafka
    python -m benchmarks.table --only produce --profile "aiokafkawire send_nowait"

The broker is pinned to one core and the client to another. Each measurement is a new process. All
sides of a row run one right after the other, every second round in the opposite order. Results go
to --json, a file that keeps the rows of earlier runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.bench import Bench, Result, running
from benchmarks.report import Found, report, to_json
from benchmarks.rows import OURS, ROWS, Actor, Row

DEFAULT_JSON = Path("build/bench/table.json")
QUICK_WARM_UP = 150_000


def measure(bench: Bench, row: Row, actor: Actor, *, profile: bool = False) -> Result:
    messages = int(row.messages * actor.share)
    run = bench.consumed if row.reads else bench.produced
    return run(
        actor.client, actor.action, messages, loop=actor.loop, tls=actor.tls, profile=profile
    )


def rounds(bench: Bench, row: Row, actors: Sequence[Actor], pairs: int) -> Found:
    found: Found = {actor.name: [] for actor in actors}
    for number in range(pairs):
        for actor in actors if number % 2 == 0 else reversed(actors):
            result = measure(bench, row, actor)
            found[actor.name].append(result)
            shown = f"{result.cpu_us_per_message:.2f} us CPU, {result.per_second:,.0f}/s"
            if result.p50_ms is not None:
                shown += f", p50 {result.p50_ms:.3f} ms"
            print(f"{row.name} {number + 1}/{pairs}: {actor.name}: {shown}", file=sys.stderr)
    return found


def chosen(row: Row, clients: Sequence[str] | None) -> list[Actor]:
    wanted = {OURS, *clients} if clients is not None else None
    return [actor for actor in row.actors if wanted is None or actor.client in wanted]


def save(path: Path, found: Iterable[tuple[Row, Found]], compression: str) -> None:
    kept = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept | to_json(found, compression), indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5, help="rounds in which each side runs once")
    parser.add_argument("--only", choices=ROWS, action="append", metavar="ROW")
    parser.add_argument("--with", dest="peers", action="append", metavar="CLIENT")
    parser.add_argument("--quick", action="store_true", help="a quarter of the messages")
    parser.add_argument("--compression", default="none")
    parser.add_argument("--json", type=Path, default=DEFAULT_JSON)
    parser.add_argument("--profile", metavar="SIDE", help="run this side only, with a profiler")
    options = parser.parse_args()
    rows = [ROWS[name] for name in options.only or ROWS]
    rows = [row.quick() for row in rows] if options.quick else rows
    began = time.monotonic()
    found: list[tuple[Row, Found]] = []
    with running(options.compression) as bench:
        bench.warm_up(*([QUICK_WARM_UP] if options.quick else []))
        for row in rows:
            if options.profile:
                (actor,) = (actor for actor in row.actors if actor.name == options.profile)
                measure(bench, row, actor, profile=True)
                continue
            found.append((row, rounds(bench, row, chosen(row, options.peers), options.pairs)))
            save(options.json, found[-1:], options.compression)
    if not found:
        return 0
    lines, missed = report(found, options.compression)
    print("\n".join(lines))
    print(f"\n{options.pairs} rounds in {time.monotonic() - began:.0f} s; {options.json}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
