"""Persisted state of share partitions: what Kafka's share coordinator keeps.

The records are those of Kafka's `__share_group_state`: a snapshot of a share partition, then
updates with the ranges that changed.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.broker.share.in_flight import RecordState, StateBatch
from aiokafkawire.broker.share.share_partition import StateUpdate
from aiokafkawire.broker.storage import Store
from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime import Clock
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.codec import decode, encode
from aiokafkawire.wire.messages import share_state_records as messages

__all__ = ("NO_START_OFFSET", "SharePartitionKey", "SharePersister", "ShareState")

NO_START_OFFSET = -1
"""Start offset of a share partition whose records nobody has acknowledged yet."""

SNAPSHOT, UPDATE = 0, 1
VALUE_VERSION = 0
_INT16 = struct.Struct(">h")


class SharePartitionKey(NamedTuple):
    """Identifies a share partition."""

    group_id: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """State of a share partition. The state epoch grows when its offsets are reset."""

    start_offset: int = NO_START_OFFSET
    state_epoch: int = 0
    leader_epoch: int = 0
    delivery_complete_count: int = 0
    batches: tuple[StateBatch, ...] = ()

    def updated(self, update: StateUpdate, leader_epoch: int) -> ShareState:
        """Return the state after an update."""
        return replace(
            self,
            start_offset=update.start_offset,
            leader_epoch=leader_epoch,
            delivery_complete_count=update.delivery_complete_count,
            batches=_merged(self.batches, update.batches, update.start_offset),
        )


class SharePersister:
    """States of all share partitions, which outlive their leaders and, on disk, the broker."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._lines = store.share_state
        self._clock = clock
        self._states: dict[SharePartitionKey, ShareState] = {}
        for line in self._lines.load():
            self._load(line)

    def read(self, key: SharePartitionKey) -> ShareState | None:
        """Return the state of a share partition, None if it is not initialized."""
        return self._states.get(key)

    def initialize(self, key: SharePartitionKey, start_offset: int, state_epoch: int) -> None:
        """Start a share partition at an offset, without records in flight.

        Raises:
            StorageError: The state was not stored.
        """
        before = self._states.get(key, ShareState())
        state = ShareState(start_offset, state_epoch, before.leader_epoch)
        self._append([self._snapshot(key, state)])
        self._states[key] = state

    def write(self, key: SharePartitionKey, update: StateUpdate, leader_epoch: int) -> None:
        """Store a change of a share partition.

        Raises:
            StorageError: The change was not stored.
        """
        before = self._states.get(key)
        if before is None:
            return  # its topic or group was deleted
        value = messages.ShareUpdateValue(
            snapshot_epoch=0,
            leader_epoch=leader_epoch,
            start_offset=update.start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=_to_wire(update.batches),
        )
        stale = self._append([_to_line(UPDATE, key, value)])
        self._states[key] = before.updated(update, leader_epoch)
        if stale:
            snapshots = [self._snapshot(*each) for each in self._states.items()]
            self._lines.rewrite(snapshots)

    def delete(self, keys: Iterable[SharePartitionKey]) -> None:
        """Delete the states of share partitions. Raises `StorageError`."""
        known = [key for key in keys if key in self._states]
        if known:
            self._append([_to_line(SNAPSHOT, key, None) for key in known])
        for key in known:
            del self._states[key]

    def __iter__(self) -> Iterator[SharePartitionKey]:
        """Iterate over the share partitions that are initialized."""
        return iter(list(self._states))

    # --- the store ---------------------------------------------------------------------------

    def _append(self, lines: list[dict[str, Any]]) -> bool:
        try:
            return self._lines.append(lines, len(self._states))
        except StorageError as error:
            raise StorageError(ErrorCode.NOT_COORDINATOR, error.message) from error

    def _snapshot(self, key: SharePartitionKey, state: ShareState) -> dict[str, Any]:
        now_ms = self._clock.wall_ms()
        value = messages.ShareSnapshotValue(
            snapshot_epoch=0,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
            state_batches=_to_wire(state.batches),
        )
        return _to_line(SNAPSHOT, key, value)

    def _load(self, line: dict[str, Any]) -> None:
        try:
            key_data, value = b64decode(line["key"]), line["value"]
            kind = _INT16.unpack_from(key_data)[0]
            # Snapshots and updates have the same key.
            found = decode(messages.ShareSnapshotKey, 0, key_data[_INT16.size :])
            key = SharePartitionKey(found.group_id, found.topic_id, found.partition)
            data = None if value is None else b64decode(value)[_INT16.size :]
            if data is None:
                self._states.pop(key, None)
            elif kind == SNAPSHOT:
                snapshot = decode(messages.ShareSnapshotValue, VALUE_VERSION, data)
                self._states[key] = ShareState(
                    snapshot.start_offset,
                    snapshot.state_epoch,
                    snapshot.leader_epoch,
                    max(snapshot.delivery_complete_count, 0),
                    _from_wire(snapshot.state_batches),
                )
            elif key in self._states:
                self._apply(key, decode(messages.ShareUpdateValue, VALUE_VERSION, data))
        except (KafkaError, KeyError, TypeError, ValueError, struct.error) as error:
            raise KafkaError(f"the stored share state is damaged: {error!r} in {line!r}") from error

    def _apply(self, key: SharePartitionKey, value: messages.ShareUpdateValue) -> None:
        update = StateUpdate(
            value.start_offset,
            max(value.delivery_complete_count, 0),
            _from_wire(value.state_batches),
        )
        self._states[key] = self._states[key].updated(update, value.leader_epoch)


