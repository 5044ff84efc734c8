"""One call of each coroutine of the admin client but its start and stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aiokafkawire import Admin
from aiokafkawire.admin import (
    AbortTransactionSpec,
    AclBindingFilter,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    NewTopic,
    OffsetSpec,
    RaftVoterEndpoint,
    TopicPartitionReplica,
)
from aiokafkawire.types import TopicPartition

NOBODY = UUID(int=1)


@dataclass(frozen=True)
class Arguments:
    """A topic with a partition, and a group."""

    topic: str

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def group(self) -> str:
        return f"group of {self.topic}"

    @property
    def config(self) -> ConfigResource:
        return ConfigResource(ConfigResourceType.TOPIC, self.topic)


Call = Callable[[Admin, Arguments], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "abort_transaction": lambda a, c: a.abort_transaction(AbortTransactionSpec(c.tp, 1, 0, 0)),
    "add_raft_voter": lambda a, c: a.add_raft_voter(9, NOBODY, [RaftVoterEndpoint("C", "h", 1)]),
    "alter_client_quotas": lambda a, c: a.alter_client_quotas([]),
    "alter_consumer_group_offsets": lambda a, c: a.alter_consumer_group_offsets(c.group, {c.tp: 1}),
    "alter_partition_reassignments": lambda a, c: a.alter_partition_reassignments({c.tp: None}),
    "alter_replica_log_dirs": lambda a, c: a.alter_replica_log_dirs(
        {TopicPartitionReplica(c.topic, 0, 1): "/x"}
    ),
    "alter_share_group_offsets": lambda a, c: a.alter_share_group_offsets(c.group, {c.tp: 1}),
    "alter_streams_group_offsets": lambda a, c: a.alter_streams_group_offsets(c.group, {c.tp: 1}),
    "alter_user_scram_credentials": lambda a, c: a.alter_user_scram_credentials([]),
    "client_instance_id": lambda a, c: a.client_instance_id(),
    "create_acls": lambda a, c: a.create_acls([]),
    "create_delegation_token": lambda a, c: a.create_delegation_token(),
    "create_partitions": lambda a, c: a.create_partitions({c.topic: 1}),
    "create_topics": lambda a, c: a.create_topics([NewTopic(c.topic, 1, 1)]),
    "delete_acls": lambda a, c: a.delete_acls([AclBindingFilter()]),
    "delete_consumer_group_offsets": lambda a, c: a.delete_consumer_group_offsets(c.group, [c.tp]),
    "delete_consumer_groups": lambda a, c: a.delete_consumer_groups([c.group]),
    "delete_records": lambda a, c: a.delete_records({c.tp: 1}),
    "delete_share_group_offsets": lambda a, c: a.delete_share_group_offsets(c.group, [c.topic]),
    "delete_share_groups": lambda a, c: a.delete_share_groups([c.group]),
    "delete_streams_group_offsets": lambda a, c: a.delete_streams_group_offsets(c.group, [c.tp]),
    "delete_streams_groups": lambda a, c: a.delete_streams_groups([c.group]),
    "delete_topics": lambda a, c: a.delete_topics(["no-such-topic", NOBODY]),
    "describe_acls": lambda a, c: a.describe_acls(),
    "describe_classic_groups": lambda a, c: a.describe_classic_groups([c.group]),
    "describe_client_quotas": lambda a, c: a.describe_client_quotas(),
    "describe_cluster": lambda a, c: a.describe_cluster(),
    "describe_configs": lambda a, c: a.describe_configs([c.config]),
    "describe_consumer_groups": lambda a, c: a.describe_consumer_groups([c.group]),
    "describe_delegation_token": lambda a, c: a.describe_delegation_token(),
    "describe_features": lambda a, c: a.describe_features(),
    "describe_log_dirs": lambda a, c: a.describe_log_dirs(),
    "describe_metadata_quorum": lambda a, c: a.describe_metadata_quorum(),
    "describe_producers": lambda a, c: a.describe_producers([c.tp]),
    "describe_replica_log_dirs": lambda a, c: a.describe_replica_log_dirs(
        [TopicPartitionReplica(c.topic, 0, 1)]
    ),
    "describe_share_groups": lambda a, c: a.describe_share_groups([c.group]),
    "describe_streams_groups": lambda a, c: a.describe_streams_groups([c.group]),
    "describe_topics": lambda a, c: a.describe_topics([c.topic]),
    "describe_transactions": lambda a, c: a.describe_transactions([c.topic]),
    "describe_user_scram_credentials": lambda a, c: a.describe_user_scram_credentials(),
    "elect_leaders": lambda a, c: a.elect_leaders(ElectionType.PREFERRED),
    "ensure_topics": lambda a, c: a.ensure_topics(
        [NewTopic(c.topic, 1, 1, configs={"retention.ms": "-1"})]
    ),
    "expire_delegation_token": lambda a, c: a.expire_delegation_token(b"hmac"),
    "fence_producers": lambda a, c: a.fence_producers([c.topic]),
    "find_hanging_transactions": lambda a, c: a.find_hanging_transactions([c.topic]),
    "force_terminate_transaction": lambda a, c: a.force_terminate_transaction(c.topic),
    "incremental_alter_configs": lambda a, c: a.incremental_alter_configs(
        {c.config: {"retention.ms": "-1"}}
    ),
    "lag": lambda a, c: a.lag(),
    "list_client_metrics_resources": lambda a, c: a.list_client_metrics_resources(),
    "list_config_resources": lambda a, c: a.list_config_resources(),
    "list_consumer_group_offsets": lambda a, c: a.list_consumer_group_offsets([c.group]),
    "list_consumer_groups": lambda a, c: a.list_consumer_groups(),
    "list_groups": lambda a, c: a.list_groups(),
    "list_offsets": lambda a, c: a.list_offsets({c.tp: OffsetSpec.LATEST}),
    "list_partition_reassignments": lambda a, c: a.list_partition_reassignments(),
    "list_share_group_offsets": lambda a, c: a.list_share_group_offsets([c.group]),
    "list_streams_group_offsets": lambda a, c: a.list_streams_group_offsets([c.group]),
    "list_topics": lambda a, c: a.list_topics(),
    "list_transactions": lambda a, c: a.list_transactions(),
    "ping": lambda a, c: a.ping(),
    "remove_members_from_consumer_group": lambda a, c: a.remove_members_from_consumer_group(
        c.group
    ),
    "remove_raft_voter": lambda a, c: a.remove_raft_voter(9, NOBODY),
    "renew_delegation_token": lambda a, c: a.renew_delegation_token(b"hmac"),
    "reset_group_offsets": lambda a, c: a.reset_group_offsets(c.group, [c.tp], to="earliest"),
    "unregister_broker": lambda a, c: a.unregister_broker(99),
    "unregister_controller": lambda a, c: a.unregister_controller(99),
    "update_features": lambda a, c: a.update_features({"metadata.version": 1}, validate_only=True),
    "wait_for_topics": lambda a, c: a.wait_for_topics([c.topic]),
}
