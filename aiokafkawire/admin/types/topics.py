"""Arguments and results of the operations on topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from aiokafkawire.admin.types.acl_operation import AclOperation
from aiokafkawire.admin.types.configs import ConfigEntry
from aiokafkawire.types import NodeId

__all__ = (
    "CreatedTopic",
    "EnsuredTopic",
    "NewTopic",
    "TopicDescription",
    "TopicListing",
    "TopicPartitionInfo",
)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic for `create_topics`.

    Attributes:
        name: Name of the topic.
        num_partitions: Number of partitions. Defaults to the brokers' `num.partitions`; before
            Kafka 2.4, to 1.
        replication_factor: Replicas of each partition. Defaults to the brokers'
            `default.replication.factor`; before Kafka 2.4, to 1.
        replica_assignments: Node ids of the replicas by partition, the preferred leader first;
            instead of both numbers.
        configs: Configs of the topic, such as `{"retention.ms": "86400000"}`.
    """

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    replica_assignments: Mapping[int, Sequence[NodeId]] | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.replica_assignments is not None and (
            self.num_partitions is not None or self.replication_factor is not None
        ):
            raise ValueError(
                "replica_assignments cannot be combined with num_partitions or replication_factor"
            )


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that `create_topics` created, or would create with `validate_only`.

    Attributes:
        name: Name of the topic.
        topic_id: Id of the topic; None before Kafka 2.8 and with `validate_only`.
        num_partitions: Number of partitions; None before Kafka 2.4, or if the principal may not
            describe the topic.
        replication_factor: Replicas of each partition; None as `num_partitions`.
        configs: Configs of the topic by name; None as `num_partitions`.
    """

    name: str
    topic_id: UUID | None = None
    num_partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, ConfigEntry] | None = None


@dataclass(frozen=True, slots=True)
class EnsuredTopic:
    """Changes of a topic by `ensure_topics`.

    Attributes:
        name: Name of the topic.
        is_created: True if the topic did not exist.
        added_partitions: Number of partitions that were added to a topic that existed.
        altered_configs: New values of the configs that were altered, by name.
    """

    name: str
    is_created: bool
    added_partitions: int = 0
    altered_configs: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def is_changed(self) -> bool:
        """True if the topic was created or changed."""
        return self.is_created or bool(self.added_partitions or self.altered_configs)


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic in `list_topics`; `topic_id` is None before Kafka 2.8."""

    name: str
    topic_id: UUID | None
    is_internal: bool


@dataclass(frozen=True, slots=True)
class TopicPartitionInfo:
    """A partition in `describe_topics`.

    Attributes:
        partition: Number of the partition.
        leader_id: Node id of the leader; None without one.
        leader_epoch: Epoch of the leader; None before Kafka 2.1.
        replicas: Node ids of the replicas, the preferred leader first.
        isr: Node ids of the in-sync replicas.
        offline_replicas: Node ids of the replicas that are offline.
        eligible_leader_replicas: Replicas that may become leader without data loss although they
            are not in sync (KIP-966); None if the brokers do not report them.
        last_known_elr: Replicas that were eligible last; None as above.
    """

    partition: int
    leader_id: NodeId | None
    leader_epoch: int | None
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    offline_replicas: tuple[NodeId, ...] = ()
    eligible_leader_replicas: tuple[NodeId, ...] | None = None
    last_known_elr: tuple[NodeId, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic in `describe_topics`.

    Attributes:
        name: Name of the topic.
        topic_id: Id of the topic; None before Kafka 2.8.
        is_internal: True for topics of the brokers, such as `__consumer_offsets`.
        partitions: The partitions by number, in ascending order.
        authorized_operations: Operations of the principal on the topic; None unless asked for.
    """

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: Mapping[int, TopicPartitionInfo]
    authorized_operations: frozenset[AclOperation] | None = None
