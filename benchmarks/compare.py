"""Compare this package with that of another folder, such as a worktree of an earlier commit.

    python -m benchmarks.compare ../before              # all rows
    python -m benchmarks.compare ../before --only produce --rounds 9

Both packages run the same load, from this folder, on real Kafka. Their processes take turns in
steps of less than a second. So other work on the machine slows both of them down. Compared is the
CPU time of a process per message, user and system. The ratio is the median of the ratios of all
pairs of steps. The other folder needs its own compiled kernel:
`python setup.py build_ext --inplace`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiokafkawire
from benchmarks.bench import Bench, cores, running
from benchmarks.rows import OURS, ROWS, Actor, Row

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = 1.03
"""Ratio above which a row is slower."""
STEPS = 20
"""Steps of one process; the first one warms up."""
BESIDE = {"one-at-a-time": "confluent-kafka"}
"""Another client that takes part in a row."""
COMMIT = Row("commit", "commit one offset at a time", True, 4_000, (Actor(OURS, "commit"),), ())
COMPARED: Mapping[str, Row] = {
    **{name: row for name, row in ROWS.items() if not name.startswith("tls")},
    COMMIT.name: COMMIT,
}
BEFORE, NOW = "before", "now"

Costs = dict[str, list[float]]
"""CPU seconds per message in each step: of `BEFORE`, of `NOW`, and of another client."""


@dataclass(frozen=True, slots=True)
class Side:
    """A client, and the folder from which it imports aiokafkawire."""

    name: str
    actor: Actor
    folder: Path

    @contextmanager
    def running(self, bootstrap_servers: str, topic: str) -> Iterator[subprocess.Popen[str]]:
        """Start the process. It ends when its standard input is closed."""
        _, core = cores()
        # -P: only `folder` decides which package is imported.
        command = [sys.executable, "-P", "-m", "benchmarks.stepwise", self.actor.client]
        command += [self.actor.action, bootstrap_servers, topic, "--loop", self.actor.loop]
        if core is not None:
            command += ["--core", str(core)]
        environment = os.environ | {"PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT}"}
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            yield process


def run_step(process: subprocess.Popen[str], messages: int) -> float:
    """Return the CPU seconds per message of one step."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{messages}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def link_package(package: Path, folder: Path) -> Path:
    """Return a folder that contains nothing but a link to the package."""
    if not (package / "__init__.py").is_file():
        raise FileNotFoundError(f"{package} is not a package")
    folder.mkdir()
    (folder / package.name).symlink_to(package.resolve(), target_is_directory=True)
    return folder


def compare(bench: Bench, row: Row, sides: Sequence[Side], rounds: int) -> Costs:
    """Run `rounds` processes of each side."""
    costs: Costs = {side.name: [] for side in sides}
    messages = row.messages // STEPS
    shared = bench.new_topic_with(row.messages * 2) if row.reads and row.name != "commit" else None
    for number in range(rounds):
        with ExitStack() as stack:
            topics = {side.name: shared or bench.new_topic() for side in sides}
            processes = {
                side.name: stack.enter_context(
                    side.running(bench.bootstrap_servers, topics[side.name])
                )
                for side in sides
            }
            for step in range(STEPS):
                names = list(processes) if (number + step) % 2 == 0 else [*reversed(processes)]
                for name in names:
                    cost = run_step(processes[name], messages)
                    if step:
                        costs[name].append(cost)
        for topic in set(topics.values()) - {shared}:
            bench.delete(topic)
        shown = ", ".join(f"{name} {middle(found):.4g} us" for name, found in costs.items())
        print(f"{row.name} {number + 1}/{rounds}: {shown}, {ratio(costs):.3f}", file=sys.stderr)
    if shared is not None:
        bench.delete(shared)
    return costs


def middle(costs: Sequence[float]) -> float:
    """Return the median in microseconds."""
    return statistics.median(costs) * 1e6


def ratio(costs: Costs, of: str = NOW, to: str = BEFORE) -> float:
    """Return the median of the ratios of two sides, step by step."""
    return statistics.median(one / other for one, other in zip(costs[of], costs[to], strict=True))


def table(found: Mapping[str, Costs]) -> Iterable[str]:
    """Yield the lines of a table in Markdown."""
    yield "| | before, us of CPU | now, us of CPU | now / before |"
    yield "|---|---:|---:|---:|"
    for name, costs in found.items():
        cells = " | ".join(f"{middle(costs[side]):.3g}" for side in (BEFORE, NOW))
        yield f"| {name} | {cells} | {ratio(costs):.3f} |"
        for other in sorted(costs.keys() - {BEFORE, NOW}):
            cells = " | ".join(f"{ratio(costs, side, other):.2f} ×" for side in (BEFORE, NOW))
            yield f"| {name}, beside {other} ({middle(costs[other]):.3g} us) | {cells} | |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if a row is slower than `ALLOWED`, else 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="folder that contains the other package")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each side")
    parser.add_argument("--only", choices=COMPARED, action="append", metavar="ROW")
    options = parser.parse_args(arguments)
    here = Path(aiokafkawire.__file__).parent
    found: dict[str, Costs] = {}
    with tempfile.TemporaryDirectory() as directory, running() as bench:
        before = link_package(options.other / here.name, Path(directory, BEFORE))
        now = link_package(here, Path(directory, NOW))
        bench.warm_up()
        for row in (COMPARED[name] for name in options.only or COMPARED):
            others = [one for one in row.actors if one.client == BESIDE.get(row.name)]
            for actor in (one for one in row.actors if one.client == OURS):
                sides = [Side(BEFORE, actor, before), Side(NOW, actor, now)]
                sides += [Side(one.client, one, now) for one in others]
                name = f"{row.name} {actor.use}".strip()
                found[name] = compare(bench, row, sides, options.rounds)
    print("\n".join(table(found)))
    slower = [name for name, costs in found.items() if ratio(costs) > ALLOWED]
    if slower:
        print(f"slower by more than {ALLOWED - 1:.0%}: {', '.join(slower)}", file=sys.stderr)
    return int(bool(slower))


if __name__ == "__main__":
    sys.exit(main())
