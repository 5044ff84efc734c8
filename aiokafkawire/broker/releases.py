"""API versions of each Kafka release, and its behaviour that clients can observe.

Versions are those that releases advertise in ApiVersions, and for 0.8 and 0.9, which lack that API,
those that they answer.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from aiokafkawire.config import did_you_mean
from aiokafkawire.errors import InvalidOption
from aiokafkawire.wire import APIS, ApiKey, ErrorCode

__all__ = (
    "NODE_CLIENT_ID",
    "RELEASES",
    "ApiVersionRange",
    "Release",
    "UnsupportedApi",
    "get_release",
    "with_inter_broker_apis",
)

VersionNumber = tuple[int, ...]

MAX_INT64 = 2**63 - 1

RELEASE_NAMES = (
    *("0.8.0", "0.8.1", "0.8.2", "0.9.0", "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1"),
    *("2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8"),
    *("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9"),
    *("4.0", "4.1", "4.2", "4.3", "4.4"),
)
"""Releases, oldest first, without patch numbers."""

_HIGHEST: Mapping[ApiKey, str] = {
    ApiKey.PRODUCE: "0.8.0:0 0.9.0:1 0.10.0:2 0.11.0:3 1.0:5 2.0:6 2.1:7 2.4:8 2.8:9 3.7:10 3.8:11"
    " 4.0:12 4.1:13",
    ApiKey.FETCH: "0.8.0:0 0.9.0:1 0.10.0:2 0.10.1:3 0.11.0:5 1.0:6 1.1:7 2.0:8 2.1:10 2.3:11"
    " 2.7:12 3.1:13 3.5:15 3.7:16 3.9:17 4.1:18",
    ApiKey.LIST_OFFSETS: "0.8.0:0 0.10.1:1 0.11.0:2 2.0:3 2.1:4 2.2:5 2.8:6 3.0:7 3.5:8 3.9:9"
    " 4.0:10 4.2:11",
    ApiKey.METADATA: "0.8.0:0 0.10.0:1 0.10.1:2 0.11.0:4 1.0:5 2.0:6 2.1:7 2.3:8 2.4:9 2.8:11"
    " 3.1:12 4.0:13",
    ApiKey.LEADER_AND_ISR: "0.8.0:0 1.0:1 2.2:2 2.4:4 2.8:5",
    ApiKey.STOP_REPLICA: "0.8.0:0 2.2:1 2.4:2 2.6:3",
    ApiKey.UPDATE_METADATA: "0.8.0:0 0.9.0:1 0.10.0:2 0.10.2:3 1.0:4 2.2:5 2.4:6 2.8:7",
    ApiKey.CONTROLLED_SHUTDOWN: "0.8.0:0 0.9.0:1 2.2:2 2.4:3",
    ApiKey.OFFSET_COMMIT: "0.8.1:0 0.8.2:1 0.9.0:2 0.11.0:3 2.0:4 2.1:6 2.3:7 2.4:8 3.7:9 4.2:10",
    ApiKey.OFFSET_FETCH: "0.8.1:0 0.8.2:1 0.10.2:2 0.11.0:3 2.0:4 2.1:5 2.4:6 2.5:7 3.0:8 3.7:9"
    " 4.2:10",
    ApiKey.FIND_COORDINATOR: "0.8.2:0 0.11.0:1 2.0:2 2.4:3 3.0:4 3.8:5 3.9:6",
    ApiKey.JOIN_GROUP: "0.9.0:0 0.10.1:1 0.11.0:2 2.0:3 2.2:4 2.3:5 2.4:6 2.5:7 3.2:9",
    ApiKey.HEARTBEAT: "0.9.0:0 0.11.0:1 2.0:2 2.3:3 2.4:4",
    ApiKey.LEAVE_GROUP: "0.9.0:0 0.11.0:1 2.0:2 2.4:4 3.2:5",
    ApiKey.SYNC_GROUP: "0.9.0:0 0.11.0:1 2.0:2 2.3:3 2.4:4 2.5:5",
    ApiKey.DESCRIBE_GROUPS: "0.9.0:0 0.11.0:1 2.0:2 2.3:3 2.4:5 4.0:6",
    ApiKey.LIST_GROUPS: "0.9.0:0 0.11.0:1 2.0:2 2.4:3 2.6:4 3.8:5",
    ApiKey.SASL_HANDSHAKE: "0.10.0:0 1.0:1",
    ApiKey.API_VERSIONS: "0.10.0:0 0.11.0:1 2.0:2 2.4:3 3.9:4 4.4:5",
    ApiKey.CREATE_TOPICS: "0.10.1:0 0.10.2:1 0.11.0:2 2.0:3 2.4:5 2.7:6 2.8:7",
    ApiKey.DELETE_TOPICS: "0.10.1:0 0.11.0:1 2.0:2 2.1:3 2.4:4 2.7:5 2.8:6",
    ApiKey.INIT_PRODUCER_ID: "0.11.0:0 2.0:1 2.4:2 2.5:3 2.7:4 3.8:5",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "0.11.0:0 2.0:1 2.1:2 2.3:3 2.8:4",
    ApiKey.DESCRIBE_CONFIGS: "0.11.0:0 1.1:1 2.0:2 2.6:3 2.8:4",
    ApiKey.DELETE_RECORDS: "0.11.0:0 2.0:1 2.6:2",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "1.0:0 2.0:1 2.8:2",
    ApiKey.DESCRIBE_LOG_DIRS: "1.0:0 2.0:1 2.6:2 3.2:3 3.3:4 4.3:5",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "3.8:0",
    ApiKey.ALTER_CONFIGS: "0.11.0:0 2.0:1 2.8:2",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3:0 2.4:1",
    ApiKey.LIST_CONFIG_RESOURCES: "3.7:0 4.1:1",
    ApiKey.SASL_AUTHENTICATE: "1.0:0 2.2:1 2.5:2",
    ApiKey.CREATE_PARTITIONS: "1.0:0 2.0:1 2.5:2 2.7:3",
    ApiKey.DELETE_GROUPS: "1.1:0 2.0:1 2.4:2 4.4:3",
    ApiKey.OFFSET_DELETE: "2.4:0",
    ApiKey.DESCRIBE_CLUSTER: "2.8:0 3.7:1 4.0:2",
    ApiKey.ADD_PARTITIONS_TO_TXN: "0.11.0:0 2.0:1 2.7:2 2.8:3 3.5:4 3.8:5",
    ApiKey.ADD_OFFSETS_TO_TXN: "0.11.0:0 2.0:1 2.7:2 2.8:3 3.8:4",
    ApiKey.END_TXN: "0.11.0:0 2.0:1 2.7:2 2.8:3 3.8:4 4.0:5",
    ApiKey.TXN_OFFSET_COMMIT: "0.11.0:0 2.0:1 2.1:2 2.5:3 3.8:4 4.0:5 4.4:6",
    ApiKey.DESCRIBE_PRODUCERS: "2.8:0",
    ApiKey.DESCRIBE_TRANSACTIONS: "3.0:0",
    ApiKey.LIST_TRANSACTIONS: "3.0:0 3.8:1 4.1:2",
    ApiKey.DESCRIBE_ACLS: "0.11.0:0 2.0:1 2.5:2 3.3:3",
    ApiKey.CREATE_ACLS: "0.11.0:0 2.0:1 2.5:2 3.3:3",
    ApiKey.DELETE_ACLS: "0.11.0:0 2.0:1 2.5:2 3.3:3",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "2.7:0",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "2.7:0",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "3.7:0 4.0:1",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "3.8:0 4.0:1",
    ApiKey.SHARE_GROUP_HEARTBEAT: "4.1:1",
    ApiKey.SHARE_GROUP_DESCRIBE: "4.1:1",
    ApiKey.SHARE_FETCH: "4.1:1 4.2:2",
    ApiKey.SHARE_ACKNOWLEDGE: "4.1:1 4.2:2",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "4.1:0 4.2:1",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "4.1:0",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "4.1:0",
    ApiKey.ELECT_LEADERS: "2.2:0 2.4:2",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "2.4:0 4.1:1",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "2.4:0",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "2.6:0 2.8:1",
    ApiKey.ALTER_CLIENT_QUOTAS: "2.6:0 2.8:1",
    ApiKey.CREATE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.4:2 3.3:3",
    ApiKey.RENEW_DELEGATION_TOKEN: "1.1:0 2.0:1 2.4:2",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.4:2",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.4:2 3.3:3",
    ApiKey.WRITE_TXN_MARKERS: "0.11.0:0 2.8:1 4.2:2",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "3.7:0",
    ApiKey.PUSH_TELEMETRY: "3.7:0",
    ApiKey.UPDATE_FEATURES: "2.7:0 3.3:1 4.0:2",
    ApiKey.DESCRIBE_QUORUM: "3.3:1 3.9:2",
    ApiKey.UNREGISTER_BROKER: "3.3:0",
    ApiKey.UNREGISTER_CONTROLLER: "4.4:0",
    ApiKey.ADD_RAFT_VOTER: "3.9:0 4.2:1",
    ApiKey.REMOVE_RAFT_VOTER: "3.9:0",
}
"""Highest version by release; an API does not exist before its first entry."""

_LOWEST: Mapping[ApiKey, str] = {
    ApiKey.PRODUCE: "4.0:3",
    ApiKey.FETCH: "4.0:4",
    ApiKey.LIST_OFFSETS: "4.0:1",
    ApiKey.OFFSET_COMMIT: "4.0:2",
    ApiKey.OFFSET_FETCH: "4.0:1",
    ApiKey.JOIN_GROUP: "4.0:2 4.1:0",
    ApiKey.CREATE_TOPICS: "4.0:2",
    ApiKey.DELETE_TOPICS: "4.0:1",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "4.0:2",
    ApiKey.DESCRIBE_CONFIGS: "4.0:1",
    ApiKey.DESCRIBE_ACLS: "4.0:1",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "4.0:1",
    ApiKey.DESCRIBE_LOG_DIRS: "4.0:1",
    ApiKey.CREATE_ACLS: "4.0:1",
    ApiKey.DELETE_ACLS: "4.0:1",
    ApiKey.WRITE_TXN_MARKERS: "4.0:1",
    ApiKey.SHARE_GROUP_HEARTBEAT: "4.1:1",
    ApiKey.SHARE_GROUP_DESCRIBE: "4.1:1",
    ApiKey.SHARE_FETCH: "4.1:1",
    ApiKey.SHARE_ACKNOWLEDGE: "4.1:1",
    ApiKey.CREATE_DELEGATION_TOKEN: "4.0:1",
    ApiKey.RENEW_DELEGATION_TOKEN: "4.0:1",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "4.0:1",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "4.0:1",
}
"""Lowest version by release; 0 before the first entry."""

_CONTROLLER_APIS_REMOVED_IN = "3.0"
_CONTROLLER_APIS = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
    }
)
"""Requests of the controller to nodes under ZooKeeper, and from 3.0 on here in KRaft's place."""

