"""Views of the demo: a live picture in a terminal, one line per second elsewhere."""

from __future__ import annotations

import errno
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aiokafkawire.cli.demo.comparison import Comparison
from aiokafkawire.cli.demo.inputs import Truth
from aiokafkawire.cli.demo.stage import DemoEvent, Rate, Stage, ranges

__all__ = ("LiveView", "PlainView", "Screen", "View", "comparison_table")

EVENTS_SHOWN = 5
TOP_WORDS = 5
BAR_WIDTH = 30
NARROW_COLUMNS = 76
"""Below this number of columns names, gaps and bars are short."""
NARROW_BAR_WIDTH = 16
MAX_LABEL_WIDTH = 19
"""Longest word to print, so that the counts beside it fit."""
PARTITIONS_IN_LINE = 3
LINE_EVERY_S = 1.0


class Screen(Console):
    """Console that raises an error when its reader has exited, instead of ending the process."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "the reader of the output has exited")


class View(Protocol):
    """View of a stage: a context manager around all calls of `show`, but not the last lines."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def event(self, event: DemoEvent) -> None: ...

    def show(self, stage: Stage, now: float) -> None:
        """Show the stage `now` seconds after the start."""
        ...


class PlainView:
    """View as lines, for a pipe or a file."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_line = 0.0
        self._sent, self._processed = Rate(), Rate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return

    def event(self, event: DemoEvent) -> None:
        self._line(f"{event.at:6.1f} s  {event.text}")

    def show(self, stage: Stage, now: float) -> None:
        if not stage.sent:
            # The first rate is that since the last moment without records.
            self._sent, self._processed = Rate(), Rate()
        sent_per_s = self._sent.note(now, stage.sent)
        processed_per_s = self._processed.note(now, stage.processed)
        if now < self._next_line or not stage.sent:
            return
        self._next_line = now + LINE_EVERY_S
        owned = "  ".join(
            f"{worker.name}: {ranges(worker.partitions)}"
            for worker in stage.workers.values()
            if worker.state != "killed"
        )
        self._line(
            f"{now:6.1f} s  sent {stage.sent:,} ({sent_per_s:,.0f}/s)"
            f"  processed {stage.processed:,} ({processed_per_s:,.0f}/s)"
            f"  lag {stage.lag:,}  {owned}"
        )

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveView:
    """View as a picture that changes in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._sent, self._processed = Rate(), Rate()

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.__exit__(exc_type, exc, traceback)

    def event(self, event: DemoEvent) -> None:
        """Do nothing: the picture contains the events."""

    def show(self, stage: Stage, now: float) -> None:
        self._live.update(self._picture(stage, now), refresh=True)

    def _picture(self, stage: Stage, now: float) -> Group:
        narrow = self._console.width < NARROW_COLUMNS
        title = "demo" if narrow else "aiokafkawire demo"
        head = Text(f"{title}, {now:.0f} s", style="bold", no_wrap=True, overflow="ellipsis")
        for node, up in stage.nodes.items():
            head.append(f"   node {node} ", style="not bold")
            head.append("up" if up else "down", style="green" if up else "bold red")
        counts = Table.grid(padding=(0, 2))
        for _ in range(3):
            counts.add_column(justify="right")
        for name, count, rate in (
            ("sent", stage.sent, self._sent.note(now, stage.sent)),
            ("processed", stage.processed, self._processed.note(now, stage.processed)),
        ):
            counts.add_row(
                name, f"{count:,}", f"{rate:,.0f}/s", _bar(count, stage.total, narrow=narrow)
            )
        counts.add_row("lag", f"{stage.lag:,}")
        recent = list(stage.events)[-EVENTS_SHOWN:]
        events = Text("\n".join(f"{event.at:6.1f} s  {event.text}" for event in recent))
        events.no_wrap, events.overflow = True, "ellipsis"
        gap = Text()
        workers, partitions = _workers(stage, narrow=narrow), _partitions(stage, narrow=narrow)
        return Group(head, counts, gap, workers, gap, partitions, gap, events)


def _bar(count: int, total: int, *, narrow: bool) -> Text:
    width = NARROW_BAR_WIDTH if narrow else BAR_WIDTH
    filled = round(width * min(1.0, count / total)) if total else 0
    return Text("█" * filled, style="green") + Text("░" * (width - filled), style="dim")


def _called(name: str, *, narrow: bool) -> str:
    """Return a short name in a narrow terminal: w1 for worker 1."""
    return name.replace("worker ", "w") if narrow else name


def _workers(stage: Stage, *, narrow: bool) -> Table:
    table = Table.grid(padding=(0, 2 if narrow else 3))
    for _ in range(4):
        table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row("worker", "process", "state", "partitions", "counted", style="dim")
    for worker in stage.workers.values():
        table.add_row(
            _called(worker.name, narrow=narrow),
            str(worker.pid),
            worker.state,
            ranges(worker.partitions),
            f"{worker.processed:,}",
            style={"killed": "red", "working": "", "done": "green"}.get(worker.state, "yellow"),
        )
    return table


def _partitions(stage: Stage, *, narrow: bool) -> Table:
    """Format several partitions per line: number, owner, counted records."""
    table = Table.grid(padding=(0, 1 if narrow else 2))
    owners = stage.owners
    rows = -(-stage.partitions // PARTITIONS_IN_LINE)
    for _ in range(PARTITIONS_IN_LINE):
        table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
    table.add_row(*["part", "owner", "counted"] * PARTITIONS_IN_LINE, style="dim")
    for row in range(rows):
        cells: list[str | Text] = []
        for partition in range(row, stage.partitions, rows):
            owner = owners.get(partition)
            cells += [
                str(partition),
                Text("nobody", style="red") if owner is None else _called(owner, narrow=narrow),
                f"{stage.positions.get(partition, 0):,}",
            ]
        table.add_row(*cells)
    return table


def comparison_table(truth: Truth, comparison: Comparison) -> Table:
    """Return the final comparison: counts through Kafka beside counts without it."""
    table = Table("", title="counted through Kafka, and without Kafka")
    table.columns[0].no_wrap, table.columns[0].max_width = True, MAX_LABEL_WIDTH
    table.add_column("Kafka", justify="right")
    table.add_column("input", justify="right")
    table.add_column("")
    for name, ours, theirs in (
        ("lines sent", comparison.sent, truth.lines),
        ("lines processed", comparison.processed, truth.lines),
        ("lines counted twice", comparison.counted_twice, 0),
        ("words", comparison.words, truth.words.total()),
        ("distinct words", comparison.distinct_words, len(truth.words)),
    ):
        table.add_row(name, f"{ours:,}", f"{theirs:,}", _mark(ours == theirs))
    table.add_row(
        "words that differ", f"{comparison.wrong_words:,}", "0", _mark(comparison.wrong_words == 0)
    )
    for word, number in truth.words.most_common(TOP_WORDS):
        ours = comparison.counts[word]
        table.add_row(
            Text(repr(word.decode(errors="replace"))),
            f"{ours:,}",
            f"{number:,}",
            _mark(ours == number),
        )
    return table


def _mark(good: bool) -> Text:
    return Text("same", style="green") if good else Text("DIFFERENT", style="bold red")
