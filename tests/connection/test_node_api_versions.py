from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from aiokafkawire.broker import releases
from aiokafkawire.connection.node_api_versions import (
    MAX_WITHOUT_TOPIC_IDS,
    RELEASES,
    BrokerVersionRange,
    NodeApiVersions,
    add_version_advice,
    parse_api_version,
)
from aiokafkawire.errors import InvalidOption, MalformedMessage, UnsupportedVersion
from aiokafkawire.wire import APIS, ApiKey, Response
from aiokafkawire.wire.messages import api_versions, metadata

EVERYTHING = NodeApiVersions(
    {api.key: BrokerVersionRange(api.min_version, api.max_version) for api in APIS.values()}
)


def reported(
    ranges: Mapping[int, tuple[int, int]], level: int = 0
) -> api_versions.ApiVersionsResponse:
    return api_versions.ApiVersionsResponse(
        error_code=0,
        api_keys=[
            api_versions.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in ranges.items()
        ],
        finalized_features=[
            api_versions.FinalizedFeatureKey(
                name="transaction.version", max_version_level=level, min_version_level=level
            )
        ],
    )


@pytest.mark.parametrize(
    ("broker", "our_max", "our_min", "version"),
    [((0, 2), None, 0, 2), ((0, 99), None, 0, 4), ((0, 4), 1, 0, 1), ((1, 3), None, 2, 3)],
)
def test_the_highest_common_version_is_chosen(
    broker: tuple[int, int], our_max: int | None, our_min: int, version: int
):
    versions = NodeApiVersions({ApiKey.HEARTBEAT: BrokerVersionRange(*broker)})
    assert versions.latest_usable_version(ApiKey.HEARTBEAT, our_max, our_min) == version


@pytest.mark.parametrize(
    ("broker", "our_max", "our_min"),
    [((9, 12), None, 0), ((0, 2), None, 3), ((3, 4), 2, 0)],
)
def test_no_version_in_common_names_both_ranges(
    broker: tuple[int, int], our_max: int | None, our_min: int
):
    versions = NodeApiVersions({ApiKey.HEARTBEAT: BrokerVersionRange(*broker)})
    with pytest.raises(UnsupportedVersion, match=f"Heartbeat {broker[0]} to {broker[1]}, but"):
        versions.latest_usable_version(ApiKey.HEARTBEAT, our_max, our_min)


def test_an_unsupported_api_is_reported_with_the_release():
    with pytest.raises(UnsupportedVersion, match=r"\(Kafka 0.8.2\) does not support JoinGroup"):
        NodeApiVersions.for_release("0.8.2").latest_usable_version(ApiKey.JOIN_GROUP)


def test_an_unstable_version_is_never_chosen():
    api = APIS[ApiKey.INIT_PRODUCER_ID]
    assert api.latest_version_unstable
    assert EVERYTHING.latest_usable_version(api.key) == api.max_version - 1


def test_a_version_for_early_access_is_never_chosen():
    key = ApiKey.SHARE_FETCH
    with pytest.raises(UnsupportedVersion, match="ShareFetch"):
        NodeApiVersions({key: BrokerVersionRange(0, 0)}).latest_usable_version(key)
    assert NodeApiVersions({key: BrokerVersionRange(0, 2)}).latest_usable_version(key) == 2


def test_invalid_and_repeated_ranges_are_ignored():
    response = reported({3: (2, 1), 9: (-1, 4), 12: (0, 3)})
    response.api_keys.append(api_versions.ApiVersion(api_key=12, min_version=0, max_version=99))
    assert NodeApiVersions.from_response(response).ranges == {12: BrokerVersionRange(0, 3)}


def test_produce_versions_that_4_x_lists_but_rejects_are_not_used():
    new = NodeApiVersions.from_response(reported({ApiKey.PRODUCE: (0, 13), ApiKey.FETCH: (4, 17)}))
    assert new.ranges[ApiKey.PRODUCE] == BrokerVersionRange(3, 13)
    old = NodeApiVersions.from_response(reported({ApiKey.PRODUCE: (0, 9), ApiKey.FETCH: (0, 12)}))
    assert old.ranges[ApiKey.PRODUCE] == BrokerVersionRange(0, 9)


