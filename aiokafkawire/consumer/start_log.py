"""Log lines about where reading starts: one line per reason and lookup, not one per partition."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from aiokafkawire.logs import RateLimit, count_partitions, fields_of, list_offsets, list_partitions
from aiokafkawire.types import TopicPartition

from .partition import (
    Ago,
    AwaitingCommitted,
    Listed,
    LogPoint,
    Partition,
    Positioned,
    ResetReason,
    Resetting,
)

if TYPE_CHECKING:
    from .partition import Event, State

__all__ = ("StartLog",)

logger = logging.getLogger("aiokafkawire.consumer")


class StartLog:
    """Logs start positions.

    Args:
        who: Name of the consumer.
        fields: Fields of the consumer.
        policy: `auto_offset_reset`.
    """

    def __init__(self, who: str, fields: Mapping[str, object], policy: str) -> None:
        self._who = who
        self._fields = fields
        self._policy = policy
        self._limit = RateLimit()
        self._sought: dict[TopicPartition, int] = {}

    def sought(self, partition: Partition) -> None:
        """Note the first position of a partition, if `seek` set it; `log_sought` logs it."""
        if partition.position is not None:
            self._sought[partition.tp] = partition.position

    def log_sought(self, now: float) -> None:
        """Log the positions noted since the last call."""
        if self._sought:
            sought, self._sought = self._sought, {}
            self._positions(sought, ResetReason.SEEK, "set by seek()", now)

    def found(
        self,
        asked: Mapping[Partition, State],
        events: Mapping[TopicPartition, Event],
        now: float,
    ) -> None:
        """Log the positions that one lookup has brought; all of `asked` were in one state."""
        was = next(iter(asked.values()), None)
        if isinstance(was, AwaitingCommitted):
            if logger.isEnabledFor(logging.INFO):
                self._committed(asked, now)
        elif isinstance(was, Resetting):
            self._listed(asked, events, now)

    def _committed(self, asked: Iterable[Partition], now: float) -> None:
        committed: dict[TopicPartition, int] = {}
        missing: list[TopicPartition] = []
        for partition in asked:
            if isinstance(partition.state, Resetting):
                missing.append(partition.tp)
            elif isinstance(partition.state, Positioned):
                committed[partition.tp] = partition.state.buffer.position
        if committed:
            self._positions(committed, None, "committed offset", now)
        if missing:
            self._nothing_committed(missing)

    def _listed(
        self,
        asked: Mapping[Partition, State],
        events: Mapping[TopicPartition, Event],
        now: float,
    ) -> None:
        found: dict[tuple[ResetReason, str], dict[TopicPartition, int]] = {}
        for partition, was in asked.items():
            state = partition.state
            if not isinstance(was, Resetting) or not isinstance(state, Positioned):
                continue
            if isinstance(events.get(partition.tp), Listed):
                offsets = found.setdefault((was.why, self._point(was)), {})
                offsets[partition.tp] = state.buffer.position
        for (why, point), offsets in found.items():
            self._positions(offsets, why, point, now)

    def _point(self, state: Resetting) -> str:
        why = state.why
        by = "" if why is ResetReason.SEEK else f"{why.value}: auto_offset_reset={self._policy}, "
        if state.timestamp == LogPoint.EARLIEST:
            return f"{by}beginning of the log"
        if state.timestamp == LogPoint.LATEST:
            return f"{by}end of the log"
        if isinstance(state.timestamp, Ago):
            return f"{by}{state.timestamp.milliseconds / 1_000:g} s ago"
        return f"{by}timestamp {state.timestamp}"

    def _nothing_committed(self, missing: list[TopicPartition]) -> None:
        skips = self._policy == "latest"
        logger.info(
            "%s: no committed offset for %s: %s",
            self._who,
            list_partitions(missing),
            "starting at the end (auto_offset_reset=latest), existing records are skipped"
            if skips
            else f"starting by auto_offset_reset={self._policy}",
            extra=fields_of(
                self._fields,
                partitions=len(missing),
                reset=ResetReason.NOT_COMMITTED.value,
            ),
        )

    def _positions(
        self,
        offsets: Mapping[TopicPartition, int],
        why: ResetReason | None,
        how: str,
        now: float,
    ) -> None:
        level = logging.INFO
        if why in _LOSSES:
            topic = next(iter(offsets)).topic
            level = self._limit.level(logging.WARNING, (why, topic), now)
        logger.log(
            level,
            "%s: start position of %s (%s): %s",
            self._who,
            count_partitions(offsets),
            how,
            list_offsets(offsets),
            extra=fields_of(
                self._fields,
                partitions=len(offsets),
                reset="committed offset" if why is None else why.value,
            ),
        )


_LOSSES = (ResetReason.OUT_OF_RANGE, ResetReason.TRUNCATED)
"""Records were skipped, or are read again."""
