"""Notices when the run of an item waits."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from aiokafkawire.worker.partition_work import WorkItem

__all__ = ("note_wait",)


@types.coroutine
def note_wait(
    run: Coroutine[Any, Any, None], item: WorkItem, now: Callable[[], float]
) -> Generator[Any, Any, None]:
    """Await the run of an item; when it first waits, note it before other tasks run."""
    resume, argument = run.send, None
    while True:
        try:
            awaited = resume(argument)
        except StopIteration:
            return
        if not item.needs_checks:
            item.started = now()
            # mutation: wait-of-handler-not-noticed
            item.needs_checks = True
        try:
            argument, resume = (yield awaited), run.send
        except GeneratorExit:
            run.close()
            raise
        except BaseException as error:
            argument, resume = error, run.throw
