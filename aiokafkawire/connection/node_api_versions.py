"""API versions of a broker, and the choice of the version of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from aiokafkawire.errors import InvalidOption, KafkaError, MalformedMessage, UnsupportedVersion
from aiokafkawire.wire import APIS, ApiKey, Request, Response
from aiokafkawire.wire.header import EncodedRequest
from aiokafkawire.wire.messages.api_versions import ApiVersionsResponse

__all__ = (
    "MAX_WITHOUT_TOPIC_IDS",
    "RELEASES",
    "ApiVersionOverride",
    "BrokerVersionRange",
    "NodeApiVersions",
    "VersionedRequest",
    "add_version_advice",
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
"""APIs with non-flexible versions that Kafka 2.3 lacks: 2.4 added LeaveGroup v3, for example."""


TRANSACTION_FEATURE = "transaction.version"

# Versions of KIP-890. In earlier versions a producer sends AddPartitionsToTxn itself.
_FIRST_WITH_TRANSACTION_V2 = {ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.END_TXN: 5}

MAX_WITHOUT_TOPIC_IDS: Mapping[int, int] = {
    ApiKey.FETCH: 12,
    ApiKey.PRODUCE: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
}
"""The last version with topic names; later versions have only topic ids.

The caller of a request passes it as `max_version` if a topic has no id.
"""


class BrokerVersionRange(NamedTuple):
    """The versions of one API that a broker supports, both ends included."""

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
"""Versions of the releases without ApiVersions, newest first."""


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """The API versions that one broker supports.

    Attributes:
        ranges: Versions by API key.
        release: Kafka release, if it was found by probing or set by the `api_version` option.
        features: Finalized feature levels of the cluster, as this broker reported them (KIP-584).
        features_epoch: Epoch of `features`; -1 if the broker did not report them.
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
        """Return the versions of a release without ApiVersions; see `RELEASES`."""
        return cls(RELEASES[release], release)

    @classmethod
    def from_response(cls, response: ApiVersionsResponse) -> NodeApiVersions:
        """Convert an ApiVersions response; invalid ranges are ignored."""
        ranges: dict[int, BrokerVersionRange] = {}
        for supported in response.api_keys:
            if 0 <= supported.min_version <= supported.max_version:
                ranges.setdefault(
                    supported.api_key,
                    BrokerVersionRange(supported.min_version, supported.max_version),
                )
        produce, fetch = ranges.get(ApiKey.PRODUCE), ranges.get(ApiKey.FETCH)
        if produce is not None and fetch is not None and fetch.min_version >= 4:
            # Kafka 4.x lists Produce v0 to v2 for old librdkafka, but rejects them.
            ranges[ApiKey.PRODUCE] = produce._replace(min_version=max(produce.min_version, 3))
        features = {item.name: item.max_version_level for item in response.finalized_features}
        return cls(ranges, None, features, response.finalized_features_epoch)

    def without_flexible(self) -> NodeApiVersions:
        """Return only the versions of Kafka 2.3, which has no flexible versions (KIP-482)."""
        ranges = {}
        for key, supported in self.ranges.items():
            flexible_from = APIS[ApiKey(key)].flexible_from if key in APIS else None
            high = min(supported.max_version, _MAX_VERSIONS_OF_2_3.get(key, supported.max_version))
            if flexible_from is not None:
                high = min(high, flexible_from - 1)
            if supported.min_version <= high:
                ranges[key] = BrokerVersionRange(supported.min_version, high)
        return replace(self, ranges=ranges)

    def latest_usable_version(
        self, api_key: int, our_max: int | None = None, our_min: int = 0
    ) -> int:
        """Return the highest stable version that both client and broker support.

        A version that requires a feature is chosen only if this broker reports the feature, or if
        `our_min` demands the version: another broker may have reported it.

        Args:
            api_key: Key of the API.
            our_max: Highest version that the caller accepts.
            our_min: Lowest version that the caller accepts.

        Raises:
            UnsupportedVersion: There is no such version. The text has both ranges.
        """
        wanted = (api_key, our_max, our_min)
        known = self._cache.get(wanted)
        if known is not None:
            return known
        api = APIS[ApiKey(api_key)]
        ceiling = api.max_stable_version
        if our_max is not None:
            ceiling = min(ceiling, our_max)
        floor = max(api.min_stable_version, our_min)
        first = _FIRST_WITH_TRANSACTION_V2.get(api.key)
        if first is not None and floor < first and self.features.get(TRANSACTION_FEATURE, 0) < 2:
            ceiling = min(ceiling, first - 1)
        supported = self.ranges.get(api_key)
        if supported is None:
            raise UnsupportedVersion(
                f"{self._broker_text()} does not support {api.name}", api=api.name
            )
        version = min(supported.max_version, ceiling)
        if version < supported.min_version or version < floor:
            raise UnsupportedVersion(
                f"{self._broker_text()} supports {api.name} {supported}, but"
                f" {BrokerVersionRange(floor, ceiling)} is required",
                api=api.name,
            )
        self._cache[wanted] = version
        return version

    def describe(self) -> str:
        """Return the version that is used for each API, as `Produce 11, Fetch 17, ...`."""
        chosen = [] if self.release is None else [f"Kafka {self.release}"]
        for key in sorted(self.ranges):
            if key in APIS:
                with suppress(UnsupportedVersion):
                    chosen.append(f"{APIS[ApiKey(key)].name} {self.latest_usable_version(key)}")
        return ", ".join(chosen)

    def _broker_text(self) -> str:
        return f"the broker (Kafka {self.release})" if self.release else "the broker"


def add_version_advice(error: KafkaError, response: type[Response], version: int) -> None:
    """Add advice to the error of a malformed response in a flexible version.

    Some mock brokers and proxies implement flexible versions incorrectly. This is not tolerated,
    because an extra byte may also mean that a field was read at the wrong offset.
    """
    faulty = isinstance(error, MalformedMessage) and response.is_flexible(version)
    if faulty and response.api_key != ApiKey.API_VERSIONS:
        error.reason += (
            '; set api_version="2.3" if this is a mock or a proxy with faulty flexible versions'
        )


@dataclass(frozen=True, slots=True)
class VersionedRequest(Generic[R]):
    """A request that `build` creates for the chosen version, if its fields depend on it."""

    api_key: ApiKey
    build: Callable[[int], Request[R] | EncodedRequest]


@dataclass(frozen=True, slots=True)
class ApiVersionOverride:
    """Value of the `api_version` option.

    Attributes:
        versions: Versions of a release before 0.10; None to negotiate without probing.
        flexible: False to send no version that Kafka 2.3 does not support.
    """

    versions: NodeApiVersions | None
    flexible: bool = True


def parse_api_version(api_version: str | None) -> ApiVersionOverride | None:
    """Parse the `api_version` option.

    Args:
        api_version: "0.8.0", "0.8.1", "0.8.2" or "0.9" (or a patch release such as "0.9.0.1")
            replaces negotiation. From "0.10" on, versions are negotiated without probing for older
            releases, and below "2.4" flexible versions are not used. None or "auto" negotiates.

    Returns:
        The override, or None.

    Raises:
        InvalidOption: The value is not a Kafka release.
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
        f"unknown api_version {api_version!r}; the releases below 0.10 are {', '.join(RELEASES)}"
    )
