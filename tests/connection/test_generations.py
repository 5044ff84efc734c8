"""Detection of the release of a broker, and the versions that are sent to it."""

from __future__ import annotations

import uuid

import anyio
import pytest

from aiokafkawire.broker import ApiKey, Broker, Close
from aiokafkawire.broker.releases import get_release
from aiokafkawire.connection import (
    MAX_WITHOUT_TOPIC_IDS,
    BrokerClient,
    ConnectionKind,
    NodeApiVersions,
)
from aiokafkawire.errors import ConnectionFailed, KafkaError
from aiokafkawire.wire import APIS, ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiokafkawire.wire.messages.metadata import MetadataRequest

from .scripted import client_of

WITHIN_S = 30.0

BRIEF = {"socket_connection_setup_timeout_ms": 800}
"""A fourth of it is how long an answer to ApiVersions is waited for."""

HASTY = {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 5}

VERDICTS = {
    "0.8.0": ("0.8.0", ["METADATA"]),
    "0.8.1": ("0.8.1", ["OFFSET_FETCH"]),
    "0.8.2": ("0.8.2", ["FIND_COORDINATOR"]),
    "0.9": ("0.9", ["LIST_GROUPS"]),
    # In version 4, which they do not support; then in 0, as they report no range.
    "0.10.0": (None, ["API_VERSIONS 0"]),
    "1.1": (None, ["API_VERSIONS 0"]),
    "2.3": (None, ["API_VERSIONS 0"]),
    # Then in the highest version that they report.
    "2.4": (None, ["API_VERSIONS 3"]),
    "2.8": (None, ["API_VERSIONS 3"]),
    "3.8": (None, ["API_VERSIONS 3"]),
    "3.9": (None, ["API_VERSIONS 4"]),
    "4.3": (None, ["API_VERSIONS 4"]),
}
"""What a broker of each release is taken for, and the requests to which it owes that."""

TRANSACTIONAL = {ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN}


def soon() -> float:
    return anyio.current_time() + WITHIN_S


async def negotiated(client: BrokerClient) -> NodeApiVersions:
    """Return the detected versions, after any number of failed connections."""
    with anyio.fail_after(WITHIN_S):
        while True:
            try:
                return await client.get_api_versions(soon())
            except KafkaError as error:
                if not error.retriable:
                    raise


@pytest.mark.parametrize("as_of", VERDICTS)
@pytest.mark.slow
async def test_each_release_is_detected(as_of: str) -> None:
    release, answered = VERDICTS[as_of]
    async with (
        Broker(as_of=as_of) as broker,
        client_of(broker.nodes[1], **(BRIEF if release == "0.9" else {})) as client,
    ):
        versions = await negotiated(client)
        assert versions.release == release
        asked = [
            f"{seen.api_key.name} {seen.version}".removesuffix(" 0" if release else "")
            for seen in broker.requests
        ]
        assert asked == answered
        served = get_release(as_of, APIS).served
        for key, api in APIS.items():
            if key in served and key in versions.ranges and key not in TRANSACTIONAL:
                ours = min(served[key].high, api.max_stable_version)
                assert versions.latest_usable_version(key) == ours, api.name


@pytest.mark.parametrize("as_of", ["0.8.1", "0.8.2"])
async def test_probes_use_separate_connections_and_their_result_holds_for_all_kinds(
    as_of: str,
) -> None:
    async with (
        Broker(as_of=as_of) as broker,
        client_of(broker.nodes[1]) as client,
    ):
        await negotiated(client)
        probes = len(broker.requests)
        for connection_kind in (
            ConnectionKind.GENERAL,
            ConnectionKind.FETCH,
            ConnectionKind.PRODUCE,
        ):
            await client.request(
                MetadataRequest(topics=[]), deadline=soon(), connection_kind=connection_kind
            )
        asked = [seen.api_key for seen in broker.requests]
        assert asked[probes:] == [ApiKey.METADATA] * 3, "nothing is probed again"
        connections = [seen.connection for seen in broker.requests]
        assert len(set(connections[probes:])) == 3
        # ApiVersions took the first connection, and a probe each those after it.
        assert connections[0] == (5 if as_of == "0.8.1" else 4) - 1


