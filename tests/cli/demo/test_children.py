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
from aiokafkawire.cli.demo.children import Commands, send_event

async def main():
    send_event("ready")
    commands = Commands()
    while (words := await commands.next()) is not None:
        send_event("received", words=words)

anyio.run(main)
"""
DEAF = """
import signal, sys, time
from aiokafkawire.cli.demo.children import send_event
print("a warning", "the last words", sep="\\n", file=sys.stderr, flush=True)
send_event("ready")
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


async def events_of(child: Child, events: list[dict[str, Any]], ready: anyio.Event) -> None:
    def on_event(event: dict[str, Any]) -> None:
        events.append(event)
        ready.set()

    await child.listen(on_event)


async def test_a_child_exchanges_messages_and_stops_when_asked(children: Children) -> None:
    child = children.start("echo", "kw_echo")
    events: list[dict[str, Any]] = []
    ready = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(events_of, child, events, ready)
        child.send("kill", 3)
        child.send("start", 3)
        assert await child.stop()
    assert [event.get("words") for event in events] == [None, ["kill", "3"], ["start", "3"]]
    child.send("late")
    assert child.expected_to_end
    children.reap_all()
    assert not alive(child.pid)


async def test_a_child_that_does_not_stop_is_killed(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiokafkawire.cli.demo.children.STOP_TIMEOUT_S", 0.05)
    child = children.start("deaf one", "kw_deaf")
    events: list[dict[str, Any]] = []
    ready = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(events_of, child, events, ready)
        await ready.wait()
        assert not await child.stop()
    assert events == [{"event": "ready"}]
    assert child.last_stderr_line() == "the last words"


async def test_kill_all_ends_every_child(children: Children) -> None:
    started = [children.start(f"n{number}", "kw_deaf") for number in range(3)]
    assert all(alive(child.pid) for child in started)
    assert os.getpgid(started[0].pid) != os.getpgid(0)
    children.kill_all()
    children.reap_all()
    children.reap_all()
    assert not any(alive(child.pid) for child in started)


def test_the_last_stderr_line_of_a_silent_child(children: Children) -> None:
    child = children.start("echo", "kw_echo")
    children.reap_all()
    assert child.last_stderr_line() == "it wrote nothing to stderr"
