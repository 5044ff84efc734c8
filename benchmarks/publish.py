"""Write the last results into docs/performance.md, and draw its figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import scale, svg
from benchmarks.report import (
    CLIENTS,
    Found,
    aim_results,
    details,
    from_json,
    machine,
    median_measure,
    summary,
    versions,
)
from benchmarks.rows import Measure, Row
from benchmarks.scaling.curve import table
from benchmarks.spark import report as spark_report
from benchmarks.spark import scale as spark_scale

RESULTS = Path("build/bench")
DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "performance.md"


def replaced(page: str, part: str, lines: Sequence[str]) -> str:
    """Return the page with new lines between the two marks of a part."""
    begin, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->\n"
    head, found, rest = page.partition(begin)
    _, ended, tail = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{PAGE} lacks the marks of {part!r}")
    return f"{head}{begin}\n" + "\n".join(lines) + f"\n\n{end}{tail}"


def drawn(rows: Sequence[tuple[Row, Found]]) -> str:
    """Draw bars of the CPU per message, or of the latency."""
    blocks = []
    for row, found in rows:
        measures: tuple[tuple[Measure, str], ...] = (("cpu", "us of CPU a message"),)
        if row.waits:
            measures = (("p50", "median ms until acknowledged"), *measures)
        for measure, unit in measures:
            block = []
            for actor in row.actors:
                if not (results := found.get(actor.name)):
                    continue
                value = median_measure(results, measure)
                shown = f"{value:.3g}"
                if not row.waits:
                    shown += f" ({median_measure(results, 'rate') / 1000:,.0f} k/s)"
                block.append(svg.Bar(actor.name, value, shown, CLIENTS.index(actor.client)))
            blocks.append((f"{row.title}: {unit}", block))
    return svg.bars("Shorter is better; messages a second in brackets", blocks)


def with_table(page: str) -> str:
    rows = from_json(json.loads((RESULTS / "table.json").read_text()))
    outcomes = [f"- {outcome}" for row, found in rows for outcome in aim_results(row, found)]
    (DOCS / "performance.svg").write_text(drawn(rows))
    page = replaced(page, "table", [*summary(rows), "", *outcomes])
    return replaced(page, "details", [versions(rows), "", machine(), "", *details(rows)])


def with_scale(page: str) -> str:
    curves, figures = scale.load(RESULTS / "scale.json")
    (DOCS / "scale.svg").write_text(scale.drawn(curves))
    page = replaced(page, "curves", table(curves))
    return replaced(page, "figures", scale.figures_table(figures))


def with_spark(page: str) -> str:
    lines, _ = spark_report.report(spark_report.load(RESULTS / "spark.json"))
    return replaced(page, "spark", lines)


def with_spark_scale(page: str) -> str:
    found, figures = spark_scale.load(RESULTS / "spark-scale.json")
    page = replaced(page, "spark idle", spark_scale.figures_table(figures))
    if not found:
        return page
    (DOCS / "spark-scale.svg").write_text(spark_scale.drawn(found))
    drawing = "![Curves of CPU by rows and partitions](spark-scale.svg)"
    return replaced(page, "spark curves", [*table(found), "", drawing])


def main() -> int:
    page = PAGE.read_text()
    if (RESULTS / "table.json").exists():
        page = with_table(page)
    if (RESULTS / "scale.json").exists():
        page = with_scale(page)
    if (RESULTS / "spark.json").exists():
        page = with_spark(page)
    if (RESULTS / "spark-scale.json").exists():
        page = with_spark_scale(page)
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
