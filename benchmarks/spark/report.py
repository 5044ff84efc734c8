"""Format results as a table and the results of aims."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench import Result, spread
from benchmarks.report import Found, aim_results, machine, measure_value
from benchmarks.rows import OURS, Row
from benchmarks.spark.rows import ROWS, THEIRS


def cell(row: Row, results: Sequence[Result]) -> str:
    """Format one side's median, minimum and maximum."""
    if row.waits:
        return f"{spread([measure_value(one, 'p50') for one in results], ',.0f')} ms"
    return f"{spread([one.per_second / 1000 for one in results], ',.0f')} k/s"


def ratio(row: Row, ours: Sequence[Result], theirs: Sequence[Result]) -> float:
    """Return the median over all rounds of ours divided by theirs."""
    measure = "p50" if row.waits else "rate"
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(
        measure_value(a, measure) / measure_value(b, measure) for a, b in pairs
    )


def table(rows: Sequence[tuple[Row, Found]]) -> list[str]:
    """Return a line per side, with its ratio to the connector's default and the row's aim."""
    lines = ["| | rows/s, or median ms | us of CPU a row | cores busy | ratio | aim |"]
    lines.append("|---" * 6 + "|")
    for row, found in rows:
        for name, results in found.items():
            if not results:
                continue
            beside = found.get(THEIRS)
            shown = f"{ratio(row, results, beside):.2f}" if beside and name != THEIRS else ""
            aims = [aim for aim in row.aims if aim.of == name]
            aim = "".join(f"{'>=' if a.at_least else '<='} {a.ratio:.1f}" for a in aims)
            cpu = statistics.median(one.cpu_us_per_message for one in results)
            busy = statistics.median(one.busy or 0.0 for one in results)
            broker = statistics.median(one.broker_busy or 0.0 for one in results)
            lines.append(
                f"| {row.title}: {name} | {cell(row, results)} | {cpu:.3g} |"
                f" {busy:.2f}, broker {broker:.2f} | {shown} | {aim} |"
            )
    return lines


def about(rows: Sequence[tuple[Row, Found]]) -> str:
    said = {
        client: next(
            (
                results[0].about
                for _, found in rows
                for name, results in found.items()
                if results and name.startswith(client)
            ),
            "",
        )
        for client in (OURS, THEIRS)
    }
    return "; ".join(f"{client} on {text}" for client, text in said.items() if text)


def report(rows: Sequence[tuple[Row, Found]]) -> tuple[list[str], int]:
    """Return the text and the number of missed aims."""
    outcomes = [(row, one) for row, found in rows for one in aim_results(row, found)]
    lines = [f"{about(rows)}. {machine()}", "", *table(rows), ""]
    lines += [f"- {row.title}: {outcome}" for row, outcome in outcomes]
    return lines, sum(not outcome.reached for _, outcome in outcomes)


def load(path: Path) -> list[tuple[Row, Found]]:
    """Return the results of earlier runs, in the order of the table."""
    kept: Mapping[str, Any] = json.loads(path.read_text())
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
