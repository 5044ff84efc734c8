"""Measure how cost grows with size, and how much memory is used.

    python -m benchmarks.scale                      # all: about 8 minutes
    python -m benchmarks.scale --only assignors --only client
    python -m benchmarks.scale --quick              # fewer repeats, and a tenth of the clients

assignors    the group leader assigns 10 to 10,000 partitions to 1 to 100 members
client       a consumer of 10 to 10,000 partitions on 20 nodes: start, metadata, poll, commit, idle
groups       1 to 100 members of one group, in one process, until they share 1,000 partitions
coordinator  the embedded coordinator of 10 to 1,000 members of the consumer protocol, and what the
             client of one of them pays for joining
idle         1,000 consumers that wait in one process
deliveries   500,000 tasks that each await a delivery, while the broker does not answer
memory       memory while a broker or an application stalls

The brokers are embedded ones in another process on another core, and a real one for the idle
consumers. The CPU and memory of the clients' process are measured. A curve must grow no faster than
n log n.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import svg
from benchmarks.bench import cores
from benchmarks.bench import running as running_kafka
from benchmarks.scaling import assigning, client, cluster, coordinator, worker
from benchmarks.scaling.curve import Curve, table

DEFAULT_JSON = Path("build/bench/scale.json")
TIMEOUT_SECONDS = 280.0
NODES = 20
MEMBERS = (1, 10, 100)
PARTS = ("assignors", "client", "groups", "coordinator", "idle", "deliveries", "memory")
SPARE = 1.25
"""Allowed factor over the memory bound: allocators, and the overhead per record."""

Figures = dict[str, dict[str, float]]


def run(module: str, *arguments: str) -> dict[str, float]:
    """Run one process on the clients' core and return the figures that it prints."""
    _, core = cores()
    command = [sys.executable, "-m", f"benchmarks.scaling.{module}", *arguments]
    if core is not None:
        command += ["--core", str(core)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=TIMEOUT_SECONDS)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def log(what: object) -> None:
    print(what, file=sys.stderr, flush=True)


def client_curves() -> Iterator[Curve]:
    sizes = assigning.SIZES
    topics = {
        name: count
        for size in sizes
        for name, count in (
            (client.trickle_topic(f"n{size}"), 1),
            *((name, assigning.PER_TOPIC) for name in client.names(f"n{size}", size)),
        )
    }
    found: dict[int, dict[str, float]] = {}
    with cluster.running(NODES, topics) as running:
        for size in sizes:
            found[size] = run("client", running.bootstrap_servers, f"n{size}", str(size))
            log(f"client of {size:,} partitions: {found[size]}")
    for action in found[sizes[0]]:
        unit = "MiB" if "RSS" in action else "ms"
        points = tuple((size, found[size][action]) for size in sizes)
        yield Curve(action, "partitions", unit, points)


def group_curve() -> Curve:
    points = []
    with cluster.running(3, dict.fromkeys(worker.GROUP_TOPICS, assigning.PER_TOPIC)) as running:
        for members in MEMBERS:
            found = run("worker", "group", running.bootstrap_servers, str(members))
            log(f"group of {members}: {found}")
            points.append((members, found["join"]))
    return Curve("all members join and share 1,000 partitions", "members", "ms", tuple(points))


def one(action: str, count: int, nodes: int, topics: Mapping[str, int]) -> dict[str, float]:
    with cluster.running(nodes, topics) as running:
        arguments = (action, running.bootstrap_servers, str(count))
        found = run("worker", *arguments, "--stall", str(running.pid))
    log(f"{action} {count:,}: {found}")
    return found


def on_kafka(action: str, count: int) -> dict[str, float]:
    """Measure on a real broker: the embedded one is too slow for that many clients."""
    with running_kafka() as bench:
        bench.create(worker.TOPIC)
        found = run("worker", action, bench.bootstrap_servers, str(count))
    log(f"{action} {count:,}: {found}")
    return found