NODE_CLIENT_ID = "broker-"
"""Prefix of the client ids of nodes in requests to each other."""

_ADVERTISED_LOWEST: Mapping[ApiKey, str] = {
    ApiKey.PRODUCE: "0.8.0:0",
    ApiKey.CONTROLLED_SHUTDOWN: "0.10.0:1 1.0:0",
}
"""Advertised lowest versions that differ from the served ones: an old library requires Produce
to start at 0, and ControlledShutdown v0 was not advertised."""


class ApiVersionRange(NamedTuple):
    """Version range of one API, both ends included."""

    low: int
    high: int


class UnsupportedApi(Enum):
    """Reaction to an API or version that a release does not support."""

    CLOSE = "closed"
    IGNORE = "unanswered"


@dataclass(frozen=True, slots=True)
class Release:
    """One release, or the superset of all (`is_superset`), which behaves like the newest.

    `served` versions are answered, `advertised` ones are listed in ApiVersions, and `inter_broker`
    ones are served but advertised only to nodes.
    """

    name: str
    served: Mapping[ApiKey, ApiVersionRange]
    advertised: Mapping[ApiKey, ApiVersionRange]
    is_superset: bool = False
    inter_broker: Mapping[ApiKey, ApiVersionRange] = field(default_factory=dict)

    @property
    def number(self) -> tuple[int, ...]:
        """Name as numbers, for comparisons."""
        return _parse_number(self.name)

    def since(self, release: str) -> bool:
        """Return True if this is the given release or a later one."""
        return self.number >= _parse_number(release)

    @property
    def magic(self) -> int:
        """Newest message format that its log can hold."""
        return 0 if not self.since("0.10.0") else 1 if not self.since("0.11.0") else 2

    @property
    def converts_to_latest_format(self) -> bool:
        """Older message formats are converted to the newest one."""
        return not self.is_superset

    @property
    def mutes_throttled_clients(self) -> bool:
        """A response that exceeds a quota is sent at once, and its connection muted (KIP-219)."""
        return self.since("2.0")

    @property
    def on_unsupported_api(self) -> UnsupportedApi:
        """Reaction to an API or version that it does not support."""
        return UnsupportedApi.IGNORE if self.name == "0.9.0" else UnsupportedApi.CLOSE

    @property
    def returns_supported_range(self) -> bool:
        """An unsupported ApiVersions version is answered with the supported range (KIP-511)."""
        return self.since("2.4")

    @property
    def returns_last_stable_offset(self) -> bool:
        """Fetch responses have the last stable offset also for read_uncommitted."""
        return self.since("2.1")

    @property
    def verifies_transactions(self) -> bool:
        """Writes of a transaction need partitions that were added to it (KIP-890)."""
        return self.since("3.6")

    @property
    def has_zookeeper(self) -> bool:
        """OffsetCommit and OffsetFetch v0 have a ZooKeeper to store offsets in."""
        return self.is_superset or not self.since("3.3")

    @property
    def allows_acks_above_1(self) -> bool:
        """Produce accepts acks above 1."""
        return not self.since("0.9.0")

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Options whose defaults were different in this release."""
        defaults: dict[str, Any] = {}
        if not self.since("0.10.0"):
            defaults["group_max_session_timeout_ms"] = 30_000
        elif not self.since("2.3"):
            defaults["group_max_session_timeout_ms"] = 300_000
        if not self.since("2.1"):
            defaults["connection_failed_authentication_delay_ms"] = 0
        if not self.since("4.0"):
            defaults["timestamp_after_max_ms"] = MAX_INT64
        if not self.since("2.5"):
            defaults["max_message_bytes"] = 1_000_012
            defaults["replica_lag_time_max_ms"] = 10_000
            defaults["refuse_unknown_producers"] = self.since("0.11.0")
            defaults["broker_session_timeout_ms"] = 6_000
        elif not self.since("3.0"):
            defaults["broker_session_timeout_ms"] = 18_000
        return defaults

    @property
    def forwards_to_controller(self) -> bool:
        """Any node forwards requests for the controller (KRaft)."""
        return self.is_superset or self.since("3.3")

    @property
    def unknown_generation(self) -> int:
        """Generation in the response to a failed JoinGroup."""
        return -1 if self.since("2.4") else 0

    @property
    def keeps_empty_groups(self) -> bool:
        """Groups without members are kept."""
        return self.since("0.10.1")

    @property
    def syncing_state_name(self) -> str:
        """Name of the state in which a group waits for the leader's assignment."""
        return "CompletingRebalance" if self.since("1.0") else "AwaitingSync"

    @property
    def accepts_heartbeat_while_syncing(self) -> bool:
        """Heartbeats succeed while the group waits for the assignment (KAFKA-10134)."""
        return self.since("2.7")

    @property
    def distinguishes_followers(self) -> bool:
        """The errors for a missing partition and for a partition without a local replica differ."""
        return self.since("2.0")

    def translate_error(self, error_code: ErrorCode) -> ErrorCode:
        """Return the error code that this release used for `error_code`."""
        if error_code is ErrorCode.INVALID_RECORD and not self.since("2.4"):
            return ErrorCode.CORRUPT_MESSAGE
        if error_code is ErrorCode.UNKNOWN_PRODUCER_ID and not self.since("1.0"):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return error_code