@pytest.mark.parametrize(
    ("level", "our_max", "version"),
    [(0, None, 11), (1, None, 11), (2, None, 13), (2, MAX_WITHOUT_TOPIC_IDS[ApiKey.PRODUCE], 12)],
)
def test_produce_depends_on_transactions_and_topic_ids(
    level: int, our_max: int | None, version: int
):
    versions = NodeApiVersions.from_response(reported({ApiKey.PRODUCE: (3, 13)}, level))
    assert versions.latest_usable_version(ApiKey.PRODUCE, our_max) == version


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.8.0", "0.8.0"),
        ("0.8.1.1", "0.8.1"),
        ("0.8.2", "0.8.2"),
        ("0.8.2.2", "0.8.2"),
        ("0.9", "0.9"),
        ("0.9.0.1", "0.9"),
    ],
)
def test_old_releases_replace_negotiation(text: str, release: str):
    override = parse_api_version(text)
    assert override is not None
    assert override.versions == NodeApiVersions(RELEASES[release], release)


@pytest.mark.parametrize("text", ["0.10", "0.10.2", "0.11.0.3", "1.0", "2.8", "4.3"])
def test_newer_releases_only_prevent_probing(text: str):
    override = parse_api_version(text)
    assert override is not None
    assert override.versions is None


@pytest.mark.parametrize(("text", "flexible"), [("2.3", False), ("0.10", False), ("2.4", True)])
def test_releases_below_2_4_exclude_flexible_versions(text: str, flexible: bool):
    override = parse_api_version(text)
    assert override is not None
    assert override.flexible is flexible


def test_a_required_version_overrides_the_features_of_one_broker():
    fresh = NodeApiVersions(EVERYTHING.ranges)
    for key, first in ((ApiKey.PRODUCE, 12), (ApiKey.TXN_OFFSET_COMMIT, 5), (ApiKey.END_TXN, 5)):
        assert fresh.latest_usable_version(key) == first - 1
        assert fresh.latest_usable_version(key, our_min=first) >= first


def test_the_features_epoch_is_kept():
    response = reported({ApiKey.PRODUCE: (0, 13)}, level=2)
    assert NodeApiVersions.from_response(response).features_epoch == -1
    response.finalized_features_epoch = 42
    assert NodeApiVersions.from_response(response).features_epoch == 42
    assert NodeApiVersions.from_response(response).without_flexible().features_epoch == 42


def test_without_flexible_versions():
    ranges = {
        ApiKey.METADATA: BrokerVersionRange(0, 13),
        ApiKey.SYNC_GROUP: BrokerVersionRange(0, 3),
        ApiKey.JOIN_GROUP: BrokerVersionRange(6, 9),
        9999: BrokerVersionRange(0, 1),
    }
    versions = NodeApiVersions(ranges, None, {"feature": 1}).without_flexible()
    assert versions.ranges == {
        ApiKey.METADATA: BrokerVersionRange(0, 8),
        ApiKey.SYNC_GROUP: BrokerVersionRange(0, 3),
        9999: BrokerVersionRange(0, 1),
    }
    assert versions.features == {"feature": 1}


def test_without_flexible_versions_no_version_is_newer_than_2_3():
    ranges = NodeApiVersions(EVERYTHING.ranges).without_flexible().ranges
    served = releases.RELEASES["2.3"].served
    assert len(ranges.keys() & served.keys()) > 20
    for key in ranges.keys() & served.keys():
        assert ranges[key].max_version <= served[ApiKey(key)].high, ApiKey(key).name
    # 2.4 has version 3 too, which is not flexible
    assert ranges[ApiKey.LEAVE_GROUP].max_version == 2


@pytest.mark.parametrize(
    ("response", "version", "advised"),
    [
        (metadata.MetadataResponse, 9, True),
        (metadata.MetadataResponse, 8, False),
        (api_versions.ApiVersionsResponse, 3, False),
    ],
)
def test_a_malformed_flexible_response_names_the_remedy(
    response: type[Response], version: int, advised: bool
):
    error = MalformedMessage("1 trailing bytes", message=response.__name__, version=version)
    add_version_advice(error, response, version)
    assert ('api_version="2.3"' in str(error)) is advised
    other = UnsupportedVersion("no")
    add_version_advice(other, response, version)
    assert "api_version" not in str(other)


@pytest.mark.parametrize("text", [None, "auto"])
def test_without_an_api_version_everything_is_negotiated(text: str | None):
    assert parse_api_version(text) is None


@pytest.mark.parametrize("text", ["", "four", "4", "0.8", "0.8.3", "0.7", "0.1.2", "v0.9", "0..9"])
def test_invalid_api_versions_are_rejected(text: str):
    with pytest.raises(InvalidOption, match="api_version"):
        parse_api_version(text)


def test_later_releases_support_more_versions():
    older_first = list(reversed(RELEASES.values()))
    for older, newer in itertools.pairwise(older_first):
        for key, span in older.items():
            assert newer[key].max_version >= span.max_version
