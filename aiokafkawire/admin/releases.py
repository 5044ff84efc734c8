"""The Kafka release that has introduced each API version, for the text of `UnsupportedVersion`."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafkawire.errors import UnsupportedVersion
from aiokafkawire.wire import APIS, ApiKey

__all__ = ("INTRODUCED_IN", "add_release", "release_with")

INTRODUCED_IN: Mapping[ApiKey, str] = {
    ApiKey.LIST_OFFSETS: "0.8.0:0 0.10.1:1 0.11.0:2 2.0:3 2.1:4 2.2:5 2.8:6 3.0:7 3.5:8 3.9:9"
    " 4.0:10 4.2:11",
    ApiKey.METADATA: "0.8.0:0 0.10.0:1 0.10.1:2 0.11.0:4 1.0:5 2.0:6 2.1:7 2.3:8 2.4:9 2.8:11"
    " 3.1:12 4.0:13",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "3.8:0",
    ApiKey.CREATE_TOPICS: "0.10.1:0 0.10.2:1 0.11.0:2 2.0:3 2.4:5 2.7:6 2.8:7",
    ApiKey.DELETE_TOPICS: "0.10.1:0 0.11.0:1 2.0:2 2.1:3 2.4:4 2.7:5 2.8:6",
    ApiKey.CREATE_PARTITIONS: "1.0:0 2.0:1 2.5:2 2.7:3",
    ApiKey.DELETE_RECORDS: "0.11.0:0 2.0:1 2.6:2",
    ApiKey.ELECT_LEADERS: "2.2:0 2.4:2",
    ApiKey.DESCRIBE_CONFIGS: "0.11.0:0 1.1:1 2.0:2 2.6:3 2.8:4",
    ApiKey.ALTER_CONFIGS: "0.11.0:0 2.0:1 2.8:2",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3:0 2.4:1",
    ApiKey.LIST_CONFIG_RESOURCES: "3.7:0 4.1:1",
    ApiKey.DESCRIBE_CLUSTER: "2.8:0 3.7:1 4.0:2",
    ApiKey.API_VERSIONS: "0.10.0:0 0.11.0:1 2.0:2 2.4:3 3.9:4 4.4:5",
    ApiKey.UPDATE_FEATURES: "2.7:0 3.3:1 4.0:2",
    ApiKey.DESCRIBE_QUORUM: "3.3:1 3.9:2",
    ApiKey.ADD_RAFT_VOTER: "3.9:0 4.2:1",
    ApiKey.REMOVE_RAFT_VOTER: "3.9:0",
    ApiKey.UNREGISTER_BROKER: "3.3:0",
    ApiKey.UNREGISTER_CONTROLLER: "4.4:0",
    ApiKey.DESCRIBE_LOG_DIRS: "1.0:0 2.0:1 2.6:2 3.2:3 3.3:4 4.3:5",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "1.0:0 2.0:1 2.8:2",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "2.4:0 4.1:1",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "2.4:0",
    ApiKey.LIST_GROUPS: "0.9.0:0 0.11.0:1 2.0:2 2.4:3 2.6:4 3.8:5",
    ApiKey.DESCRIBE_GROUPS: "0.9.0:0 0.11.0:1 2.0:2 2.3:3 2.4:5 4.0:6",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "3.8:0 4.0:1",
    ApiKey.SHARE_GROUP_DESCRIBE: "4.1:1",
    ApiKey.STREAMS_GROUP_DESCRIBE: "4.1:0",
    ApiKey.DELETE_GROUPS: "1.1:0 2.0:1 2.4:2 4.4:3",
    ApiKey.LEAVE_GROUP: "0.9.0:0 0.11.0:1 2.0:2 2.4:4 3.2:5",
    ApiKey.OFFSET_FETCH: "0.8.1:0 0.8.2:1 0.10.2:2 0.11.0:3 2.0:4 2.1:5 2.4:6 2.5:7 3.0:8 3.7:9"
    " 4.2:10",
    ApiKey.OFFSET_COMMIT: "0.8.1:0 0.8.2:1 0.9.0:2 0.11.0:3 2.0:4 2.1:6 2.3:7 2.4:8 3.7:9 4.2:10",
    ApiKey.OFFSET_DELETE: "2.4:0",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "4.1:0 4.2:1",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "4.1:0",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "4.1:0",
    ApiKey.DESCRIBE_ACLS: "0.11.0:0 2.0:1 2.5:2 3.3:3",
    ApiKey.CREATE_ACLS: "0.11.0:0 2.0:1 2.5:2 3.3:3",
    ApiKey.DELETE_ACLS: "0.11.0:0 2.0:1 2.5:2 3.3:3",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "2.7:0",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "2.7:0",
    ApiKey.CREATE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.4:2 3.3:3",
    ApiKey.RENEW_DELEGATION_TOKEN: "1.1:0 2.0:1 2.4:2",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.4:2",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.4:2 3.3:3",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "2.6:0 2.8:1",
    ApiKey.ALTER_CLIENT_QUOTAS: "2.6:0 2.8:1",
    ApiKey.DESCRIBE_PRODUCERS: "2.8:0",
    ApiKey.DESCRIBE_TRANSACTIONS: "3.0:0",
    ApiKey.LIST_TRANSACTIONS: "3.0:0 3.8:1 4.1:2",
    ApiKey.WRITE_TXN_MARKERS: "0.11.0:0 2.8:1 4.2:2",
    ApiKey.INIT_PRODUCER_ID: "0.11.0:0 2.0:1 2.4:2 2.5:3 2.7:4 3.8:5",
    ApiKey.FIND_COORDINATOR: "0.8.2:0 0.11.0:1 2.0:2 2.4:3 3.0:4 3.8:5 3.9:6",
}
"""Highest version by release (`release:version`); an API does not exist before its first entry."""

WITH_KRAFT: Mapping[ApiKey, str] = {
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "3.5",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "3.5",
    ApiKey.CREATE_DELEGATION_TOKEN: "3.6",
    ApiKey.RENEW_DELEGATION_TOKEN: "3.6",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "3.6",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "3.6",
}
"""First release with the API in clusters without ZooKeeper (KIP-900 for SCRAM)."""


def release_with(api_key: int, version: int = 0) -> str | None:
    """Return the first release that supports a version of an API; None if it is not known."""
    entries = INTRODUCED_IN.get(ApiKey(api_key), "")
    for entry in entries.split():
        release, _, highest = entry.partition(":")
        if int(highest) >= version:
            return release
    return None


def add_release(error: UnsupportedVersion, api_key: int, min_version: int = 0) -> None:
    """Add the release that a call needs to the text of its error."""
    release = release_with(api_key, min_version)
    if release is None or "needs Kafka" in error.reason:
        return
    api = APIS[ApiKey(api_key)].name
    version = f" v{min_version}" if min_version else ""
    later = WITH_KRAFT.get(ApiKey(api_key))
    with_kraft = f" ({later} with KRaft)" if later else ""
    error.reason += f": {api}{version} needs Kafka {release} or later{with_kraft}"
