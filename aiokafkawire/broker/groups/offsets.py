"""Committed offsets, of groups and of those old clients that commit to ZooKeeper."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.storage import Store
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode

__all__ = ("CommittedOffset", "OffsetStore", "OffsetsStorage")


class OffsetsStorage(StrEnum):
    """Version 0 of OffsetCommit and OffsetFetch means another place than later versions."""

    KAFKA = "kafka"
    ZOOKEEPER = "zookeeper"


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str


MAX_KEYS = 20_000
"""Groups that have offsets, those in ZooKeeper's place included."""

Offsets = dict[TopicPartition, CommittedOffset]
Key = tuple[OffsetsStorage, str]


class OffsetStore:
    """The offsets of all groups. It is bounded by what exists: groups times partitions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._groups: dict[Key, Offsets] = {}
        self._unwritten_deletions: list[dict[str, Any]] = []
        for line in store.load_offsets():
            self._load(line)

    def groups(self) -> Iterator[str]:
        """The groups that have an offset in Kafka."""
        return (
            group
            for (storage, group), offsets in self._groups.items()
            if storage is OffsetsStorage.KAFKA and offsets
        )

    def committed(
        self, group: str, storage: OffsetsStorage = OffsetsStorage.KAFKA
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """What a group has committed."""
        return self._groups.get((storage, group), MappingProxyType({}))

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        storage: OffsetsStorage = OffsetsStorage.KAFKA,
    ) -> None:
        """Keep offsets; later ones replace earlier ones.

        Raises:
            ApiError: There are too many groups.
            StorageError: The offsets are not stored, and the earlier ones stay.
        """
        if offsets:
            if (storage, group) not in self._groups and len(self._groups) >= MAX_KEYS:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many groups have offsets")
            stale = self._append(
                [_to_line(storage, group, tp, entry) for tp, entry in offsets.items()]
            )
            self._groups.setdefault((storage, group), {}).update(offsets)
            self._compact_if(stale)

    def delete(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group committed for some partitions, if it did.

        Raises:
            StorageError: The offsets are kept.
        """
        key = OffsetsStorage.KAFKA, group
        offsets = self._groups.get(key, {})
        deleted = [tp for tp in dict.fromkeys(partitions) if tp in offsets]
        stale = bool(deleted) and self._append([_to_line(*key, tp, None) for tp in deleted])
        for tp in deleted:
            del offsets[tp]
        if not offsets:
            self._groups.pop(key, None)
        self._compact_if(stale)

    def delete_topic(self, topic: str) -> None:
        """Forget all offsets of a deleted topic; lines that cannot be stored now are stored later.

        The topic is deleted already, so that this cannot be refused.
        """
        for (storage, group), offsets in self._groups.items():
            for tp in [tp for tp in offsets if tp.topic == topic]:
                del offsets[tp]
                self._unwritten_deletions.append(_to_line(storage, group, tp, None))
        with contextlib.suppress(StorageError):
            self.flush_deletions()

    def delete_missing_topics(self, topics: Container[str]) -> None:
        """Forget the offsets of topics that were deleted when it could not be stored."""
        known = dict.fromkeys(tp.topic for offsets in self._groups.values() for tp in offsets)
        for topic in known:
            if topic not in topics:
                self.delete_topic(topic)

    def flush_deletions(self) -> None:
        """Store what `delete_topic` could not store. Raises `StorageError`."""
        if self._unwritten_deletions:
            self._compact_if(self._append([]))

    def _append(self, lines: list[dict[str, Any]]) -> bool:
        """Store lines after those of deleted topics; return whether most of the file is stale."""
        live = sum(len(offsets) for offsets in self._groups.values())
        try:
            stale = self._store.append_offsets([*self._unwritten_deletions, *lines], live)
        except StorageError as error:
            # Kafka's answer where the partition of __consumer_offsets cannot be written.
            raise StorageError(ErrorCode.NOT_COORDINATOR, error.message) from error
        self._unwritten_deletions.clear()
        return stale

    def _compact_if(self, stale: bool) -> None:
        if stale:
            self._store.rewrite_offsets(
                [
                    _to_line(storage, group, tp, entry)
                    for (storage, group), offsets in self._groups.items()
                    for tp, entry in offsets.items()
                ]
            )

    def _load(self, line: Mapping[str, Any]) -> None:
        try:
            key = OffsetsStorage(line["storage"]), str(line["group"])
            tp = TopicPartition(str(line["topic"]), int(line["partition"]))
            if line["offset"] is None:
                self._groups.get(key, {}).pop(tp, None)
                return
            entry = CommittedOffset(
                int(line["offset"]), int(line["leader_epoch"]), str(line["metadata"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise KafkaError(f"the saved offsets are damaged: {error!r} in {line!r}") from error
        self._groups.setdefault(key, {})[tp] = entry


def _to_line(
    storage: OffsetsStorage, group: str, tp: TopicPartition, entry: CommittedOffset | None
) -> dict[str, Any]:
    """One line of the store; an offset of None says that it was deleted."""
    where = {"storage": storage, "group": group, "topic": tp.topic, "partition": tp.partition}
    if entry is None:
        return {**where, "offset": None}
    return {
        **where,
        "offset": entry.offset,
        "leader_epoch": entry.leader_epoch,
        "metadata": entry.metadata,
    }
