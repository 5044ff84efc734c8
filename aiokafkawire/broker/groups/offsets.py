"""Committed offsets of groups, including those that old clients commit to ZooKeeper."""

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
    """Storage of committed offsets; v0 of OffsetCommit and OffsetFetch uses ZooKeeper."""

    KAFKA = "kafka"
    ZOOKEEPER = "zookeeper"


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str


MAX_KEYS = 20_000
"""Limit of groups with offsets, including those in ZooKeeper."""

Offsets = dict[TopicPartition, CommittedOffset]
Key = tuple[OffsetsStorage, str]


class OffsetStore:
    """Committed offsets of all groups, bounded by groups times partitions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._groups: dict[Key, Offsets] = {}
        self._unwritten_deletions: list[dict[str, Any]] = []
        for line in store.load_offsets():
            self._load(line)

    def groups(self) -> Iterator[str]:
        """Return the groups with an offset in Kafka."""
        return (
            group
            for (storage, group), offsets in self._groups.items()
            if storage is OffsetsStorage.KAFKA and offsets
        )

    def committed(
        self, group: str, storage: OffsetsStorage = OffsetsStorage.KAFKA
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group."""
        return self._groups.get((storage, group), MappingProxyType({}))

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        storage: OffsetsStorage = OffsetsStorage.KAFKA,
    ) -> None:
        """Commit offsets; they replace earlier ones.

        Raises:
            ApiError: There are too many groups.
            StorageError: The offsets were not stored, and the earlier ones remain.
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
        """Delete committed offsets of some partitions.

        Raises:
            StorageError: The offsets were not deleted.
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
        """Delete all offsets of a deleted topic.

        Deletions that cannot be stored now are stored later, as the topic is already gone.
        """
        for (storage, group), offsets in self._groups.items():
            for tp in [tp for tp in offsets if tp.topic == topic]:
                del offsets[tp]
                self._unwritten_deletions.append(_to_line(storage, group, tp, None))
        with contextlib.suppress(StorageError):
            self.flush_deletions()

    def delete_missing_topics(self, topics: Container[str]) -> None:
        """Delete offsets of topics whose deletion could not be stored."""
        known = dict.fromkeys(tp.topic for offsets in self._groups.values() for tp in offsets)
        for topic in known:
            if topic not in topics:
                self.delete_topic(topic)

    def flush_deletions(self) -> None:
        """Store deletions that `delete_topic` could not store. Raises `StorageError`."""
        if self._unwritten_deletions:
            self._compact_if(self._append([]))

    def _append(self, lines: list[dict[str, Any]]) -> bool:
        """Store lines after pending deletions; return True if most of the file is stale."""
        live = sum(len(offsets) for offsets in self._groups.values())
        try:
            stale = self._store.append_offsets([*self._unwritten_deletions, *lines], live)
        except StorageError as error:
            # Kafka answers this if it cannot write to the partition of __consumer_offsets.
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
            raise KafkaError(f"the stored offsets are damaged: {error!r} in {line!r}") from error
        self._groups.setdefault(key, {})[tp] = entry


def _to_line(
    storage: OffsetsStorage, group: str, tp: TopicPartition, entry: CommittedOffset | None
) -> dict[str, Any]:
    """Return a line of the store; an offset of None is a deletion."""
    where = {"storage": storage, "group": group, "topic": tp.topic, "partition": tp.partition}
    if entry is None:
        return {**where, "offset": None}
    return {
        **where,
        "offset": entry.offset,
        "leader_epoch": entry.leader_epoch,
        "metadata": entry.metadata,
    }