@functools.cache
def _parse_number(name: str) -> VersionNumber:
    return tuple(int(part) for part in name.split("."))


def _parse_steps(text: str) -> list[tuple[VersionNumber, int]]:
    pairs = (step.split(":") for step in text.split())
    return [(_parse_number(release), int(version)) for release, version in pairs]


def _version_at(text: str, number: VersionNumber) -> int | None:
    """Return the version of the last step up to a release."""
    return next(
        (version for since, version in reversed(_parse_steps(text)) if since <= number), None
    )


def _build_release(name: str) -> Release:
    number = _parse_number(name)
    served: dict[ApiKey, ApiVersionRange] = {}
    for key, steps in _HIGHEST.items():
        high = _version_at(steps, number)
        is_removed = key in _CONTROLLER_APIS and number >= _parse_number(
            _CONTROLLER_APIS_REMOVED_IN
        )
        if high is not None and not is_removed:
            served[key] = ApiVersionRange(_version_at(_LOWEST.get(key, ""), number) or 0, high)
    advertised = {
        key: versions._replace(low=versions.low if low is None else low)
        for key, versions in served.items()
        for low in (_version_at(_ADVERTISED_LOWEST.get(key, ""), number),)
    }
    return Release(name, served, advertised)


RELEASES: Mapping[str, Release] = {name: _build_release(name) for name in RELEASE_NAMES}
"""Releases by name, oldest first."""

