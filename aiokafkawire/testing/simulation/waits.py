"""Who waits for what: the frames of a suspended task."""

from __future__ import annotations

from pathlib import PurePath
from types import FrameType
from typing import Any, NamedTuple

__all__ = ("Waiting", "waiting")

MAX_FRAMES = 100
"""How deep a chain of awaits is followed."""

SHOWN_FRAMES = 4

PACKAGE = __name__.partition(".")[0]


class Waiting(NamedTuple):
    """A task and where it is suspended, from the outside inwards."""

    task: str
    where: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.task}: {' > '.join(self.where) or 'not started'}"


def waiting(task: str, coroutine: Any) -> Waiting:
    """Follow a suspended coroutine inwards; the last frames that are not a library's are shown."""
    frames: list[FrameType] = []
    for _ in range(MAX_FRAMES):
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            frames.append(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
        if coroutine is None:
            break
    own = [frame for frame in frames if "site-packages" not in frame.f_code.co_filename]
    return Waiting(task, tuple(map(_place, (own or frames)[-SHOWN_FRAMES:])))


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_qualname} ({PurePath(code.co_filename).name}:{frame.f_lineno})"
