from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokafkawire.cli.demo.children import Child, Children

ECHO = """
import anyio
from aiokafkawire.cli.demo.children import Commands, tell

async def main():
    tell("ready")
    commands = Commands()
    while (words := await commands.next()) is not None:
        tell("heard", words=words)

anyio.run(main)
"""
DEAF = """
import signal, sys, time
from aiokafkawire.cli.demo.children import tell
print("a warning", "the last words", sep="\\n", file=sys.stderr, flush=True)
tell("ready")
time.sleep(600)
"""


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Children]:
    for name, text in (("kw_echo", ECHO), ("kw_deaf", DEAF)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    monkeypatch.setenv("PYTHONPATH", path)
    children = Children(tmp_path)
    yield children
    children.reap_all()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def events_of(child: Child, told: list[dict[str, Any]], ready: anyio.Event) -> None:
    def hear(event: dict[str, Any]) -> None:
        told.append(event)
        ready.set()

    await child.listen(hear)


async def test_a_child_hears_and_tells_and_ends_when_asked(children: Children) -> None:
    child = children.start("echo", "kw_echo")
    told: list[dict[str, Any]] = []
    ready = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(events_of, child, told, ready)
        child.send("kill", 3)
        child.send("start", 3)
        assert await child.stop()
    assert [event.get("words") for event in told] == [None, ["kill", "3"], ["start", "3"]]
    child.send("late")
    assert child.expected_to_end
    children.reap_all()
    assert not alive(child.pid)


async def test_a_deaf_child_is_killed(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokafkawire.cli.demo.children.STOP_TIMEOUT_S", 0.05)
    child = children.start("deaf one", "kw_deaf")
    told: list[dict[str, Any]] = []
    ready = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(events_of, child, told, ready)
        await ready.wait()
        assert not await child.stop()
    assert told == [{"event": "ready"}]
    assert child.last_words() == "the last words"


async def test_killing_all_leaves_nobody(children: Children) -> None:
    started = [children.start(f"n{number}", "kw_deaf") for number in range(3)]
    assert all(alive(child.pid) for child in started)
    assert os.getpgid(started[0].pid) != os.getpgid(0)
    children.kill_all()
    children.reap_all()
    children.reap_all()
    assert not any(alive(child.pid) for child in started)


def test_a_child_that_said_nothing(children: Children) -> None:
    child = children.start("echo", "kw_echo")
    children.reap_all()
    assert child.last_words() == "it said nothing"
