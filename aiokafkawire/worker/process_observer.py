"""Calls the hooks of a worker for each attempt to process records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokafkawire.hooks import HookFunctions, Processing
from aiokafkawire.worker.partition_work import WorkItem

__all__ = ("ProcessObserver",)


class ProcessObserver:
    """Calls the hooks at the start and the end of each attempt."""

    def __init__(self, hooks: HookFunctions) -> None:
        self._on_begun = hooks.on_process_begun
        self._on_ended = hooks.on_process_ended

    @classmethod
    def of(cls, hooks: HookFunctions) -> ProcessObserver | None:
        """Return an observer, or None without hooks for attempts."""
        if hooks.on_process_begun is None and hooks.on_process_ended is None:
            return None
        return cls(hooks)

    @contextmanager
    def observe(self, item: WorkItem, number: int) -> Iterator[Processing]:
        """Call the hooks before and after an attempt with the next records of an item."""
        processing = Processing(
            item.records[item.index : item.index + number],
            item.handler.batch is not None,
            item.failures.total_attempts + 1,
        )
        if self._on_begun is not None:
            self._on_begun(processing)
        try:
            yield processing
        except BaseException as error:
            processing.error = processing.error or error
            raise
        finally:
            if self._on_ended is not None:
                self._on_ended(processing)
