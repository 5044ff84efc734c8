"""Dump of waiting tasks: the frames of a suspended task."""

from __future__ import annotations

import asyncio
import linecache
from pathlib import Path, PurePath
from types import FrameType
from typing import Any, NamedTuple

from aiokafkawire.runtime import NEVER

__all__ = ("SuspendedTask", "waiting")

MAX_FRAMES = 100
"""Depth limit of a chain of awaits."""

SHOWN_FRAMES = 5

OWN_WAIT_METHODS = (
    "aiokafkawire/runtime/sync.py",
    "aiokafkawire/testing/simulation/clock.py",
)
LIBRARIES = ("site-packages", str(Path(asyncio.__file__).parent), *OWN_WAIT_METHODS)
"""Parts of the paths of files whose frames are hidden, because they do not show the purpose."""

START = "Supervisor._run_task"
"""Function in which every task of a client starts."""


class SuspendedTask(NamedTuple):
    """A task: its suspended frames from the outside in, the line that awaits, the deadline."""

    task: str
    where: tuple[str, ...]
    line: str = ""
    until: float = NEVER

    def __str__(self) -> str:
        waits = f": {self.line}" if self.line else ""
        until = "" if self.until == NEVER else f" (until {self.until:.3f} s)"
        return f"{self.task}: {' > '.join(self.where) or 'not started'}{waits}{until}"


def waiting(task: str, coroutine: Any) -> SuspendedTask:
    """Return the state of a suspended task: its innermost frames outside of libraries."""
    frames: list[FrameType] = []
    for _ in range(MAX_FRAMES):
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            frames.append(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
        if coroutine is None:
            break
    own = [frame for frame in frames if not _of_a_library(frame)] or frames[-1:]
    line = linecache.getline(own[-1].f_code.co_filename, own[-1].f_lineno).strip() if own else ""
    until = min([NEVER, *map(_deadline, frames)])
    return SuspendedTask(task, tuple(map(_place, own[-SHOWN_FRAMES:])), line, until)


def _of_a_library(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_qualname == START or any(name in code.co_filename for name in LIBRARIES)


def _deadline(frame: FrameType) -> float:
    """Return the deadline of a wait."""
    if not frame.f_code.co_filename.endswith(OWN_WAIT_METHODS):
        return NEVER
    deadline = frame.f_locals.get("deadline", NEVER)
    return deadline if isinstance(deadline, float | int) else NEVER


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_qualname} ({PurePath(code.co_filename).name}:{frame.f_lineno})"