@pytest.mark.parametrize(
    ("before", "after", "release"), [("0.8.2", "2.8", None), ("2.8", "0.8.2", "0.8.2")]
)
async def test_detected_versions_are_forgotten_on_disconnect(
    before: str, after: str, release: str | None
) -> None:
    async with (
        Broker(as_of=before) as broker,
        client_of(broker.nodes[1], **HASTY) as client,
    ):
        assert (await negotiated(client)).release != release
        await broker.restart(1, as_of=after)
        while client.is_connected:
            await anyio.lowlevel.checkpoint()
        versions = await negotiated(client)
        assert versions.release == release
        await client.request(MetadataRequest(topics=[]), deadline=soon())
        version = broker.requests.of(ApiKey.METADATA)[-1].version
        assert version == (11 if release is None else 0)


@pytest.mark.parametrize("closed", range(1, 8))
@pytest.mark.parametrize("as_of", ["4.3", None])
async def test_a_broker_that_closes_its_first_connections_is_not_taken_for_an_old_one(
    as_of: str | None, closed: int
) -> None:
    async with (
        Broker(as_of=as_of) as broker,
        client_of(broker.nodes[1], **HASTY) as client,
    ):
        fault = broker.on(None, Close(), times=closed)
        versions = await negotiated(client)
        assert versions.release is None
        assert versions.latest_usable_version(ApiKey.FETCH) == 18
        assert fault.hits == closed or len(broker.requests) < closed


@pytest.mark.slow
async def test_a_broker_that_is_stopped_for_a_while_is_not_taken_for_an_old_one() -> None:
    async with (
        Broker(as_of="4.3") as broker,
        client_of(broker.nodes[1], **BRIEF, **HASTY) as client,
    ):
        broker.pause(1)
        with pytest.raises(ConnectionFailed, match="does not respond"):
            await client.get_api_versions(soon())
        broker.resume(1)
        versions = await negotiated(client)
        assert versions.release is None
        assert versions.latest_usable_version(ApiKey.FETCH) == 18


async def test_an_old_api_version_is_not_negotiated() -> None:
    async with (
        Broker(as_of="2.8") as broker,
        client_of(broker.nodes[1], api_version="0.8.2") as client,
    ):
        assert (await negotiated(client)).release == "0.8.2"
        await client.request(MetadataRequest(topics=[]), deadline=soon())
        assert [(seen.api_key, seen.version) for seen in broker.requests] == [(ApiKey.METADATA, 0)]


@pytest.mark.parametrize(("api_version", "metadata"), [("0.10", 8), ("2.3", 8), ("2.4", 11)])
async def test_a_newer_api_version_prevents_probing_and_below_2_4_flexible_versions(
    api_version: str, metadata: int
) -> None:
    async with (
        Broker(as_of="2.8") as broker,
        client_of(broker.nodes[1], api_version=api_version) as client,
    ):
        assert (await negotiated(client)).latest_usable_version(ApiKey.METADATA) == metadata
    async with (
        Broker(as_of="0.8.2") as broker,
        client_of(broker.nodes[1], api_version=api_version) as client,
    ):
        with pytest.raises(ConnectionFailed):
            await client.get_api_versions(soon())
        assert len(broker.requests) == 0, "no probe came in"


@pytest.mark.parametrize(("as_of", "level"), [("3.9", 0), ("4.3", 2)])
async def test_new_transaction_versions_require_the_finalized_feature(
    as_of: str, level: int
) -> None:
    async with Broker(as_of=as_of) as broker, client_of(broker.nodes[1]) as client:
        versions = await negotiated(client)
    assert (versions.features.get("transaction.version", 0) >= 2) == (level == 2)
    highest = [versions.latest_usable_version(key) for key in sorted(TRANSACTIONAL)]
    assert highest == ([13, 5, 5] if level == 2 else [11, 4, 4])


async def test_topic_ids_are_used_if_every_topic_has_one() -> None:
    async with Broker(as_of="4.3") as broker, client_of(broker.nodes[1]) as client:
        await broker.create_topic("t")
        metadata = await client.request(MetadataRequest(topics=None), deadline=soon())
        (known,) = metadata.topics
        assert known.topic_id != ZERO_UUID
        for topic_id, version in ((known.topic_id, 18), (ZERO_UUID, 12)):
            max_version = MAX_WITHOUT_TOPIC_IDS[ApiKey.FETCH] if version == 12 else None
            response = await client.request(
                fetch(topic_id), deadline=soon(), max_version=max_version
            )
            (topic,) = response.responses
            assert topic.partitions[0].error_code == ErrorCode.NONE
            assert broker.requests[-1].version == version


def fetch(topic_id: uuid.UUID) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1024)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic="t", topic_id=topic_id, partitions=[partition])],
    )