def figures(parts: list[str], quick: bool) -> Figures:
    found: Figures = {}
    few = 10 if quick else 1
    if "idle" in parts:
        count = 1_000 // few
        found[f"{count:,} idle consumers"] = on_kafka("idle", count)
    if "deliveries" in parts:
        count = 500_000 // few
        found[f"{count:,} awaited deliveries"] = one("deliveries", count, 1, {worker.TOPIC: 1})
        found[f"{count:,} tasks that await an event"] = run("worker", "tasks", "", str(count))
    if "memory" in parts:
        for size in (100, 10_000):
            name = f"producer, stalled broker, values of {size:,} bytes"
            found[name] = one("full-buffer", size, 1, {worker.TOPIC: 1})
        big = {worker.BIG_TOPIC: 8}
        found["consumer, stalled application"] = one("stalled-application", 0, 1, big)
        found["consumer that reads 240 MiB slowly"] = one("slow-application", 2_400, 1, big)
    return found


def over(found: Figures) -> list[str]:
    """Return the names of the figures above their memory bound."""
    return [
        name
        for name, values in found.items()
        if "bound, MiB" in values and values["peak growth, MiB"] > values["bound, MiB"] * SPARE
    ]


def figures_table(found: Figures) -> list[str]:
    lines = ["| | |", "|---|---|"]
    for name, values in found.items():
        text = "; ".join(f"{what}: {value:,.4g}" for what, value in values.items())
        lines.append(f"| {name} | {text} |")
    return lines


def drawn(curves: list[Curve]) -> str:
    """Draw a panel for each kind of size and cost."""
    panels: dict[tuple[str, str], dict[str, svg.Curve]] = {}
    for curve in curves:
        if "RSS" in curve.name:
            continue
        first = curve.name.split()[0]
        kind = (
            "assignors"
            if first in ASSIGNORS
            else "coordinator"
            if first == "coordinator:"
            else "clients"
        )
        if kind == "assignors" and "at first" not in curve.name and "absence" not in curve.name:
            continue
        title = f"{curve.name} ({curve.exponent:.2f})"
        panels.setdefault((kind, curve.of), {})[title] = curve.points
    return svg.curves(
        "CPU by size; the fitted exponent in brackets",
        [(f"{kind}: ms of CPU", f"{of}", named) for (kind, of), named in panels.items()],
    )


ASSIGNORS = {"range", "roundrobin", "sticky", "cooperative-sticky"}


def save(path: Path, curves: list[Curve], found: Figures) -> None:
    kept = json.loads(path.read_text()) if path.exists() else {"curves": {}, "figures": {}}
    for curve in curves:
        kept["curves"][f"{curve.of}: {curve.name}"] = {
            "of": curve.of,
            "name": curve.name,
            "unit": curve.unit,
            "points": curve.points,
            "exponent": curve.exponent,
            "last": curve.last,
            "bounded": curve.bounded,
        }
    kept["figures"] |= found
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n")


def load(path: Path) -> tuple[list[Curve], Figures]:
    """Return the results of earlier runs."""
    kept = json.loads(path.read_text())
    curves = [
        Curve(
            each["name"], each["of"], each["unit"], tuple((n, cost) for n, cost in each["points"])
        )
        for each in kept["curves"].values()
    ]
    return curves, kept["figures"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, default=DEFAULT_JSON)
    options = parser.parse_args()
    parts = options.only or list(PARTS)
    began = time.monotonic()
    curves: list[Curve] = []
    if "assignors" in parts:
        curves += assigning.curves(3 if options.quick else 7)
    if "client" in parts:
        curves += client_curves()
    if "groups" in parts:
        curves.append(group_curve())
    if "coordinator" in parts:
        curves += coordinator.curves()
    found = figures(parts, options.quick)
    save(options.json, curves, found)
    print("\n".join([*table(curves), "", *(figures_table(found) if found else [])]))
    faster = [f"{curve.name} by {curve.of}" for curve in curves if not curve.bounded]
    more = over(found)
    if curves:
        print(f"\nNo faster than n log n: {f'MISSED by {faster}' if faster else 'reached'}")
    if "memory" in parts:
        print(f"Memory within its bounds: {f'MISSED by {more}' if more else 'reached'}")
    print(f"\n{time.monotonic() - began:.0f} s; {options.json}")
    return 1 if faster or more else 0


if __name__ == "__main__":
    sys.exit(main())
