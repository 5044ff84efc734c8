"""Format results as tables, results of aims, and JSON."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.bench import BROKER_JAVA_OPTIONS, Result, in_memory, spread
from benchmarks.load import (
    ARROW_RECORDS,
    BATCH_BYTES,
    BUFFER_BYTES,
    FETCH_BYTES,
    LINGER_MS,
    MAX_RECORDS,
    PARTITIONS,
    VALUE,
)
from benchmarks.rows import OURS, ROWS, Aim, Measure, Row
from tests.brokers.kafka import DEFAULT_VERSION

Found = dict[str, list[Result]]
"""The results of each side, one per round."""

IDLE = 0.9
"""A client that uses less of its core than this waits for the broker."""
UNITS: Mapping[Measure, str] = {"cpu": "us CPU", "rate": "/s", "p50": "ms p50"}
LAYOUTS: Mapping[Measure, str] = {"cpu": ".3g", "rate": ",.0f", "p50": ".3g"}
CLIENTS = (OURS, "confluent-kafka", "aiokafka", "kafka-python", "Java")


def settings(compression: str) -> str:
    broker = " ".join(BROKER_JAVA_OPTIONS)
    return (
        f"Kafka {DEFAULT_VERSION} on one core ({broker}), its log"
        f" {'in memory' if in_memory() else 'on disk'}, the client on another core;"
        f" {len(VALUE)}-byte values, {PARTITIONS} partitions. Producers: acks=all, idempotent,"
        f" linger {LINGER_MS} ms, batches of {BATCH_BYTES // 1024} KiB, compression"
        f" {compression}, at most {BUFFER_BYTES >> 20} MiB unacknowledged. Consumers: lists of up"
        f" to {MAX_RECORDS} ({ARROW_RECORDS:,} to Arrow), {FETCH_BYTES >> 20} MiB a partition,"
        " checksums verified."
    )


def measure_value(result: Result, measure: Measure) -> float:
    value = {
        "cpu": result.cpu_us_per_message,
        "rate": result.per_second,
        "p50": result.p50_ms,
    }[measure]
    assert value is not None
    return value


def median_measure(results: Iterable[Result], measure: Measure) -> float:
    return statistics.median(measure_value(result, measure) for result in results)


@dataclass(frozen=True, slots=True)
class AimResult:
    """The result of an aim: the figure, and the ratio to another client in the same rounds."""

    aim: Aim
    value: float
    ratio: float | None

    @property
    def parts(self) -> dict[str, float]:
        """The reached part of the aim, by figure and by ratio; 1 means reached."""
        found = {}
        if self.aim.figure is not None:
            found["figure"] = self.aim.part_of(self.value, self.aim.figure)
        if self.ratio is not None and self.aim.ratio is not None:
            found["ratio"] = self.aim.part_of(self.ratio, self.aim.ratio)
        return found

    @property
    def reached(self) -> bool:
        """True if the figure or the ratio reached its aim, because machines differ."""
        return max(self.parts.values()) >= 1

    def __str__(self) -> str:
        aim, layout = self.aim, LAYOUTS[self.aim.measure]
        bound = ">=" if aim.at_least else "<="
        text = f"{aim.of}: {self.value:{layout}} {UNITS[aim.measure]}"
        if aim.figure is not None:
            text += f" (aim {bound} {aim.figure:{layout}}: {progress(self.parts['figure'])})"
        if "ratio" in self.parts:
            text += (
                f", {self.ratio:.2f} of {aim.beside}'s"
                f" (aim {bound} {aim.ratio:.2f}: {progress(self.parts['ratio'])})"
            )
        return text if self.reached else f"{text}: MISSED"


def progress(part: float) -> str:
    return "reached" if part >= 1 else f"{part:.2f} of it"


def check_aim(aim: Aim, found: Found) -> AimResult | None:
    """Return the result of an aim; None if one of the clients that it compares was not run."""
    ours, theirs = found.get(aim.of), found.get(aim.beside)
    if not ours or (aim.figure is None and not theirs):
        return None
    ratio = None
    if theirs and aim.ratio is not None:
        ratio = statistics.median(
            measure_value(one, aim.measure) / measure_value(other, aim.measure)
            for one, other in zip(ours, theirs, strict=True)
        )
    return AimResult(aim, median_measure(ours, aim.measure), ratio)


def aim_results(row: Row, found: Found) -> list[AimResult]:
    """Return the results of the aims of a row."""
    return [one for aim in row.aims if (one := check_aim(aim, found)) is not None]


def cell(row: Row, results: Sequence[Result]) -> str:
    if row.waits:
        return (
            f"p50 {median_measure(results, 'p50'):.3g} ms, {median_measure(results, 'cpu'):.3g} us"
        )
    rate = median_measure(results, "rate") / 1000
    return f"{median_measure(results, 'cpu'):.2f} us, {rate:,.0f} k/s"


def summary(rows: Sequence[tuple[Row, Found]]) -> list[str]:
    """Return a line per row and a column per client: medians of CPU and rate, or of p50."""
    lines = [f"| Work | {' | '.join(CLIENTS)} |", "|---" * (len(CLIENTS) + 1) + "|"]
    for row, found in rows:
        cells: dict[str, list[str]] = {client: [] for client in CLIENTS}
        for actor in row.actors:
            if results := found.get(actor.name):
                use = f"{actor.use}: " if actor.use else ""
                cells[actor.client].append(use + cell(row, results))
        shown = ("<br>".join(cells[client]) or "–" for client in CLIENTS)
        lines.append(f"| {row.title} | {' | '.join(shown)} |")
    return lines


def details(rows: Sequence[tuple[Row, Found]]) -> list[str]:
    """Return a line per side: medians with minimum and maximum."""
    lines = [
        "| | CPU us/message | messages/s | p50 ms | p99 ms | RSS MiB | core, broker's busy |",
        "|---|---|---|---|---|---|---|",
    ]
    for row, found in rows:
        for name, results in found.items():
            cpu = spread([result.cpu_us_per_message for result in results], ",.3g")
            rate = spread([result.per_second for result in results], ",.0f")
            waits = [
                spread([value for value in column if value is not None], ".3g")
                if None not in column
                else ""
                for column in (
                    [result.p50_ms for result in results],
                    [result.p99_ms for result in results],
                )
            ]
            resident = statistics.median(result.rss_mib for result in results)
            lines.append(
                f"| {row.name}, {name} | {cpu} | {rate} | {waits[0]} | {waits[1]} |"
                f" {resident:.0f} | {describe_busy(row, results)} |"
            )
    return lines


def describe_busy(row: Row, results: Sequence[Result]) -> str:
    """Format the busy shares of the side's core and the broker's core.

    "broker-bound": the side waited for the broker. "waits": neither core was busy.
    """
    mine = [result.busy for result in results if result.busy is not None]
    theirs = [result.broker_busy for result in results if result.broker_busy is not None]
    if not mine:
        return ""
    busy = statistics.median(mine)
    broker = statistics.median(theirs) if theirs else 0.0
    text = f"{min(busy, 1):.0%} / {min(broker, 1):.0%}"
    if busy >= IDLE or row.waits:
        return text
    return f"{text}, broker-bound" if broker >= IDLE else f"{text}, waits"


def versions(rows: Sequence[tuple[Row, Found]]) -> str:
    """Return the version of each client."""
    said = {
        actor.client: found[actor.name][0].about
        for row, found in rows
        for actor in row.actors
        if found.get(actor.name)
    }
    return "; ".join(f"{client}: {said[client]}" for client in CLIENTS if client in said)


def report(rows: Sequence[tuple[Row, Found]], compression: str) -> tuple[list[str], int]:
    """Return the text and the number of missed aims."""
    outcomes = [one for row, found in rows for one in aim_results(row, found)]
    lines = [settings(compression), versions(rows), machine(), ""]
    lines += [*summary(rows), "", *details(rows), ""]
    lines += [f"- {outcome}" for outcome in outcomes]
    return lines, sum(not outcome.reached for outcome in outcomes)


def machine() -> str:
    """Describe the machine."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [
                line.split(":", 1)[1].strip() for line in file if line.startswith("model name")
            ]
        model = names[0] if names else model
    except OSError:
        pass
    return f"{os.cpu_count()} cores, {model}; Python {platform.python_version()}"


def to_json(rows: Iterable[tuple[Row, Found]], compression: str) -> dict[str, Any]:
    return {
        row.name: {
            "title": row.title,
            "messages": row.messages,
            "compression": compression,
            "sides": {name: [asdict(one) for one in results] for name, results in found.items()},
            "aims": [
                {
                    **asdict(outcome.aim),
                    "found": outcome.value,
                    "found_ratio": outcome.ratio,
                    "parts": outcome.parts,
                    "reached": outcome.reached,
                }
                for outcome in aim_results(row, found)
            ],
        }
        for row, found in rows
    }


def from_json(kept: Mapping[str, Any]) -> list[tuple[Row, Found]]:
    """Return the rows of a results file, in the order of the table."""
    return [
        (
            row,
            {
                name: [Result(**one) for one in results]
                for name, results in kept[row.name]["sides"].items()
            },
        )
        for row in ROWS.values()
        if row.name in kept
    ]
