"""The table of APIs: key, name, message classes and versions.

The classes themselves are imported when first asked for.
"""

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, cast

from aiokafkawire.wire.schema import Message, Request, Response

__all__ = ("APIS", "Api", "ApiKey", "api_of", "message_class")


class ApiKey(IntEnum):
    """The number of an API in request headers: all of Kafka 4.3 and those removed before it."""

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


@dataclass(frozen=True, slots=True)
class Api:
    """One API and the versions that its classes know, every one ever released.

    `latest_unstable`: Kafka has not settled `max_version` yet; it is for tests alone.
    """

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    latest_unstable: bool = False

    @property
    def max_stable_version(self) -> int:
        """The highest version to speak with a broker."""
        return self.max_version - self.latest_unstable

    @property
    def request(self) -> type[Request[Any]]:
        """The class of its request."""
        return cast("type[Request[Any]]", self._class("Request"))

    @property
    def response(self) -> type[Response]:
        """The class of its response."""
        return cast("type[Response]", self._class("Response"))

    def _class(self, suffix: str) -> type[Message]:
        module = re.sub("(?<=[a-z])(?=[A-Z])", "_", self.name).lower()
        return _load(module, self.name + suffix)


APIS: Mapping[ApiKey, Api] = MappingProxyType(
    {
        api.key: api
        for api in (
            Api(ApiKey.PRODUCE, "Produce", 0, 13),
            Api(ApiKey.FETCH, "Fetch", 0, 18),
            Api(ApiKey.LIST_OFFSETS, "ListOffsets", 0, 11),
            Api(ApiKey.METADATA, "Metadata", 0, 13),
            Api(ApiKey.OFFSET_COMMIT, "OffsetCommit", 0, 10),
            Api(ApiKey.OFFSET_FETCH, "OffsetFetch", 0, 10),
            Api(ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 6),
            Api(ApiKey.JOIN_GROUP, "JoinGroup", 0, 9),
            Api(ApiKey.HEARTBEAT, "Heartbeat", 0, 4),
            Api(ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 5),
            Api(ApiKey.SYNC_GROUP, "SyncGroup", 0, 5),
            Api(ApiKey.DESCRIBE_GROUPS, "DescribeGroups", 0, 6),
            Api(ApiKey.LIST_GROUPS, "ListGroups", 0, 5),
            Api(ApiKey.API_VERSIONS, "ApiVersions", 0, 4),
            Api(ApiKey.CREATE_TOPICS, "CreateTopics", 0, 7),
            Api(ApiKey.DELETE_TOPICS, "DeleteTopics", 0, 6),
            Api(ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 6, latest_unstable=True),
            Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 0, 4),
            Api(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", 0, 4),
            Api(ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3),
            Api(ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 2),
            Api(ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0),
            Api(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 2),
        )
    }
)
"""The APIs whose messages this package has."""

_BY_NAME = {
    name: (api, suffix)
    for api in APIS.values()
    for suffix in ("request", "response")
    for name in (api.name + suffix.capitalize(),)
}

_OTHERS = {
    "RequestHeader": ("headers", "RequestHeaderData"),
    "ResponseHeader": ("headers", "ResponseHeaderData"),
    "ConsumerProtocolSubscription": ("consumer_protocol", "ConsumerProtocolSubscription"),
    "ConsumerProtocolAssignment": ("consumer_protocol", "ConsumerProtocolAssignment"),
}


def api_of(message: Request[Any] | Response) -> Api:
    """The API that a request or response belongs to."""
    return APIS[ApiKey(message.api_key)]


def message_class(name: str) -> type[Message]:
    """The class of Kafka's own name for a message, e.g. `"JoinGroupRequest"`.

    Raises `KeyError` for a name that this package has no class for.
    """
    if name in _OTHERS:
        return _load(*_OTHERS[name])
    api, suffix = _BY_NAME[name]
    return api.request if suffix == "request" else api.response


def _load(module: str, name: str) -> type[Message]:
    found = getattr(importlib.import_module(f"aiokafkawire.wire.messages.{module}"), name)
    return cast("type[Message]", found)
