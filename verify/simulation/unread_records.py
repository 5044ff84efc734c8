"""Records in the logs that no consumer was given yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafkawire.broker import Broker
from verify.invariants.broker_observer import read_log
from verify.invariants.events import Opened, Polled
from verify.invariants.observed import Log
from verify.invariants.recorder import Recorder

__all__ = ("UnreadRecords",)

SEEN = ("none", "committed")
"""Transaction outcomes whose records `read_committed` consumers see."""


class UnreadRecords:
    """Compares logs with a growing history; unchanged logs are not read again.

    Records are compared by value, as a recreated topic reuses offsets.
    """

    def __init__(self, broker: Broker, recorder: Recorder) -> None:
        self._broker = broker
        self._history = recorder.history
        self._processed_events = 0
        self._groups: dict[str, str | None] = {}
        self._given: dict[tuple[str | None, str, int], set[bytes]] = {}
        self._logs: dict[tuple[str, int], tuple[tuple[Any, int, int], Log]] = {}

    def missing(
        self, topics: Sequence[str], *, committed: bool = False, group: str | None = None
    ) -> list[tuple[str, int, int]]:
        """Return topic, partition and offset of each record that no consumer (or no member of the
        group) was given.

        `committed`: ignore records of open and aborted transactions.
        """
        self._process_events()
        found = []
        for topic in topics:
            for partition in range(self._broker.topics.get(topic, 0)):
                given = self._given.get((group, topic, partition), set())
                found += [
                    (topic, partition, record.offset)
                    for record in self.log(topic, partition).records
                    if record.value not in given and (not committed or record.fate in SEEN)
                ]
        return found

    def log(self, topic: str, partition: int) -> Log:
        """Return the current contents of a partition."""
        end = self._broker.end_offset(topic, partition)
        # A recreated partition is another object.
        which = self._broker._partition(topic, partition)
        state = (which, end, self._broker.leader_epoch(topic, partition))
        kept = self._logs.get((topic, partition))
        if kept is None or kept[0] != state:
            kept = self._logs[topic, partition] = (state, read_log(self._broker, topic, partition))
        return kept[1]

    def forget(self, topic: str, partition: int) -> None:
        """Read the log again: it has changed before its end."""
        self._logs.pop((topic, partition), None)

    def _process_events(self) -> None:
        for event in self._history[self._processed_events :]:
            if isinstance(event, Opened):
                self._groups[event.client] = event.options.get("group_id")
            elif isinstance(event, Polled):
                values = [value for _, value in event.records]
                for group in (None, self._groups.get(event.client)):
                    key = (group, event.topic, event.partition)
                    self._given.setdefault(key, set()).update(values)
        self._processed_events = len(self._history)
