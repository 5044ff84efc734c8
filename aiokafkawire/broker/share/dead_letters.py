"""Dead-letter queues of share groups (KIP-1191): archived records are written to a topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.broker.share.configs import ShareGroupConfigs
from aiokafkawire.broker.share.persister import SharePartitionKey
from aiokafkawire.broker.share.share_partition import GivenUpRecords
from aiokafkawire.broker.topics import Partition, Topic
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.records.broker_records import assign_offsets
from aiokafkawire.records.builder import BatchBuilder
from aiokafkawire.runtime import Clock
from aiokafkawire.wire import ErrorCode

__all__ = ("DeadLetterQueue",)

logger = logging.getLogger("aiokafkawire.broker")

TOPIC_PREFIX = "dlq."
"""Kafka's default of `errors.deadletterqueue.topic.name.prefix`."""

TOPIC_CONFIG = "errors.deadletterqueue.group.enable"

Headers = list[tuple[str, bytes]]
KeyAndValue = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """Writes records that share groups give up to their dead-letter topics.

    Attributes:
        cluster: The topics.
        configs: Configs of the groups and topics.
        clock: Gives the timestamps.
        is_enabled: Returns whether the feature share.version allows dead-letter topics.
        leader_replica: Returns the leader's view of a partition, None without a leader.
    """

    cluster: ClusterState
    configs: ShareGroupConfigs
    clock: Clock
    is_enabled: Callable[[], bool]
    leader_replica: Callable[[Partition], Partition | None]

    def write(
        self, key: SharePartitionKey, source: Partition, given_up: Iterable[GivenUpRecords]
    ) -> None:
        """Write records to the dead-letter topic of their group, if it has one.

        A failure is logged: the records are archived in any case, as in Kafka.
        """
        name = self.configs.dead_letter_topic(key.group_id)
        if not name or not self.is_enabled():
            return
        try:
            self._append(key, source, self._find_topic(name), given_up)
        except (ApiError, CorruptRecord) as error:
            logger.warning(
                "Share group %s: cannot write dead letters to topic %s: %s",
                key.group_id,
                name,
                error,
            )

    def _find_topic(self, name: str) -> Topic:
        """Return the topic. Raises `ApiError` if it does not exist or is no dead-letter topic."""
        topic = self.cluster.topic(name)
        if not name.startswith(TOPIC_PREFIX):
            raise _refusal(f"its name does not start with {TOPIC_PREFIX}")
        if topic.configs.get(TOPIC_CONFIG) != "true":
            raise _refusal(f"it does not have {TOPIC_CONFIG}=true")
        return topic

    def _append(
        self,
        key: SharePartitionKey,
        source: Partition,
        topic: Topic,
        given_up: Iterable[GivenUpRecords],
    ) -> None:
        partition = topic.partitions[key.partition % len(topic.partitions)]
        found = self.leader_replica(partition)
        if found is None:
            raise _refusal(f"partition {partition.index} has no leader")
        copies = self.configs.copies_dead_letters(key.group_id)
        node_id = partition.leader
        max_bytes = int(self.cluster.topic_config(topic, "max.message.bytes", node_id))
        builder = BatchBuilder(max_bytes=max_bytes)
        now_ms = self.clock.wall_ms()
        for each in given_up:
            records = dict(_read(source.log, each.first, each.last)) if copies else {}
            for offset in range(each.first, each.last + 1):
                letter = (*records.get(offset, (None, None)), _headers(key, source, offset, each))
                if builder.append(now_ms, *letter) is None:
                    _store(found, builder)
                    builder = BatchBuilder(max_bytes=max_bytes)
                    builder.append(now_ms, *letter)
        _store(found, builder)


def _refusal(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, reason)


def _read(log: PartitionLog, first: int, last: int) -> Iterator[tuple[int, KeyAndValue]]:
    """Yield offset, key and value of the records in a range."""
    size = sum(batch.size_bytes for batch in log.batches_from(first) if batch.base_offset <= last)
    for view in iter_batches(log.read(first, size)):
        if view.is_control:
            continue
        columns = view.columns()
        for index, offset in enumerate(columns.offsets):
            if first <= offset <= last:
                yield offset, (columns.key(index), columns.value(index))


def _headers(
    key: SharePartitionKey, source: Partition, offset: int, given_up: GivenUpRecords
) -> Headers:
    """Return the headers of a dead letter, all of them text."""
    values = {
        "topic": source.topic,
        "partition": key.partition,
        "offset": offset,
        "group": key.group_id,
        "delivery.count": given_up.delivery_count,
        "message": given_up.cause,
    }
    return [(f"__dlq.errors.{name}", str(value).encode()) for name, value in values.items()]


def _store(partition: Partition, builder: BatchBuilder) -> None:
    """Append a batch to the dead-letter topic."""
    if not builder.count:
        return
    log = partition.log
    (view,) = iter_batches(b"".join(map(bytes, builder.close().encode(magic=2))))
    stored = assign_offsets(view, log.end_offset, partition.leader_epoch)
    (view,) = iter_batches(stored)
    log.append(stored, view)
    partition.on_append()
