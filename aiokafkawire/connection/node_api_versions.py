"""What a broker speaks, and in which version a request goes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from aiokafkawire.errors import InvalidOption, KafkaError, MalformedMessage, UnsupportedVersion
from aiokafkawire.wire import APIS, ZERO_UUID, ApiKey, Request, Response
from aiokafkawire.wire.header import RawRequest
from aiokafkawire.wire.messages.api_versions import ApiVersionsResponse
from aiokafkawire.wire.messages.fetch import FetchRequest
from aiokafkawire.wire.messages.offset_commit import OffsetCommitRequest
from aiokafkawire.wire.messages.offset_fetch import OffsetFetchRequest
from aiokafkawire.wire.messages.produce import ProduceRequest

__all__ = (
    "RELEASES",
    "ApiVersionOverride",
    "BrokerVersionRange",
    "NodeApiVersions",
    "VersionedRequest",
    "add_version_advice",
    "choose_version",
    "parse_api_version",
)

R = TypeVar("R", bound=Response)

FIRST_WITH_API_VERSIONS = (0, 10)
FIRST_WITH_FLEXIBLE_VERSIONS = (2, 4)

_MAX_VERSIONS_OF_2_3: Mapping[int, int] = {
    ApiKey.PRODUCE: 7,
    ApiKey.LEADER_AND_ISR: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.DESCRIBE_GROUPS: 3,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.ELECT_LEADERS: 0,
}
"""Of the APIs whose later versions are not all flexible: 2.4 has LeaveGroup v3 and v4, for one."""


TRANSACTION_FEATURE = "transaction.version"

# The transaction versions of KIP-890; before them a producer adds partitions itself.
_FIRST_WITH_TRANSACTION_V2 = {ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.END_TXN: 5}

MAX_WITHOUT_TOPIC_IDS: Mapping[int, int] = {
    ApiKey.FETCH: 12,
    ApiKey.PRODUCE: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
}
"""The last version that names topics; later ones bear their ids alone."""


class BrokerVersionRange(NamedTuple):
    """The versions of one API, both ends included."""

    min_version: int
    max_version: int

    def __str__(self) -> str:
        return (
            str(self.min_version)
            if self.min_version == self.max_version
            else f"{self.min_version} to {self.max_version}"
        )


def _release(**highest: int) -> Mapping[int, BrokerVersionRange]:
    return {ApiKey[name.upper()]: BrokerVersionRange(0, high) for name, high in highest.items()}


_V080 = _release(
    produce=0,
    fetch=0,
    list_offsets=0,
    metadata=0,
    leader_and_isr=0,
    stop_replica=0,
    update_metadata=0,
    controlled_shutdown=0,
)
_V081 = {**_V080, **_release(offset_commit=0, offset_fetch=0)}
_V082 = {**_V081, **_release(offset_commit=1, offset_fetch=1, find_coordinator=0)}
_V090 = {
    **_V082,
    **_release(
        produce=1,
        fetch=1,
        update_metadata=1,
        controlled_shutdown=1,
        offset_commit=2,
        join_group=0,
        heartbeat=0,
        leave_group=0,
        sync_group=0,
        describe_groups=0,
        list_groups=0,
    ),
}

RELEASES: Mapping[str, Mapping[int, BrokerVersionRange]] = {
    "0.9": _V090,
    "0.8.2": _V082,
    "0.8.1": _V081,
    "0.8.0": _V080,
}
"""What the releases speak that cannot be asked, the newest first."""


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """The versions that one broker speaks.

    `release` is set where it was found by probing or pinned; `features` are the cluster's finalised
    feature levels as this broker knew them when it was asked. The higher `features_epoch` is the
    newer; -1: it did not know them yet.
    """

    ranges: Mapping[int, BrokerVersionRange]
    release: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    features_epoch: int = -1
    # As many entries as there are kinds of requests.
    _cache: dict[tuple[int, int | None, int], int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def for_release(cls, release: str) -> NodeApiVersions:
        return cls(RELEASES[release], release)

    @classmethod
    def from_response(cls, response: ApiVersionsResponse) -> NodeApiVersions:
        """Read what a broker says of itself; ranges that cannot be are left out."""
        ranges: dict[int, BrokerVersionRange] = {}
        for told in response.api_keys:
            if 0 <= told.min_version <= told.max_version:
                ranges.setdefault(
                    told.api_key, BrokerVersionRange(told.min_version, told.max_version)
                )
        produce, fetch = ranges.get(ApiKey.PRODUCE), ranges.get(ApiKey.FETCH)
        if produce is not None and fetch is not None and fetch.min_version >= 4:
            # 4.x lists Produce from 0 for the sake of an old library, and refuses 0 to 2.
            ranges[ApiKey.PRODUCE] = produce._replace(min_version=max(produce.min_version, 3))
        features = {item.name: item.max_version_level for item in response.finalized_features}
        return cls(ranges, None, features, response.finalized_features_epoch)

    def without_flexible(self) -> NodeApiVersions:
        """Return only the versions that Kafka 2.3 has: none of them is flexible (KIP-482)."""
        ranges = {}
        for key, told in self.ranges.items():
            flexible_from = APIS[ApiKey(key)].flexible_from if key in APIS else None
            high = min(told.max_version, _MAX_VERSIONS_OF_2_3.get(key, told.max_version))
            if flexible_from is not None:
                high = min(high, flexible_from - 1)
            if told.min_version <= high:
                ranges[key] = BrokerVersionRange(told.min_version, high)
        return replace(self, ranges=ranges)

    def latest_usable_version(
        self, api_key: int, our_max: int | None = None, our_min: int = 0
    ) -> int:
        """The highest version that both sides know and that is not unstable.

        A version that goes with a feature is not chosen unless this broker told of the feature, or
        the caller needs it, who knows what others told. Raises `UnsupportedVersion`, naming both
        ranges.
        """
        wanted = (api_key, our_max, our_min)
        version = self._cache.get(wanted)
        if version is None:
            version = self._cache[wanted] = self._latest_usable_version(api_key, our_max, our_min)
        return version

    def _latest_usable_version(self, api_key: int, our_max: int | None, our_min: int) -> int:
        api = APIS[ApiKey(api_key)]
        ceiling = api.max_stable_version
        if our_max is not None:
            ceiling = min(ceiling, our_max)
        floor = max(api.min_stable_version, our_min)
        first = _FIRST_WITH_TRANSACTION_V2.get(api.key)
        if first is not None and floor < first and self.features.get(TRANSACTION_FEATURE, 0) < 2:
            ceiling = min(ceiling, first - 1)
        told = self.ranges.get(api_key)
        if told is None:
            raise UnsupportedVersion(f"{self._broker_text()} has no {api.name}", api=api.name)
        version = min(told.max_version, ceiling)
        if version < told.min_version or version < floor:
            raise UnsupportedVersion(
                f"{self._broker_text()} has {api.name} {told}, and this needs"
                f" {BrokerVersionRange(floor, ceiling)}",
                api=api.name,
            )
        return version

    def describe(self) -> str:
        """Name the version that each API's requests go out in: `Produce 11, Fetch 17, ...`."""
        chosen = [] if self.release is None else [f"Kafka {self.release}"]
        for key in sorted(self.ranges):
            if key in APIS:
                with suppress(UnsupportedVersion):
                    chosen.append(
                        f"{APIS[ApiKey(key)].name} {self._latest_usable_version(key, None, 0)}"
                    )
        return ", ".join(chosen)

    def _broker_text(self) -> str:
        return f"the broker (Kafka {self.release})" if self.release else "the broker"


