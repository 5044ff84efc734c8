"""Log lines about where reading starts: one line per reason and lookup, not one per partition."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from aiokafkawire.logs import RateLimit, count_partitions, list_offsets, log_fields
from aiokafkawire.types import TopicPartition

from .partition import AssignedPartition
from .partition_states import (
    AwaitingCommitted,
    BeforeNow,
    Fetching,
    OffsetListed,
    PositionTarget,
    ResetReason,
    Resetting,
)

if TYPE_CHECKING:
    from .partition_states import Event, State

__all__ = ("StartPositionLog",)

logger = logging.getLogger("aiokafkawire.consumer")


class StartPositionLog:
    """Logs start positions.

    Args:
        log_prefix: Name of the consumer.
        fields: Fields of the consumer.
        policy: `auto_offset_reset`.
    """

    def __init__(self, log_prefix: str, fields: Mapping[str, object], policy: str) -> None:
        self._log_prefix = log_prefix
        self._fields = fields
        self._policy = policy
        self._rate_limit = RateLimit()
        self._seeks: dict[TopicPartition, int] = {}

    def note_seek(self, partition: AssignedPartition) -> None:
        """Note the first position of a partition, if `seek` set it; `log_seeks` logs it."""
        if partition.position is not None:
            self._seeks[partition.tp] = partition.position

    def log_seeks(self, now: float) -> None:
        """Log the positions noted since the last call."""
        if self._seeks:
            seeks, self._seeks = self._seeks, {}
            self._positions(seeks, ResetReason.SEEK, "set by seek()", now)

    def log_lookup(
        self,
        lookups: Mapping[AssignedPartition, State],
        events: Mapping[TopicPartition, Event],
        now: float,
    ) -> None:
        """Log the positions found by one request. All of `lookups` were in the same state."""
        previous_state = next(iter(lookups.values()), None)
        if isinstance(previous_state, AwaitingCommitted):
            if logger.isEnabledFor(logging.INFO):
                self._committed(lookups, now)
        elif isinstance(previous_state, Resetting):
            self._listed(lookups, events, now)

    def _committed(self, lookups: Iterable[AssignedPartition], now: float) -> None:
        # Partitions without a committed offset are logged once their reset has found a position.
        committed = {
            partition.tp: partition.state.buffer.position
            for partition in lookups
            if isinstance(partition.state, Fetching)
        }
        if committed:
            self._positions(committed, None, "committed offset", now)

    def _listed(
        self,
        lookups: Mapping[AssignedPartition, State],
        events: Mapping[TopicPartition, Event],
        now: float,
    ) -> None:
        offsets_by_start: dict[tuple[ResetReason, str], dict[TopicPartition, int]] = {}
        for partition, previous_state in lookups.items():
            state = partition.state
            if not isinstance(previous_state, Resetting) or not isinstance(state, Fetching):
                continue
            if isinstance(events.get(partition.tp), OffsetListed):
                offsets = offsets_by_start.setdefault(
                    (previous_state.reason, self._point(previous_state)), {}
                )
                offsets[partition.tp] = state.buffer.position
        for (reason, point), offsets in offsets_by_start.items():
            self._positions(offsets, reason, point, now)

    def _point(self, state: Resetting) -> str:
        reason = state.reason
        by = (
            ""
            if reason is ResetReason.SEEK
            else f"{reason.value}: auto_offset_reset={self._policy}, "
        )
        if state.timestamp == PositionTarget.EARLIEST:
            return f"{by}beginning of the log"
        if state.timestamp == PositionTarget.LATEST:
            skips = reason is ResetReason.NOT_COMMITTED
            return f"{by}end of the log{', existing records are skipped' if skips else ''}"
        if isinstance(state.timestamp, BeforeNow):
            return f"{by}{state.timestamp.milliseconds / 1_000:g} s ago"
        return f"{by}timestamp {state.timestamp}"

    def _positions(
        self,
        offsets: Mapping[TopicPartition, int],
        reason: ResetReason | None,
        how: str,
        now: float,
    ) -> None:
        level = logging.INFO
        if reason in _LOSSES:
            topic = next(iter(offsets)).topic
            level = self._rate_limit.level(logging.WARNING, (reason, topic), now)
        logger.log(
            level,
            "%s: start position of %s (%s): %s",
            self._log_prefix,
            count_partitions(offsets),
            how,
            list_offsets(offsets),
            extra=log_fields(
                self._fields,
                partitions=len(offsets),
                reset="committed offset" if reason is None else reason.value,
            ),
        )


_LOSSES = (ResetReason.OUT_OF_RANGE, ResetReason.TRUNCATED)
"""Reasons for which records were skipped or are read again: logged as warnings."""
