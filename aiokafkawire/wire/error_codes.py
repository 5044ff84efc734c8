"""The error codes of Kafka 4.4, their exceptions and hints.

A code is retriable, or invalidates the metadata, if the exception of Kafka's Java client for it
derives from RetriableException, or InvalidMetadataException.
"""

from enum import IntEnum
from typing import Any

from aiokafkawire.errors import AuthorizationFailed, BrokerError, UnknownServerError

__all__ = ("ErrorCode", "error_for", "raise_for")


class ErrorCode(IntEnum):
    """An error code as responses carry it; 0 is no error."""

    @property
    def retriable(self) -> bool:
        """True if the same request may succeed later."""
        return self in _RETRIABLE

    @property
    def invalidates_metadata(self) -> bool:
        """True if the error shows that the client's metadata is stale."""
        return self in _INVALIDATES_METADATA

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


_INVALIDATES_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

_RETRIABLE = _INVALIDATES_METADATA | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
}

_HINTS = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not contain the offset (any more, or yet)",
    ErrorCode.CORRUPT_MESSAGE: "the broker found a bad checksum, size or key",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the broker has no such topic or partition",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at present",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "another broker leads the partition",
    ErrorCode.INVALID_FETCH_SIZE: "the size of the fetch is negative",
    ErrorCode.REQUEST_TIMED_OUT: "the broker did not complete the request in time",
    ErrorCode.BROKER_NOT_AVAILABLE: "a broker that the request needs is not alive",
    ErrorCode.REPLICA_NOT_AVAILABLE: "the broker does not have this replica",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing",
    ErrorCode.STALE_CONTROLLER_EPOCH: "another broker is the controller now",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "the metadata of the offset exceeds the broker's offset.metadata.max.bytes"
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading its state",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "there is no coordinator yet, or it is shutting down",
    ErrorCode.NOT_COORDINATOR: "another broker is the coordinator",
    ErrorCode.INVALID_REQUIRED_ACKS: "the broker does not support this value of acks",
    ErrorCode.ILLEGAL_GENERATION: "the generation is not the current one of the group",
    ErrorCode.INVALID_GROUP_ID: "the group id is empty, or not allowed",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group does not have this member (any more)",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "the commit is too large to be stored",
    ErrorCode.MESSAGE_TOO_LARGE: "the batch exceeds the topic's max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch exceeds the broker's segment size",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the broker refuses this topic name for this request",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "the records were written, but to fewer replicas than min.insync.replicas"
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the member shares no assignor with the group, or the group is of another protocol type"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the session timeout is outside the broker's group.min and group.max.session.timeout.ms"
    ),
    ErrorCode.INVALID_TIMESTAMP: "the timestamp is too far from the broker's clock",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not support this version of the request",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic's message format is too old for this",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker is too old for this compression",
    ErrorCode.PRODUCER_FENCED: "a newer producer has the same transactional id",
    ErrorCode.FENCED_INSTANCE_ID: "another member has the same group instance id",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full (group.max.size)",
    ErrorCode.NON_EMPTY_GROUP: "the group has members",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member of the group is subscribed to the topic",
    ErrorCode.POLICY_VIOLATION: "a policy of the brokers or the topic's cleanup.policy forbids it",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "this needs a connection that is authenticated, and not by a delegation token"
    ),
    ErrorCode.REBOOTSTRAP_REQUIRED: "the client must bootstrap again",
    ErrorCode.GROUP_DELETION_FAILED: "the coordinator could not complete the deletion",
    ErrorCode.CONTROLLER_ID_NOT_REGISTERED: "no controller has this id",
}


_RESOURCE_TYPES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional_id",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "delegation_token",
}
"""Resource whose permissions each error code is about; also an attribute of `KafkaError`."""

