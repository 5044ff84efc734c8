"""Topics and nodes: who leads what. Decides nothing by itself; told of nodes that come and go."""

from __future__ import annotations

import contextlib
import logging
import random
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.callbacks import Callbacks
from aiokafkawire.broker.config_defs import validate_topic_configs
from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.storage import Store
from aiokafkawire.errors import KafkaError
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.primitives import uuid_from_text, uuid_to_text

__all__ = (
    "COORDINATOR_PARTITIONS",
    "MAX_PARTITIONS",
    "MAX_TOTAL_PARTITIONS",
    "NO_LEADER",
    "ClusterState",
    "Partition",
    "Topic",
    "check_topic_name",
)

logger = logging.getLogger("aiokafkawire.broker")

NO_LEADER = -1

COORDINATOR_PARTITIONS = 50
"""Groups are spread over this many slots, each with a leader, like __consumer_offsets."""

MAX_PARTITIONS = 10_000
"""Partitions that one request may ask for; Kafka's controller has the same limit."""

MAX_TOTAL_PARTITIONS = 100_000
"""Partitions of all topics together."""

PRODUCER_ID_BLOCK = 1_000
"""Ids taken from the store at once; those of a block that was not used up are lost."""

DEFAULT_REPLICATION_FACTOR = 3

TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(slots=True, eq=False)
class Partition:
    """One partition. All nodes share its log, so that every replica is as good as the leader.

    Where nodes replicate it says who leads, and each node has one of its own (`Replica`). `elr` are
    then those who may lead without a loss although they are out of sync, and `last_known_leader` is
    who led when nobody was in sync any more (KIP-966).
    """

    topic: str
    index: int
    replicas: list[int]
    log: PartitionLog
    leader: int = NO_LEADER
    leader_epoch: int = 0
    isr: list[int] = field(default_factory=list)
    elr: list[int] = field(default_factory=list)
    last_known_leader: int = NO_LEADER
    deleted: bool = False
    on_change: Callbacks = field(default_factory=Callbacks)

    @property
    def high_watermark(self) -> int:
        """What consumers may read comes before it: here all that was written."""
        return self.log.end_offset

    @property
    def is_high_watermark_current(self) -> bool:
        """Whether it is not behind what consumers were told already, by the leader before."""
        return True

    @property
    def last_stable_offset(self) -> int:
        """What consumers of committed records may read comes before it."""
        first = self.log.first_unstable_offset
        return self.high_watermark if first is None else min(first, self.high_watermark)

    def count_replicas_at(self, offset: int) -> int:
        """How many replicas have all that comes before an offset."""
        return len(self.isr)

    def on_append(self) -> None:
        """Something was written to the log."""
        self.on_change.notify()

    def make_leader(self, node_id: int) -> None:
        """Make a node the leader, in a new epoch."""
        if node_id != self.leader:
            self.leader = node_id
            self.leader_epoch += 1
            self.on_change.notify()

    def check_leader(self, node_id: int) -> None:
        """Refuse to a node that does not lead."""
        if node_id != self.leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_leader_epoch(self, epoch: int) -> None:
        """Refuse a client whose view of the leader is older or newer; -1 is not checked."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        raise ApiError(
            ErrorCode.FENCED_LEADER_EPOCH
            if epoch < self.leader_epoch
            else ErrorCode.UNKNOWN_LEADER_EPOCH
        )


@dataclass(slots=True, eq=False)
class Topic:
    name: str
    topic_id: UUID
    partitions: list[Partition]
    configs: dict[str, str]

    def int_config(self, config: str, default: int) -> int:
        """The value of a numeric topic config."""
        return int(self.configs.get(config, default))

    @property
    def uses_log_append_time(self) -> bool:
        return self.configs.get("message.timestamp.type") == "LogAppendTime"

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.configs.get("cleanup.policy", "")


class ClusterState:
    """The state that all nodes share; what matters of it is saved at each change."""

    def __init__(
        self, node_ids: Sequence[int], store: Store, options: BrokerConfig, rng: random.Random
    ) -> None:
        self.node_ids = list(node_ids)
        self.live = list(node_ids)
        self.options = options
        self.topics: dict[str, Topic] = {}
        self.cluster_id = ""
        self.racks: dict[int, str] = {}
        self.on_topic_deletion: list[Callable[[str], None]] = []
        self.before_topic_creation: list[Callable[[], None]] = []
        self._by_id: dict[UUID, Topic] = {}
        self._coordinators = [
            self.node_ids[i % len(self.node_ids)] for i in range(COORDINATOR_PARTITIONS)
        ]
        self._next_producer_id = 0
        self._producer_id_limit = 0
        self._store = store
        self._rng = rng
        self._load()

    # --- nodes -------------------------------------------------------------------------------

    @property
    def controller_id(self) -> int:
        """The node that answers as controller, -1 when none lives."""
        return self._first_live(self.node_ids, NO_LEADER)

    def coordinator(self, key: str) -> int:
        """The node that coordinates a group or a transactional id, -1 when none lives."""
        return self._coordinators[self.coordinator_partition(key)]

    @property
    def coordinators(self) -> tuple[int, ...]:
        """The node of each slot, -1 where none lives."""
        return tuple(self._coordinators)

    def move_coordinator(self, key: str, node_id: int) -> None:
        """Let a live node coordinate a group or a transactional id, with all of its slot."""
        if node_id not in self.live:
            raise ValueError(f"node {node_id} is not up, so it cannot coordinate {key!r}")
        self._coordinators[self.coordinator_partition(key)] = node_id

    def coordinator_partition(self, key: str) -> int:
        """Where a group or a transactional id stands: in Kafka a partition of their topic."""
        return zlib.crc32(key.encode()) % COORDINATOR_PARTITIONS

    def on_node_failure(self, node_id: int, *, crashed: bool = True) -> None:
        """Move everything that a node led to the nodes that remain.

        Not `crashed`: it was not heard of for too long, and may go on.
        """
        del crashed
        if node_id not in self.live:
            return
        self.live.remove(node_id)
        self._remove_from_isr(node_id)
        for index, leader in enumerate(self._coordinators):
            if leader == node_id:
                start = index % len(self.node_ids)
                order = self.node_ids[start:] + self.node_ids[:start]
                self._coordinators[index] = self._first_live(order, NO_LEADER)
        self.save_if_possible()

    def on_node_startup(self, node_id: int) -> None:
        """Take a node back as follower of all that has a leader by now."""
        self.live = [other for other in self.node_ids if other in self.live or other == node_id]
        self._add_to_isr(node_id)
        self._coordinators = [
            node_id if leader == NO_LEADER else leader for leader in self._coordinators
        ]
        self.save_if_possible()

    def _remove_from_isr(self, node_id: int) -> None:
        for partition in self.partitions():
            if node_id in partition.isr and len(partition.isr) > 1:
                partition.isr.remove(node_id)
            if partition.leader == node_id:
                partition.make_leader(self._first_live(partition.replicas, NO_LEADER))

    def _add_to_isr(self, node_id: int) -> None:
        for partition in self.partitions():
            if node_id not in partition.replicas:
                continue
            if partition.leader == NO_LEADER:
                partition.isr = [node_id]
                partition.make_leader(node_id)
            elif node_id not in partition.isr:
                partition.isr.append(node_id)
                partition.on_change.notify()

    def move_leader(self, partition: Partition, node_id: int) -> None:
        """Make a live node the leader; one that is no replica takes the old leader's place."""
        if node_id not in self.live:
            raise ValueError(f"node {node_id} is not up, so it cannot lead {partition.log.name}")
        if node_id not in partition.replicas:
            old = partition.leader if partition.leader in partition.replicas else -1
            place = partition.replicas.index(old) if old >= 0 else 0
            partition.isr = [n for n in partition.isr if n != partition.replicas[place]]
            partition.replicas[place] = node_id
        if node_id not in partition.isr:
            partition.isr.append(node_id)
        partition.make_leader(node_id)
        self.save_if_possible()

    def _first_live(self, candidates: Sequence[int], none: int) -> int:
        return next((node for node in candidates if node in self.live), none)

    # --- topics ------------------------------------------------------------------------------

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions

    def topic(self, name: str) -> Topic:
        """A topic by name. Raises `ApiError`."""
        found = self.topics.get(name)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """A topic by id. Raises `ApiError`."""
        found = self._by_id.get(topic_id)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return found

    def partition(self, topic: Topic, index: int) -> Partition:
        """One partition. Raises `ApiError`."""
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
    ) -> Topic:
        """Make a topic; -1 takes the broker's defaults. Raises `ApiError`, also `StorageError`."""
        self._check_name(name)
        replicas = (
            self._validate_assignments(assignments)
            if assignments
            else self._assign_replicas(name, partitions, replication_factor)
        )
        self._check_count(len(replicas))
        topic_id = UUID(int=self._rng.getrandbits(128), version=4)
        topic = Topic(name, topic_id, [], validate_topic_configs(configs or {}))
        if not validate_only:
            for callback in self.before_topic_creation:
                callback()
            self._delete_stale_logs(name, range(len(replicas)))
        topic.partitions += self._create_partitions(name, 0, replicas)
        if validate_only:
            return topic
        self._elect_leaders(topic.partitions)
        self._add_topic(topic)
        try:
            self.save()
        except StorageError:
            self._remove_topic(topic)
            raise
        logger.info(
            "Topic %s: created with %d partitions, replication factor %d",
            name,
            len(replicas),
            len(replicas[0]),
        )
        return topic

    def add_partitions(
        self,
        topic: Topic,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Let a topic have `count` partitions, more than before.

        Raises `ApiError`, also `StorageError`.
        """
        present = len(topic.partitions)
        if count <= present:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic.name!r} has {present} partitions, {count} would not be more",
            )
        self._check_count(count - present)
        if assignments is None:
            factor = len(topic.partitions[0].replicas)
            assigned = self._spread_replicas(topic.name, range(present, count), factor)
        elif len(assignments) != count - present:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{count - present} new partitions, but {len(assignments)} assignments",
            )
        else:
            assigned = self._validate_assignments(dict(enumerate(assignments, present)), present)
        if validate_only:
            return
        self._delete_stale_logs(topic.name, range(present, count))
        added = self._create_partitions(topic.name, present, assigned)
        self._elect_leaders(added)
        topic.partitions += added
        try:
            self.save()
        except StorageError:
            del topic.partitions[present:]
            raise
        logger.info("Topic %s: %d partitions instead of %d", topic.name, count, present)

    def truncate(self, partition: Partition, offset: int) -> None:
        """Cut the log's end off, as an unclean leader change does: the leader's epoch rises."""
        if not partition.log.start_offset <= offset <= partition.log.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        partition.log.truncate(offset)
        partition.leader_epoch += 1
        self.save_if_possible()
        partition.on_change.notify()

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic with all its records. Raises `StorageError` if it stays."""
        kept = dict(self.topics)
        self._remove_topic(topic)
        try:
            self.save()
        except StorageError:
            self.topics.clear()
            self.topics.update(kept)
            self._by_id[topic.topic_id] = topic
            raise
        logger.info("Topic %s: deleted", topic.name)
        for partition in topic.partitions:
            partition.deleted = True
            # What cannot be deleted now is deleted before the name is used again.
            with contextlib.suppress(StorageError):
                partition.log.delete()
            partition.on_change.notify()
        for callback in self.on_topic_deletion:
            callback(topic.name)

    def _check_name(self, name: str) -> None:
        check_topic_name(name)
        if name in self.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        flat = name.replace(".", "_")
        for other in self.topics:
            if other.replace(".", "_") == flat:
                raise ApiError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} collides with {other!r}"
                )

    def _check_count(self, added: int) -> None:
        if added > MAX_PARTITIONS:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, f"no more than {MAX_PARTITIONS} partitions at a time"
            )
        if (
            sum(len(topic.partitions) for topic in self.topics.values()) + added
            > MAX_TOTAL_PARTITIONS
        ):
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, f"no more than {MAX_TOTAL_PARTITIONS} partitions in all"
            )

    def _assign_replicas(
        self, name: str, partitions: int, replication_factor: int
    ) -> list[list[int]]:
        count = self.options.default_partitions if partitions == -1 else partitions
        if count < 1:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, "a topic has at least one partition")
        self._check_count(count)
        factor = replication_factor
        if factor == -1:
            default = self.options.default_replication_factor
            factor = default or min(DEFAULT_REPLICATION_FACTOR, len(self.node_ids))
        if not 1 <= factor <= len(self.node_ids):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{factor} replicas need as many nodes, and there are {len(self.node_ids)}",
            )
        return self._spread_replicas(name, range(count), factor)

    def _spread_replicas(self, name: str, indexes: range, factor: int) -> list[list[int]]:
        nodes = self.node_ids
        start = zlib.crc32(name.encode())
        return [
            [nodes[(start + index + replica) % len(nodes)] for replica in range(factor)]
            for index in indexes
        ]

    def _validate_assignments(
        self, assignments: Mapping[int, Sequence[int]], first: int = 0
    ) -> list[list[int]]:
        indexes = range(first, first + len(assignments))
        if sorted(assignments) != list(indexes):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partitions must count from {first} without a gap",
            )
        assigned = [list(assignments[index]) for index in indexes]
        for index, replicas in zip(indexes, assigned, strict=True):
            known = all(node in self.node_ids for node in replicas)
            if not replicas or len(dict.fromkeys(replicas)) != len(replicas) or not known:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"partition {index} cannot be on nodes {replicas}",
                )
            if len(replicas) != len(assigned[0]):
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"partition {index} has {len(replicas)} replicas, the first {len(assigned[0])}",
                )
        return assigned

    def _create_partitions(
        self,
        name: str,
        first: int,
        replicas: list[list[int]],
        starts: Mapping[int, int] = MappingProxyType({}),
    ) -> list[Partition]:
        made = []
        for index, nodes in enumerate(replicas, first):
            log = PartitionLog(f"{name}-{index}", self._store, self.options, starts.get(index, 0))
            made.append(Partition(name, index, nodes, log))
        return made

    def _elect_leaders(self, partitions: Iterable[Partition]) -> None:
        """Let new partitions begin with the first of their replicas that is up."""
        for partition in partitions:
            partition.leader = self._first_live(partition.replicas, NO_LEADER)
            partition.isr = [node for node in partition.replicas if node in self.live]

    def _delete_stale_logs(self, name: str, indexes: range) -> None:
        """Delete files of an earlier topic of this name. Raises `StorageError`."""
        for index in indexes:
            self._store.delete_partition(f"{name}-{index}")

    def _add_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def _remove_topic(self, topic: Topic) -> None:
        del self.topics[topic.name]
        del self._by_id[topic.topic_id]

    # --- producers ---------------------------------------------------------------------------

    def new_producer_id(self) -> int:
        """An id that no producer of this cluster had before. Raises `StorageError`."""
        if self._next_producer_id >= self._producer_id_limit:
            self._next_producer_id = self._producer_id_limit
            self._producer_id_limit += PRODUCER_ID_BLOCK
            try:
                self.save()
            except StorageError as error:
                self._producer_id_limit -= PRODUCER_ID_BLOCK
                # Kafka's answer while the controller has not given the broker another block.
                raise StorageError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
        self._next_producer_id += 1
        return self._next_producer_id - 1

    # --- the store ---------------------------------------------------------------------------

    def save(self) -> None:
        """Write what a restart needs; called by every change but a log's own.

        Raises:
            StorageError: What was saved before is still there.
        """
        self._store.save_cluster(self._state)

    def save_if_possible(self) -> None:
        """Save what happened whether or not it can be stored; the next save includes it."""
        with contextlib.suppress(StorageError):
            self.save()

    def _state(self) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "producer_id_limit": self._producer_id_limit,
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
            self._next_producer_id = self._producer_id_limit = int(state["producer_id_limit"])
            for saved in state["topics"]:
                self._load_topic(saved)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise KafkaError(f"the saved state of the broker is damaged: {error!r}") from error

    def _load_topic(self, saved: Mapping[str, Any]) -> None:
        partitions = saved["partitions"]
        # A restart may come with fewer nodes than the topic was made with.
        replicas = [
            [node for node in entry["replicas"] if node in self.node_ids] or self.node_ids[:1]
            for entry in partitions
        ]
        starts = {index: int(entry["log_start_offset"]) for index, entry in enumerate(partitions)}
        topic_id = uuid_from_text(saved["topic_id"])
        topic = Topic(saved["name"], topic_id, [], dict(saved["configs"]))
        topic.partitions += self._create_partitions(topic.name, 0, replicas, starts)
        for partition, entry in zip(topic.partitions, partitions, strict=True):
            partition.leader = partition.replicas[0]
            # The log may know a later epoch than could be saved.
            partition.leader_epoch = max(int(entry["leader_epoch"]), partition.log.latest_epoch) + 1
            partition.isr = list(partition.replicas)
        self._add_topic(topic)


def check_topic_name(name: str) -> None:
    """Raise `ApiError` for what cannot be the name of a topic."""
    if not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"a topic cannot be named {name!r}: 1 to 249 of a-z, A-Z, 0-9, '.', '_', '-'",
        )
