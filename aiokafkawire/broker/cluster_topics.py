"""Topics and partitions of the cluster, and the state that a restart needs."""

from __future__ import annotations

import contextlib
import errno
import logging
import random
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.cluster_metadata import ClusterMetadata
from aiokafkawire.broker.configs import DynamicConfigs, LogConfig
from aiokafkawire.broker.configs.topics import validate_new_topic_configs
from aiokafkawire.broker.internal_topics import CONFIGS, InternalTopics
from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.producer_id_allocator import ProducerIdAllocator
from aiokafkawire.broker.reassignments import complete_reassignment
from aiokafkawire.broker.replica_assignment import (
    check_counts,
    spread_replicas,
    validate_assignments,
)
from aiokafkawire.broker.storage import Store
from aiokafkawire.broker.topic_map import TopicMap
from aiokafkawire.broker.topics import (
    NO_LEADER,
    Partition,
    Topic,
    check_new_topic_name,
)
from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import count_partitions
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.primitives import uuid_from_text, uuid_to_text

__all__ = ("MAX_PARTITIONS", "MAX_TOTAL_PARTITIONS", "ClusterTopics")

logger = logging.getLogger("aiokafkawire.broker")

MAX_PARTITIONS = 10_000
"""Limit of new partitions per request; Kafka's controller has the same."""

MAX_TOTAL_PARTITIONS = 100_000
"""Limit of partitions of all topics together."""

DEFAULT_REPLICATION_FACTOR = 3