_OPERATIONS = {
    "topic": {
        "Produce": "Write",
        "AddPartitionsToTxn": "Write",
        "Fetch": "Read",
        "OffsetCommit": "Read",
        "TxnOffsetCommit": "Read",
        "OffsetDelete": "Read",
        "DescribeProducers": "Read",
        "ConsumerGroupHeartbeat": "Describe",
        "ListOffsets": "Describe",
        "Metadata": "Describe",
        "OffsetFetch": "Describe",
        "OffsetForLeaderEpoch": "Describe",
        "CreateTopics": "Create",
        "CreatePartitions": "Alter",
        "DeleteTopics": "Delete",
        "DescribeTopicPartitions": "Describe",
        "DeleteRecords": "Delete",
        "DescribeConfigs": "DescribeConfigs",
        "AlterConfigs": "AlterConfigs",
        "IncrementalAlterConfigs": "AlterConfigs",
    },
    "group": {
        "JoinGroup": "Read",
        "SyncGroup": "Read",
        "Heartbeat": "Read",
        "LeaveGroup": "Read",
        "ConsumerGroupHeartbeat": "Read",
        "OffsetCommit": "Read",
        "TxnOffsetCommit": "Read",
        "AddOffsetsToTxn": "Read",
        "FindCoordinator": "Describe",
        "OffsetFetch": "Describe",
        "DescribeGroups": "Describe",
        "ConsumerGroupDescribe": "Describe",
        "DeleteGroups": "Delete",
        "OffsetDelete": "Delete",
    },
    "transactional_id": {
        "Produce": "Write",
        "InitProducerId": "Write",
        "AddPartitionsToTxn": "Write",
        "AddOffsetsToTxn": "Write",
        "TxnOffsetCommit": "Write",
        "EndTxn": "Write",
        "FindCoordinator": "Describe",
        "DescribeTransactions": "Describe",
    },
    "cluster": {
        "Produce": "IdempotentWrite",
        "InitProducerId": "IdempotentWrite",
        "CreateTopics": "Create",
        "DescribeConfigs": "DescribeConfigs",
        "AlterConfigs": "AlterConfigs",
        "IncrementalAlterConfigs": "AlterConfigs",
        "DescribeClientQuotas": "DescribeConfigs",
        "AlterClientQuotas": "AlterConfigs",
        "DescribeAcls": "Describe",
        "CreateAcls": "Alter",
        "DeleteAcls": "Alter",
        "DescribeUserScramCredentials": "Describe",
        "AlterUserScramCredentials": "Alter",
        "DescribeLogDirs": "Describe",
        "AlterReplicaLogDirs": "Alter",
        "ListPartitionReassignments": "Describe",
        "AlterPartitionReassignments": "Alter",
        "ElectLeaders": "Alter",
        "DescribeQuorum": "Describe",
        "UpdateFeatures": "Alter",
        "UnregisterBroker": "Alter",
        "WriteTxnMarkers": "Alter",
        "OffsetForLeaderEpoch": "ClusterAction",
    },
}
"""Operation that each API needs, by resource."""

_INCLUDED_IN = {"topic": "Read or Write", "group": "Read", "transactional_id": "Write"}
"""Operations of clients that include Describe."""


def _authorization_failed(code: ErrorCode, context: dict[str, Any]) -> AuthorizationFailed:
    resource_type = _RESOURCE_TYPES[code]
    operation = _OPERATIONS.get(resource_type, {}).get(context.get("api") or "")
    if operation == "IdempotentWrite":
        missing = "Write on any topic (before Kafka 2.8: IdempotentWrite on the cluster)"
    else:
        # The context, which may become known later, has the name.
        missing = f"{operation or 'an ACL'} on the {resource_type.replace('_', ' ')}"
        if operation == "Describe" and resource_type in _INCLUDED_IN:
            missing += f" ({_INCLUDED_IN[resource_type]} includes it)"
    return AuthorizationFailed(
        f"{code.name}: the principal lacks {missing}",
        code=code,
        name=code.name,
        resource_type=resource_type,
        operation=operation,
        **context,
    )


def error_for(code: int, **context: Any) -> BrokerError:
    """Return the exception for an error code.

    Args:
        code: Error code other than 0. An unknown code returns `UnknownServerError` with that code.
            A missing permission returns `AuthorizationFailed`.
        **context: Attributes of `KafkaError`: broker, api, transactional_id, group, topic,
            partition, offset, attempt.
    """
    try:
        known = ErrorCode(code)
    except ValueError:
        return UnknownServerError(
            f"unknown error code {code}; the broker may be newer than this client",
            code=code,
            name=ErrorCode.UNKNOWN_SERVER_ERROR.name,
            **context,
        )
    if known is ErrorCode.UNKNOWN_SERVER_ERROR:
        return UnknownServerError(
            "internal error of the broker; see the broker's log",
            code=known,
            name=known.name,
            **context,
        )
    if known in _RESOURCE_TYPES:
        return _authorization_failed(known, context)
    hint = _HINTS.get(known)
    return BrokerError(
        f"{known.name}: {hint}" if hint else known.name,
        code=known,
        name=known.name,
        retriable=known.retriable,
        **context,
    )


def raise_for(code: int, **context: Any) -> None:
    """Raise the exception for `code`, unless it is 0."""
    if code != ErrorCode.NONE:
        raise error_for(code, **context)