def _merged(
    before: tuple[StateBatch, ...], changed: tuple[StateBatch, ...], start: int
) -> tuple[StateBatch, ...]:
    """Return ranges in order; changed ones replace what they overlap, finished ones are dropped."""
    left = list(before)
    for change in changed:
        kept = []
        for each in left:
            if each.last < change.first or each.first > change.last:
                kept.append(each)
                continue
            if each.first < change.first:
                kept.append(replace(each, last=change.first - 1))
            if each.last > change.last:
                kept.append(replace(each, first=change.last + 1))
        kept.append(change)
        left = kept
    left.sort(key=lambda each: each.first)
    merged: list[StateBatch] = []
    for batch in left:
        if batch.last < start:
            continue
        each = replace(batch, first=max(batch.first, start))
        previous = merged[-1] if merged else None
        if (
            previous is not None
            and replace(previous, last=each.last) == replace(each, first=previous.first)
            and previous.last + 1 == each.first
        ):
            merged[-1] = replace(previous, last=each.last)
        else:
            merged.append(each)
    return tuple(merged)


def _to_wire(batches: Iterable[StateBatch]) -> list[messages.ShareStateBatch]:
    return [
        messages.ShareStateBatch(
            first_offset=each.first,
            last_offset=each.last,
            delivery_state=each.state,
            delivery_count=each.delivery_count,
        )
        for each in batches
    ]


def _from_wire(batches: Iterable[messages.ShareStateBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(
            each.first_offset,
            each.last_offset,
            RecordState(each.delivery_state),
            each.delivery_count,
        )
        for each in batches
    )


def _to_line(
    kind: int,
    key: SharePartitionKey,
    value: messages.ShareSnapshotValue | messages.ShareUpdateValue | None,
) -> dict[str, Any]:
    key_class = messages.ShareSnapshotKey if kind == SNAPSHOT else messages.ShareUpdateKey
    key_data = _INT16.pack(kind) + encode(key_class(**key._asdict()), 0)
    value_data = (
        None if value is None else _INT16.pack(VALUE_VERSION) + encode(value, VALUE_VERSION)
    )
    return {
        "key": b64encode(key_data).decode(),
        "value": None if value_data is None else b64encode(value_data).decode(),
    }