class ClusterTopics:
    """Topics and their partitions. Changes that a restart needs are saved at once."""

    def __init__(
        self, node_ids: Sequence[int], store: Store, options: BrokerConfig, rng: random.Random
    ) -> None:
        self.node_ids = list(node_ids)
        self.live = list(node_ids)
        self.options = options
        self.topics = TopicMap()
        self.cluster_id = ""
        self.racks: dict[int, str] = {}
        self.metadata = ClusterMetadata(node_ids, options)
        self.controller_epoch = 1
        self.on_topic_deletion: list[Callable[[str], None]] = []
        self.before_topic_creation: list[Callable[[], None]] = []
        self.dynamic_configs = DynamicConfigs(options)
        self.internal_topics = InternalTopics(node_ids, options)
        self.producer_ids = ProducerIdAllocator(self.save)
        self._store = store
        self._rng = rng
        self._load()

    # --- topics ------------------------------------------------------------------------------

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions

    def all_topics(self) -> ChainMap[str, Topic]:
        """Return a view of the topics of clients and the internal ones by name."""
        return ChainMap(self.topics.by_name, self.internal_topics.topics)

    def topic(self, name: str) -> Topic:
        """Return a topic by name. Raises `ApiError`."""
        topic = self.topics.get(name) or self.internal_topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """Return a topic by id. Raises `ApiError`."""
        topic = self.topics.get_by_id(topic_id) or self.internal_topics.get_by_id(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic

    def partition(self, topic: Topic, index: int) -> Partition:
        """Return a partition of a topic. Raises `ApiError`."""
        if not 0 <= index < len(topic.partitions):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.partitions[index]

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
        store: bool = True,
    ) -> Topic:
        """Create a topic; -1 stands for the defaults of the broker.

        Without `store`, the caller must call `store_new` with this and other new topics.

        Raises:
            ApiError: An argument is invalid.
            StorageError: The topic cannot be stored.
        """
        check_new_topic_name(name, self.all_topics())
        replicas = (
            validate_assignments(assignments, self.node_ids)
            if assignments
            else self._assign_replicas(name, partitions, replication_factor)
        )
        self._check_count(len(replicas))
        topic_id = UUID(int=self._rng.getrandbits(128), version=4)
        topic = Topic(name, topic_id, [], validate_new_topic_configs(configs or {}))
        if not validate_only and name in CONFIGS:
            return self.create_internal_topic(name, topic.configs)
        if not validate_only:
            for callback in self.before_topic_creation:
                callback()
            self._delete_stale_logs(name, range(len(replicas)))
        topic.partitions += self._create_partitions(name, 0, replicas)
        if validate_only:
            return topic
        self._elect_leaders(topic.partitions)
        self._add_topic(topic)
        if store:
            self.store_new([topic])
        return topic

    def store_new(self, topics: Sequence[Topic]) -> None:
        """Store new topics by one write, however many they are.

        Raises:
            StorageError: The topics cannot be stored, and no longer exist.
        """
        try:
            self.save()
        except StorageError:
            for topic in topics:
                self._remove_topic(topic)
            raise
        for topic in topics:
            logger.info(
                "Topic %s: created with %s, replication factor %d",
                topic.name,
                count_partitions(topic.partitions),
                len(topic.partitions[0].replicas),
            )

    def create_internal_topic(self, name: str, configs: Mapping[str, str] | None = None) -> Topic:
        """Create an internal topic where it does not exist, as its first use does.

        It always has the partitions that the coordinators have.
        """
        topic = self.internal_topics.get(name)
        if topic is None:
            topic_id = UUID(int=self._rng.getrandbits(128), version=4)
            topic = self.internal_topics.create(name, topic_id, configs)
            self.internal_topics.update(self.live)
            self.save_if_possible()
        return topic

    def add_partitions(
        self,
        topic: Topic,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Raise the number of partitions of a topic to `count`.

        Raises:
            ApiError: An argument is invalid.
            StorageError: The partitions cannot be stored.
        """
        present = len(topic.partitions)
        if topic.name in self.internal_topics.topics:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Topic {topic.name} always has {present} partitions."
            )
        if count == present:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s)."
            )
        if count < present:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {present} partition(s);"
                f" {count} would not be an increase.",
            )
        self._check_count(count - present)
        if assignments is None:
            factor = len(topic.partitions[0].replicas)
            indexes = range(present, count)
            assigned = spread_replicas(topic.name, indexes, factor, self.node_ids)
        elif len(assignments) != count - present:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {count - present} additional partition(s), but only"
                f" {len(assignments)} assignment(s) were specified.",
            )
        else:
            new = dict(enumerate(assignments, present))
            assigned = validate_assignments(new, self.node_ids, present)
        if validate_only:
            return
        self._delete_stale_logs(topic.name, range(present, count))
        added = self._create_partitions(topic.name, present, assigned)
        self._elect_leaders(added)
        self.topics.add_partitions(topic, added)
        try:
            self.save()
        except StorageError:
            self.topics.remove_partitions(topic, present)
            raise
        logger.info(
            "Topic %s: number of partitions raised to %d from %d", topic.name, count, present
        )

    def truncate(self, partition: Partition, offset: int) -> None:
        """Truncate the log and bump the leader epoch, as an unclean leader election does."""
        if not partition.log.start_offset <= offset <= partition.log.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        partition.log.truncate(offset)
        partition.leader_epoch += 1
        self.save_if_possible()
        partition.on_change.notify()

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic with its records.

        On a full disk, the records are deleted first, because the state needs space as well.

        Raises:
            StorageError: The topic was not deleted.
        """
        if self.internal_topics.get(topic.name) is topic:
            self.internal_topics.remove(topic.name)
            self.save_if_possible()
            return
        kept = list(self.topics.values())
        self._remove_topic(topic)
        try:
            try:
                self.save()
            except StorageError as error:
                if not _is_disk_full(error):
                    raise
                for partition in topic.partitions:
                    # A topic that stays keeps its offsets.
                    partition.log.truncate_fully_and_start_at(partition.log.end_offset)
                self.save()
        except StorageError:
            self.topics.replace_all(kept)
            raise
        logger.info("Topic %s: deleted", topic.name)
        for partition in topic.partitions:
            partition.deleted = True
            # Files that cannot be deleted now are deleted before the name is used again.
            with contextlib.suppress(StorageError):
                partition.log.delete()
            partition.on_change.notify()
        for callback in self.on_topic_deletion:
            callback(topic.name)

    def _check_count(self, added: int) -> None:
        if added > MAX_PARTITIONS:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
            )
        if self.topics.partition_count + added > MAX_TOTAL_PARTITIONS:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"at most {MAX_TOTAL_PARTITIONS} partitions in the cluster",
            )

    def _assign_replicas(
        self, name: str, partitions: int, replication_factor: int
    ) -> list[list[int]]:
        count = self.options.default_partitions if partitions == -1 else partitions
        factor = replication_factor
        if factor == -1:
            default = self.options.default_replication_factor
            factor = default or min(DEFAULT_REPLICATION_FACTOR, len(self.node_ids))
        check_counts(count, factor, len(self.node_ids))
        self._check_count(count)
        return spread_replicas(name, range(count), factor, self.node_ids)

    def _create_partitions(
        self,
        name: str,
        first: int,
        replicas: list[list[int]],
        starts: Mapping[int, int] = MappingProxyType({}),
    ) -> list[Partition]:
        return [
            self._create_partition(name, index, nodes, starts.get(index, 0))
            for index, nodes in enumerate(replicas, first)
        ]

    def _create_partition(self, name: str, index: int, nodes: list[int], start: int) -> Partition:
        def config() -> LogConfig:
            return self.log_config(name, partition.leader)

        log = PartitionLog(f"{name}-{index}", self._store, self.options, start, config)
        partition = Partition(name, index, nodes, log)
        return partition

    def _elect_leaders(self, partitions: Iterable[Partition]) -> None:
        """Elect the first live replica of each new partition."""
        for partition in partitions:
            partition.leader = self._first_live(partition.replicas)
            partition.isr = [node for node in partition.replicas if node in self.live]

    def _delete_stale_logs(self, name: str, indexes: range) -> None:
        """Delete files of an earlier topic with this name. Raises `StorageError`."""
        for index in indexes:
            self._store.delete_partition(f"{name}-{index}")

    def _add_topic(self, topic: Topic) -> None:
        self.topics.add(topic)
        if topic.configs:
            self.dynamic_configs.changed()

    def _remove_topic(self, topic: Topic) -> None:
        if topic.configs:
            # A later topic of this name has other configs.
            self.dynamic_configs.changed()
        self.topics.remove(topic)

    def _first_live(self, candidates: Sequence[int]) -> int:
        return next((node for node in candidates if node in self.live), NO_LEADER)

    def topic_config(self, topic: Topic, name: str, node_id: int) -> str:
        """Return the value of a config that applies to a topic on a node."""
        return self.dynamic_configs.topic_value(topic.name, topic.configs, name, node_id)

    def log_config(self, topic: str, node_id: int) -> LogConfig:
        """Return the config of the logs of a topic on a node."""
        known = self.topics.get(topic) or self.internal_topics.get(topic)
        own = {} if known is None else known.configs
        return self.dynamic_configs.log_config(topic, own, node_id)

    # --- the store ---------------------------------------------------------------------------

    @property
    def log_dir(self) -> str:
        """Directory of the logs; a name in its place if they are in memory."""
        return self._store.log_dir

    def disk_usage(self) -> tuple[int, int]:
        """Return the size and the free space of the log directory, -1 where it has none."""
        return self._store.disk_usage()

    def save(self) -> None:
        """Store the state for the next start.

        Raises:
            StorageError: The previously stored state is still there.
        """
        self._store.save_cluster(self._state)
        self.metadata.offset += 1

    def save_if_possible(self) -> None:
        """Store the state; ignore failures, as the next save includes the change."""
        with contextlib.suppress(StorageError):
            self.save()

    def _state(self) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "producer_id_limit": self.producer_ids.limit,
            "configs": self.dynamic_configs.to_json(),
            **self.metadata.to_json(),
            "internal_topics": self.internal_topics.to_json(),
            "topics": [
                {
                    "name": topic.name,
                    "topic_id": uuid_to_text(topic.topic_id),
                    "configs": topic.configs,
                    "partitions": [
                        {
                            "replicas": partition.replicas,
                            "leader_epoch": partition.leader_epoch,
                            "log_start_offset": partition.log.start_offset,
                            **_reassignment_state(partition),
                        }
                        for partition in topic.partitions
                    ],
                }
                for topic in self.topics.values()
            ],
        }

    def _load(self) -> None:
        state = self._store.load_cluster()
        if state is None:
            self.cluster_id = uuid_to_text(UUID(int=self._rng.getrandbits(128), version=4))
            self.save()
            return
        try:
            self.cluster_id = str(state["cluster_id"])
            self.producer_ids.load(int(state["producer_id_limit"]))
            self.dynamic_configs.load(state.get("configs", ()))
            self.metadata.load(state)
            self.internal_topics.load(state.get("internal_topics", ()))
            self.internal_topics.update(self.live)
            for saved in state["topics"]:
                self._load_topic(saved)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise KafkaError(f"the stored cluster state is damaged: {error!r}") from error

    def _load_topic(self, saved: Mapping[str, Any]) -> None:
        partitions = saved["partitions"]
        # A restart may have fewer nodes than the topic was created with.
        replicas = [
            [node for node in entry["replicas"] if node in self.node_ids] or self.node_ids[:1]
            for entry in partitions
        ]
        starts = {index: int(entry["log_start_offset"]) for index, entry in enumerate(partitions)}
        topic_id = uuid_from_text(saved["topic_id"])
        topic = Topic(saved["name"], topic_id, [], dict(saved["configs"]))
        topic.partitions += self._create_partitions(topic.name, 0, replicas, starts)
        for partition, entry in zip(topic.partitions, partitions, strict=True):
            # The log may know a later epoch than the last saved one.
            partition.leader_epoch = max(int(entry["leader_epoch"]), partition.log.latest_epoch) + 1
            partition.isr = list(partition.replicas)
            # Every node is up after a restart, so a reassignment in progress completes.
            partition.adding, partition.removing = (
                [node for node in entry.get(name, ()) if node in partition.replicas]
                for name in ("adding", "removing")
            )
            complete_reassignment(partition)
            partition.leader = partition.replicas[0]
        self._add_topic(topic)


def _reassignment_state(partition: Partition) -> dict[str, Any]:
    """Return the stored fields of a reassignment, none without one."""
    if not partition.adding and not partition.removing:
        return {}
    return {"adding": partition.adding, "removing": partition.removing}


def _is_disk_full(error: StorageError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in {errno.ENOSPC, errno.EDQUOT}
