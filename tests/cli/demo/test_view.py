from __future__ import annotations

import io
from collections import Counter

import pytest
from rich.console import Console

from aiokafkawire.cli.demo.comparison import compare
from aiokafkawire.cli.demo.inputs import Truth
from aiokafkawire.cli.demo.stage import DemoEvent, Stage, WorkerProcess
from aiokafkawire.cli.demo.view import LINE_EVERY_S, LiveView, PlainView, comparison_table

WIDTH, HEIGHT = 80, 24
NARROW = 60


@pytest.fixture
def stage() -> Stage:
    stage = Stage(partitions=12, total=800_000, sent=600_000, nodes={1: True, 2: True, 3: False})
    for number in range(1, 5):
        name = f"worker {number}"
        stage.workers[name] = WorkerProcess(
            name, 4_000_000 + number, "working", (number * 3 - 3,), 99_999
        )
    stage.workers["worker 1"].state = "killed"
    stage.workers["worker 1"].partitions = ()
    stage.positions = dict.fromkeys(range(12), 40_000)
    for number in range(20):
        stage.events.append(DemoEvent(float(number), f"event {number}"))
    return stage


def test_plain_lines_come_once_a_second(stage: Stage) -> None:
    console = Console(file=io.StringIO(), width=WIDTH)
    with PlainView(console) as view:
        for tick in range(8):
            view.show(stage, tick * LINE_EVERY_S / 4)
        view.event(DemoEvent(2.0, "[bold]killed[/bold]"))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 3
    assert "sent 600,000" in lines[0]
    assert "processed 480,000" in lines[0]
    assert "lag 120,000" in lines[0]
    assert "worker 2: 3" in lines[0]
    assert "worker 1" not in lines[0]
    assert lines[2] == "   2.0 s  [bold]killed[/bold]"


def test_the_first_line_has_the_rate_since_the_first_record() -> None:
    console = Console(file=io.StringIO(), width=WIDTH)
    stage = Stage(partitions=12)
    with PlainView(console) as view:
        for tick in range(20):
            view.show(stage, tick / 4)
        stage.sent, stage.positions = 1_000, {0: 500}
        view.show(stage, 5.0)
    (line,) = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "sent 1,000 (4,000/s)  processed 500 (2,000/s)" in line


def test_the_picture_fits_a_small_terminal(stage: Stage) -> None:
    console = Console(
        file=io.StringIO(), width=WIDTH, height=HEIGHT, force_terminal=True, color_system=None
    )
    with LiveView(console) as view:
        view.show(stage, 1.0)
        view.show(stage, 2.0)
        view.event(DemoEvent(2.0, "x"))
    picture = console.file.getvalue()  # type: ignore[attr-defined]
    for text in (
        "600,000",
        "lag",
        "120,000",
        "worker 4",
        "4000004",
        "killed",
        "event 19",
        "3 down",
    ):
        assert text in picture
    assert "…" not in picture
    last = picture.rpartition("demo, 2 s")[2].replace("\r", "")
    assert last.count("\n") < HEIGHT
    assert all(len(line) <= WIDTH for line in last.splitlines() if "\x1b" not in line)


def test_nothing_wraps_in_a_narrow_terminal(stage: Stage) -> None:
    stage.workers["worker 2"].partitions = (0, 2, 4, 6, 8, 10)
    stage.workers["worker 2"].state = "rebalancing"
    stage.workers["worker 3"].partitions = ()
    stage.workers["worker 4"].partitions = ()
    stage.events.append(
        DemoEvent(20.0, "half way: killed worker 1 (process 123); it cannot leave the group")
    )
    console = Console(
        file=io.StringIO(), width=NARROW, height=HEIGHT, force_terminal=True, color_system=None
    )
    with LiveView(console) as view:
        view.show(stage, 2.0)
    picture = console.file.getvalue()  # type: ignore[attr-defined]
    lines = picture.rpartition("demo, 2 s")[2].splitlines()
    for text in ("demo, 2 s", "w2", "0, 2, 4, 6, 8, 10", "rebalancing", "99,999", "3 down"):
        assert text in picture
    assert sum("40,000" in line for line in lines) == 4
    assert [line for line in lines if "…" in line] == [line for line in lines if "half way" in line]


def test_the_comparison_fits_a_narrow_terminal() -> None:
    truth = Truth(1_000_000, 10, Counter({b"w" * 70: 1_000_000, b"self": 2_000_000}))
    console = Console(file=io.StringIO(), width=NARROW)
    console.print(
        comparison_table(truth, compare(truth, 999_999, [], Counter({b"self": 1_000_000})))
    )
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    rows = [line for line in lines if "│" in line]
    assert len(rows) == 8
    assert all("same" in row or "DIFFERENT" in row for row in rows)


def test_the_comparison_shows_what_differs() -> None:
    truth = Truth(3, 10, Counter({b"self": 2, b"caf\xff": 1}))
    console = Console(file=io.StringIO(), width=WIDTH)
    console.print(comparison_table(truth, compare(truth, 3, [[0, 1, 2]], truth.words)))
    good = console.file.getvalue()  # type: ignore[attr-defined]
    assert "DIFFERENT" not in good
    assert "'self'" in good
    console.print(comparison_table(truth, compare(truth, 3, [[0, 1]], Counter({b"self": 2}))))
    bad = console.file.getvalue()[len(good) :]  # type: ignore[attr-defined]
    assert bad.count("DIFFERENT") == 5