_ALL_VERSIONS = {
    key: ApiVersionRange(APIS[key].min_version, APIS[key].max_stable_version) for key in APIS
}


def get_release(as_of: str | None, served: Iterable[ApiKey]) -> Release:
    """Return the release for a text, limited to the APIs `served`.

    Args:
        as_of: Release such as "3.9". It may be shortened ("0.8" is the last of 0.8) or name a patch
            ("2.8.2"). None is the superset of all releases.
        served: APIs that the broker implements.

    Raises:
        InvalidOption: There is no such release.
    """
    if as_of is None:
        release = Release(RELEASE_NAMES[-1], _ALL_VERSIONS, _ALL_VERSIONS, is_superset=True)
    else:
        release = RELEASES[_release_name(as_of)]
    return Release(
        release.name,
        {key: release.served[key] for key in served if key in release.served},
        {key: release.advertised[key] for key in served if key in release.advertised},
        release.is_superset,
    )


def with_inter_broker_apis(release: Release) -> Release:
    """Return the release with the inter-broker APIs that `replicate` needs.

    Releases that lack them (KRaft) use those of the last release under ZooKeeper.
    """
    if release.advertised.keys() >= _CONTROLLER_APIS and not release.is_superset:
        return release
    last = RELEASES[
        [name for name in RELEASE_NAMES if not RELEASES[name].since(_CONTROLLER_APIS_REMOVED_IN)][
            -1
        ]
    ]
    inter_broker = {key: last.served[key] for key in sorted(_CONTROLLER_APIS)}
    advertised = {
        key: versions for key, versions in release.advertised.items() if key not in inter_broker
    }
    return replace(
        release,
        served={**release.served, **inter_broker},
        advertised=advertised,
        inter_broker=inter_broker,
    )


def _release_name(as_of: object) -> str:
    text = as_of if isinstance(as_of, str) else ""
    parts = text.split(".")
    if text and all(part.isascii() and part.isdigit() for part in parts):
        for name in reversed(RELEASE_NAMES):
            line = name.split(".")
            if line[: len(parts)] == parts or parts[: len(line)] == line:
                return name
    hint = did_you_mean(text, RELEASE_NAMES) if text else ""
    raise InvalidOption(f"as_of is a release of Kafka from 0.8 to 4.4, not {as_of!r}{hint}")
