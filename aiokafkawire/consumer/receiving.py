"""Calls the hook for received records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiokafkawire.hooks import HookFunctions, RecordsReceived
from aiokafkawire.records import Record
from aiokafkawire.runtime import Clock
from aiokafkawire.types import TopicPartition

__all__ = ("Receiving",)


class Receiving:
    """A call of a consumer that may return records."""

    __slots__ = ("_began", "_clock", "_hook")

    def __init__(self, hook: Callable[[RecordsReceived], None], clock: Clock) -> None:
        self._hook = hook
        self._clock = clock
        self._began = clock.now()

    @classmethod
    def begin(cls, hooks: HookFunctions, clock: Clock) -> Receiving | None:
        """Return a call that begins now; None without a hook."""
        hook = hooks.on_records_received
        return None if hook is None else cls(hook, clock)

    def end(self, records: Mapping[TopicPartition, Sequence[Record[Any, Any]]]) -> None:
        """Call the hook, unless there are no records."""
        if records:
            self._hook(RecordsReceived(records, self._clock.now() - self._began))