def add_version_advice(error: KafkaError, response: type[Response], version: int) -> None:
    """Name the remedy for a malformed response in a flexible version.

    Mock brokers and proxies get these versions wrong. The bytes stay an error, because a stray one
    may as well be a field read at the wrong place.
    """
    faulty = isinstance(error, MalformedMessage) and response.is_flexible(version)
    if faulty and response.api_key != ApiKey.API_VERSIONS:
        error.reason += (
            '; set api_version="2.3" if this is a mock or a proxy with faulty flexible versions'
        )


@dataclass(frozen=True, slots=True)
class VersionedRequest(Generic[R]):
    """A request that is built when the version is known, for APIs whose shape depends on it."""

    api_key: ApiKey
    build: Callable[[int], Request[R] | RawRequest]


@dataclass(frozen=True, slots=True)
class ApiVersionOverride:
    """What the `api_version` option says: a release before 0.10, or only that it is not one.

    Without `flexible` nothing goes out in a version that releases before 2.4 do not have.
    """

    versions: NodeApiVersions | None
    flexible: bool = True


def parse_api_version(api_version: str | None) -> ApiVersionOverride | None:
    """Read the `api_version` option; None leaves everything to negotiation.

    "0.8.0", "0.8.1", "0.8.2" and "0.9" (and their later releases, as "0.9.0.1") take the place of
    negotiation. From "0.10" on a broker can be asked, and is; such a value says that no older one
    is to be looked for, and below "2.4" that no flexible versions are to be used, whatever the
    broker says. Raises `InvalidOption`.
    """
    if api_version is None or api_version == "auto":
        return None
    parts = api_version.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts) or len(parts) < 2:
        raise InvalidOption(
            f"api_version must be a Kafka release such as '0.8.2' or '4.3', not {api_version!r}"
        )
    numbers = tuple(map(int, parts))
    if numbers >= FIRST_WITH_API_VERSIONS:
        return ApiVersionOverride(None, flexible=numbers >= FIRST_WITH_FLEXIBLE_VERSIONS)
    for release in RELEASES:
        if parts[: release.count(".") + 1] == release.split("."):
            return ApiVersionOverride(NodeApiVersions.for_release(release))
    raise InvalidOption(
        f"api_version {api_version!r} is not known; below 0.10 there are {', '.join(RELEASES)}"
    )


def choose_version(
    versions: NodeApiVersions,
    message: Request[Any] | VersionedRequest[Any],
    min_version: int = 0,
    max_version: int | None = None,
) -> int:
    """The version in which a request goes to a broker.

    A request with a topic whose id is not known goes in the last version that names topics.
    Raises `UnsupportedVersion`.
    """
    last = MAX_WITHOUT_TOPIC_IDS.get(message.api_key)
    if (
        last is not None
        and not isinstance(message, VersionedRequest)
        and not _has_topic_ids(message)
    ):
        max_version = last if max_version is None else min(last, max_version)
    return versions.latest_usable_version(message.api_key, max_version, min_version)


def _has_topic_ids(message: Request[Any]) -> bool:
    """Whether each topic in a request has an id, or the API does not need any."""
    match message:
        case ProduceRequest():
            return _all_ids(message.topic_data)
        case FetchRequest():
            return _all_ids(message.topics) and _all_ids(message.forgotten_topics_data)
        case OffsetCommitRequest():
            return _all_ids(message.topics)
        case OffsetFetchRequest():
            # All topics of a group would come back as ids that the caller need not know.
            return all(
                group.topics is not None and _all_ids(group.topics) for group in message.groups
            )
        case _:
            return True


def _all_ids(topics: Iterable[Any]) -> bool:
    return all(topic.topic_id != ZERO_UUID for topic in topics)
