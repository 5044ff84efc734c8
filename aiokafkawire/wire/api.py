"""The table of Kafka's APIs: key, name, message classes and versions.

Message classes are imported on first use.
"""

import functools
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, cast

from aiokafkawire.wire.schema import Message, Request, Response

__all__ = ("APIS", "API_ALIASES", "Api", "ApiKey", "api_for", "message_class", "message_names")


class ApiKey(IntEnum):
    """The API key in request headers: all of Kafka 4.4, and those that were removed before."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


@dataclass(frozen=True, slots=True)
class Api:
    """One API and the versions that its message classes support, which are all released versions.

    Attributes:
        key: API key.
        name: Kafka's name of the API, e.g. "JoinGroup".
        min_version: Lowest version of the message classes.
        max_version: Highest version of the message classes.
        flexible_from: First flexible version (compact lengths and tagged fields, KIP-482), or
            None.
        latest_version_unstable: `max_version` is unstable in Kafka; only tests use it.
        first_version_unstable: Version 0 was early access; the release that made the API stable
            has version 1.
    """

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    flexible_from: int | None
    latest_version_unstable: bool = False
    first_version_unstable: bool = False

    @property
    def min_stable_version(self) -> int:
        """Lowest version to use with a broker."""
        return self.min_version + self.first_version_unstable

    @property
    def max_stable_version(self) -> int:
        """Highest version to use with a broker."""
        return self.max_version - self.latest_version_unstable

    @property
    def request(self) -> type[Request[Any]]:
        """Request class of the API."""
        return cast("type[Request[Any]]", self._load_api_message("Request"))

    @property
    def response(self) -> type[Response]:
        """Response class of the API."""
        return cast("type[Response]", self._load_api_message("Response"))

    def _load_api_message(self, suffix: str) -> type[Message]:
        return _load_api_message(self.name, suffix)


APIS: Mapping[ApiKey, Api] = MappingProxyType(
    {
        api.key: api
        for api in (
            Api(ApiKey.PRODUCE, "Produce", 0, 13, 9),
            Api(ApiKey.FETCH, "Fetch", 0, 18, 12),
            Api(ApiKey.LIST_OFFSETS, "ListOffsets", 0, 11, 6),
            Api(ApiKey.METADATA, "Metadata", 0, 13, 9),
            Api(ApiKey.LEADER_AND_ISR, "LeaderAndIsr", 0, 7, 4),
            Api(ApiKey.STOP_REPLICA, "StopReplica", 0, 4, 2),
            Api(ApiKey.UPDATE_METADATA, "UpdateMetadata", 0, 8, 6),
            Api(ApiKey.CONTROLLED_SHUTDOWN, "ControlledShutdown", 0, 3, 3),
            Api(ApiKey.OFFSET_COMMIT, "OffsetCommit", 0, 10, 8),
            Api(ApiKey.OFFSET_FETCH, "OffsetFetch", 0, 10, 6),
            Api(ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 6, 3),
            Api(ApiKey.JOIN_GROUP, "JoinGroup", 0, 9, 6),
            Api(ApiKey.HEARTBEAT, "Heartbeat", 0, 4, 4),
            Api(ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 5, 4),
            Api(ApiKey.SYNC_GROUP, "SyncGroup", 0, 5, 4),
            Api(ApiKey.DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 5),
            Api(ApiKey.LIST_GROUPS, "ListGroups", 0, 5, 3),
            Api(ApiKey.SASL_HANDSHAKE, "SaslHandshake", 0, 1, None),
            Api(ApiKey.API_VERSIONS, "ApiVersions", 0, 5, 3),
            Api(ApiKey.CREATE_TOPICS, "CreateTopics", 0, 7, 5),
            Api(ApiKey.DELETE_TOPICS, "DeleteTopics", 0, 6, 4),
            Api(ApiKey.DELETE_RECORDS, "DeleteRecords", 0, 2, 2),
            Api(ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 6, 2, latest_version_unstable=True),
            Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 0, 4, 4),
            Api(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5, 3),
            Api(ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 3),
            Api(ApiKey.END_TXN, "EndTxn", 0, 5, 3),
            Api(ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", 0, 2, 1),
            Api(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 6, 3),
            Api(ApiKey.DESCRIBE_ACLS, "DescribeAcls", 0, 3, 2),
            Api(ApiKey.CREATE_ACLS, "CreateAcls", 0, 3, 2),
            Api(ApiKey.DELETE_ACLS, "DeleteAcls", 0, 3, 2),
            Api(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", 0, 4, 4),
            Api(ApiKey.ALTER_CONFIGS, "AlterConfigs", 0, 2, 2),
            Api(ApiKey.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 0, 2, 2),
            Api(ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 0, 5, 2),
            Api(ApiKey.SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2),
            Api(ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2),
            Api(ApiKey.CREATE_DELEGATION_TOKEN, "CreateDelegationToken", 0, 3, 2),
            Api(ApiKey.RENEW_DELEGATION_TOKEN, "RenewDelegationToken", 0, 2, 2),
            Api(ApiKey.EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", 0, 2, 2),
            Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", 0, 3, 2),
            Api(ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 3, 2),
            Api(ApiKey.ELECT_LEADERS, "ElectLeaders", 0, 2, 2),
            Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1),
            Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 1, 0),
            Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0),
            Api(ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0, None),
            Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 1),
            Api(ApiKey.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 1),
            Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0),
            Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0),
            Api(ApiKey.VOTE, "Vote", 0, 2, 0),
            Api(ApiKey.BEGIN_QUORUM_EPOCH, "BeginQuorumEpoch", 0, 1, 1),
            Api(ApiKey.END_QUORUM_EPOCH, "EndQuorumEpoch", 0, 1, 1),
            Api(ApiKey.DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0),
            Api(ApiKey.ALTER_PARTITION, "AlterPartition", 0, 3, 0),
            Api(ApiKey.UPDATE_FEATURES, "UpdateFeatures", 0, 2, 0),
            Api(ApiKey.ENVELOPE, "Envelope", 0, 0, 0),
            Api(ApiKey.FETCH_SNAPSHOT, "FetchSnapshot", 0, 1, 0),
            Api(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0),
            Api(ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0),
            Api(ApiKey.BROKER_REGISTRATION, "BrokerRegistration", 0, 4, 0),
            Api(ApiKey.BROKER_HEARTBEAT, "BrokerHeartbeat", 0, 2, 0),
            Api(ApiKey.UNREGISTER_BROKER, "UnregisterBroker", 0, 0, 0),
            Api(ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0),
            Api(ApiKey.LIST_TRANSACTIONS, "ListTransactions", 0, 2, 0),
            Api(ApiKey.ALLOCATE_PRODUCER_IDS, "AllocateProducerIds", 0, 0, 0),
            Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0),
            Api(ApiKey.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0),
            Api(ApiKey.CONTROLLER_REGISTRATION, "ControllerRegistration", 0, 0, 0),
            Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "GetTelemetrySubscriptions", 0, 0, 0),
            Api(ApiKey.PUSH_TELEMETRY, "PushTelemetry", 0, 0, 0),
            Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, "AssignReplicasToDirs", 0, 0, 0),
            Api(ApiKey.LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, 0),
            Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0),
            Api(
                ApiKey.SHARE_GROUP_HEARTBEAT,
                "ShareGroupHeartbeat",
                0,
                1,
                0,
                first_version_unstable=True,
            ),
            Api(
                ApiKey.SHARE_GROUP_DESCRIBE,
                "ShareGroupDescribe",
                0,
                1,
                0,
                first_version_unstable=True,
            ),
            Api(ApiKey.SHARE_FETCH, "ShareFetch", 0, 2, 0, first_version_unstable=True),
            Api(ApiKey.SHARE_ACKNOWLEDGE, "ShareAcknowledge", 0, 2, 0, first_version_unstable=True),
            Api(ApiKey.ADD_RAFT_VOTER, "AddRaftVoter", 0, 1, 0),
            Api(ApiKey.REMOVE_RAFT_VOTER, "RemoveRaftVoter", 0, 0, 0),
            Api(ApiKey.UPDATE_RAFT_VOTER, "UpdateRaftVoter", 0, 0, 0),
            Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, "InitializeShareGroupState", 0, 0, 0),
            Api(ApiKey.READ_SHARE_GROUP_STATE, "ReadShareGroupState", 0, 0, 0),
            Api(ApiKey.WRITE_SHARE_GROUP_STATE, "WriteShareGroupState", 0, 1, 0),
            Api(ApiKey.DELETE_SHARE_GROUP_STATE, "DeleteShareGroupState", 0, 0, 0),
            Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, "ReadShareGroupStateSummary", 0, 1, 0),
            Api(ApiKey.STREAMS_GROUP_HEARTBEAT, "StreamsGroupHeartbeat", 0, 1, 0),
            Api(ApiKey.STREAMS_GROUP_DESCRIBE, "StreamsGroupDescribe", 0, 1, 0),
            Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsets", 0, 1, 0),
            Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsets", 0, 0, 0),
            Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "DeleteShareGroupOffsets", 0, 0, 0),
            Api(
                ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
                "StreamsGroupTopologyDescriptionUpdate",
                0,
                0,
                0,
            ),
            Api(ApiKey.UNREGISTER_CONTROLLER, "UnregisterController", 0, 0, 0),
        )
    }
)
"""All APIs of all releases, including those between brokers and controllers."""

_BY_NAME: Mapping[str, tuple[Api, str]] = {
    api.name + suffix: (api, suffix) for api in APIS.values() for suffix in ("Request", "Response")
}

API_ALIASES: Mapping[str, str] = {
    "ConsumerMetadata": "FindCoordinator",
    "GroupCoordinator": "FindCoordinator",
    "ListOffset": "ListOffsets",
    "Offset": "ListOffsets",
    "Offsets": "ListOffsets",
    "TopicMetadata": "Metadata",
}
"""Names of APIs in the protocol documents of 0.8 to 0.10, and their current names."""

_MESSAGE_MODULES: Mapping[str, tuple[str, ...]] = {
    "headers": ("RequestHeader", "ResponseHeader"),
    "consumer_protocol": ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
    "control_records": (
        "ControlRecordTypeSchema",
        "EndTxnMarker",
        "LeaderChangeMessage",
        "SnapshotHeaderRecord",
        "SnapshotFooterRecord",
        "KRaftVersionRecord",
        "VotersRecord",
    ),
    "principal": ("DefaultPrincipalData",),
    # The name of ListConfigResources v0 before 4.1, with other field names.
    "list_config_resources": (
        "ListClientMetricsResourcesRequest",
        "ListClientMetricsResourcesResponse",
    ),
}
"""Modules of the messages that do not belong to an API."""

_RECORD_MODULES: Mapping[str, tuple[str, ...]] = {
    "group_records": ("GroupMetadata", "OffsetCommit", "LegacyOffsetCommit"),
    "consumer_group_records": (
        "ConsumerGroupMetadata",
        "ConsumerGroupPartitionMetadata",
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupCurrentMemberAssignment",
        "ConsumerGroupRegularExpression",
    ),
    "share_group_records": (
        "ShareGroupMetadata",
        "ShareGroupMemberMetadata",
        "ShareGroupTargetAssignmentMetadata",
        "ShareGroupTargetAssignmentMember",
        "ShareGroupCurrentMemberAssignment",
        "ShareGroupStatePartitionMetadata",
    ),
    "streams_group_records": (
        "StreamsGroupMetadata",
        "StreamsGroupMemberMetadata",
        "StreamsGroupTopology",
        "StreamsGroupTargetAssignmentMetadata",
        "StreamsGroupTargetAssignmentMember",
        "StreamsGroupCurrentMemberAssignment",
    ),
    "transaction_records": ("TransactionLog",),
    "share_state_records": ("ShareSnapshot", "ShareUpdate"),
}
"""Modules of the records of coordinators; each record has a key class and a value class."""

_CLASS_NAMES = {"RequestHeader": "RequestHeaderData", "ResponseHeader": "ResponseHeaderData"}

_SUFFIX = re.compile("(Request|Response)$")

_MODULE_BY_MESSAGE: Mapping[str, str] = {
    name: module for module, names in _MESSAGE_MODULES.items() for name in names
} | {
    name + part: module
    for module, names in _RECORD_MODULES.items()
    for name in names
    for part in ("Key", "Value")
}


def api_for(message: Request[Any] | Response) -> Api:
    """Return the API of a request or response."""
    return APIS[ApiKey(message.api_key)]


def message_names() -> tuple[str, ...]:
    """Return the names of all messages that `message_class` knows, without aliases."""
    return (*_BY_NAME, *_MODULE_BY_MESSAGE)


def message_class(name: str) -> type[Message]:
    """Return the class of a message by Kafka's name, e.g. `"JoinGroupRequest"`.

    Names of older protocol documents work too: `"GroupCoordinatorRequest"` is
    FindCoordinatorRequest, `"OffsetsResponse"` is ListOffsetsResponse.

    Raises:
        KeyError: There is no message of that name.
    """
    if name in _MODULE_BY_MESSAGE:
        return _load(_MODULE_BY_MESSAGE[name], _CLASS_NAMES.get(name, name))
    stem, suffix = _SUFFIX.sub("", name), _SUFFIX.search(name)
    if stem in API_ALIASES and suffix is not None:
        name = API_ALIASES[stem] + suffix[0]
    api, part = _BY_NAME[name]
    return api.request if part == "Request" else api.response


@functools.cache
def _load_api_message(name: str, suffix: str) -> type[Message]:
    """Return the class of a request or response; cached, because every message looks it up."""
    module = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return _load(module, name + suffix)


def _load(module: str, name: str) -> type[Message]:
    message_type = getattr(importlib.import_module(f"aiokafkawire.wire.messages.{module}"), name)
    return cast("type[Message]", message_type)
