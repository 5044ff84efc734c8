"""Target of each API that the admin client sends, and the error codes that it retries."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from aiokafkawire.wire import ApiKey, ErrorCode

__all__ = ("RETRIED_CODES", "TARGETS", "Target")


class Target(Enum):
    """Brokers that can answer a request. The value completes the sentence "sent to …"."""

    ANY_BROKER = "any broker"
    CONTROLLER = "the controller"
    GROUP_COORDINATOR = "the coordinator of each group"
    TRANSACTION_COORDINATOR = "the coordinator of each transactional id"
    PARTITION_LEADER = "the leader of each partition"
    NAMED_BROKER = "the broker that the caller names"
    ALL_BROKERS = "all brokers"


TARGETS: Mapping[ApiKey, Target] = {
    # Topics.
    ApiKey.METADATA: Target.ANY_BROKER,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Target.ANY_BROKER,
    ApiKey.CREATE_TOPICS: Target.CONTROLLER,
    ApiKey.DELETE_TOPICS: Target.CONTROLLER,
    ApiKey.CREATE_PARTITIONS: Target.CONTROLLER,
    ApiKey.DELETE_RECORDS: Target.PARTITION_LEADER,
    ApiKey.ELECT_LEADERS: Target.CONTROLLER,
    # Configs. Those of a broker go to that broker, as it alone knows its file and its loggers.
    ApiKey.DESCRIBE_CONFIGS: Target.ANY_BROKER,
    ApiKey.ALTER_CONFIGS: Target.ANY_BROKER,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Target.ANY_BROKER,
    ApiKey.LIST_CONFIG_RESOURCES: Target.ANY_BROKER,
    # The cluster.
    ApiKey.DESCRIBE_CLUSTER: Target.ANY_BROKER,
    ApiKey.API_VERSIONS: Target.ANY_BROKER,
    ApiKey.UPDATE_FEATURES: Target.CONTROLLER,
    ApiKey.DESCRIBE_QUORUM: Target.ANY_BROKER,
    ApiKey.ADD_RAFT_VOTER: Target.ANY_BROKER,
    ApiKey.REMOVE_RAFT_VOTER: Target.ANY_BROKER,
    ApiKey.UNREGISTER_BROKER: Target.ANY_BROKER,
    ApiKey.UNREGISTER_CONTROLLER: Target.ANY_BROKER,
    # Logs.
    ApiKey.DESCRIBE_LOG_DIRS: Target.NAMED_BROKER,
    ApiKey.ALTER_REPLICA_LOG_DIRS: Target.NAMED_BROKER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Target.CONTROLLER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Target.CONTROLLER,
    ApiKey.LIST_OFFSETS: Target.PARTITION_LEADER,
    # Groups of all types. Share offsets too are at the group coordinator, not the share one.
    ApiKey.LIST_GROUPS: Target.ALL_BROKERS,
    ApiKey.DESCRIBE_GROUPS: Target.GROUP_COORDINATOR,
    ApiKey.CONSUMER_GROUP_DESCRIBE: Target.GROUP_COORDINATOR,
    ApiKey.SHARE_GROUP_DESCRIBE: Target.GROUP_COORDINATOR,
    ApiKey.STREAMS_GROUP_DESCRIBE: Target.GROUP_COORDINATOR,
    ApiKey.DELETE_GROUPS: Target.GROUP_COORDINATOR,
    ApiKey.LEAVE_GROUP: Target.GROUP_COORDINATOR,
    ApiKey.OFFSET_FETCH: Target.GROUP_COORDINATOR,
    ApiKey.OFFSET_COMMIT: Target.GROUP_COORDINATOR,
    ApiKey.OFFSET_DELETE: Target.GROUP_COORDINATOR,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Target.GROUP_COORDINATOR,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Target.GROUP_COORDINATOR,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Target.GROUP_COORDINATOR,
    # Security.
    ApiKey.DESCRIBE_ACLS: Target.ANY_BROKER,
    ApiKey.CREATE_ACLS: Target.CONTROLLER,
    ApiKey.DELETE_ACLS: Target.CONTROLLER,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Target.ANY_BROKER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Target.CONTROLLER,
    ApiKey.CREATE_DELEGATION_TOKEN: Target.CONTROLLER,
    ApiKey.RENEW_DELEGATION_TOKEN: Target.CONTROLLER,
    ApiKey.EXPIRE_DELEGATION_TOKEN: Target.CONTROLLER,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Target.ANY_BROKER,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Target.ANY_BROKER,
    ApiKey.ALTER_CLIENT_QUOTAS: Target.CONTROLLER,
    # Transactions.
    ApiKey.DESCRIBE_PRODUCERS: Target.PARTITION_LEADER,
    ApiKey.DESCRIBE_TRANSACTIONS: Target.TRANSACTION_COORDINATOR,
    ApiKey.LIST_TRANSACTIONS: Target.ALL_BROKERS,
    ApiKey.WRITE_TXN_MARKERS: Target.PARTITION_LEADER,
    ApiKey.INIT_PRODUCER_ID: Target.TRANSACTION_COORDINATOR,
    # Client metrics.
}
"""Target of each API, unless the operation chooses another one."""

RETRIED_CODES = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""The broker did nothing, and the same request can succeed later or at another broker."""
