from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from aiokafkawire.cli.demo import demo_run
from aiokafkawire.cli.demo.children import Children
from aiokafkawire.cli.demo.demo_run import DemoRun, DemoSettings
from aiokafkawire.cli.demo.stage import Stage
from aiokafkawire.cli.demo.view import PlainView
from aiokafkawire.cli.error_text import CommandFailed


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    children = Children(tmp_path)
    yield children
    children.reap_all()


@pytest.fixture
def settings(tmp_path: Path) -> DemoSettings:
    text = tmp_path / "text"
    text.write_bytes(b"one two\nthree\n")
    return DemoSettings([text], None, "asyncio", tmp_path)


class Assassin(PlainView):
    """A view that kills a worker unexpectedly."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True))
        self.killed = False

    def show(self, stage: Stage, now: float) -> None:
        if len(stage.workers) == 3 and not self.killed:
            self.killed = True
            os.kill(stage.workers["worker 2"].pid, signal.SIGKILL)


def failures(group: BaseExceptionGroup[BaseException]) -> list[str]:
    found = []
    for error in group.exceptions:
        found += failures(error) if isinstance(error, BaseExceptionGroup) else [str(error)]
    return found


@pytest.mark.slow
async def test_a_worker_that_dies_by_itself_ends_the_demo(
    settings: DemoSettings, children: Children
) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        await DemoRun(settings, children, Assassin()).run()
    assert failures(raised.value) == [
        "the process of worker 2 ended by itself: it wrote nothing to stderr"
    ]


async def test_a_demo_without_progress_fails(
    settings: DemoSettings, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_run, "NO_PROGRESS_TIMEOUT_S", 0.01)
    with pytest.raises(ExceptionGroup) as raised:
        await DemoRun(settings, children, PlainView(Console(quiet=True))).run()
    assert raised.group_contains(
        CommandFailed, match="no progress for .* while waiting for the cluster to start"
    )
