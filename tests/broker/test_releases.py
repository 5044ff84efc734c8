"""The table of releases, and a broker that answers as one of them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.broker.apis import CONTROLLER_HANDLERS, HANDLERS
from aiokafkawire.broker.apis.api_versions import TELEMETRY_APIS
from aiokafkawire.broker.releases import (
    RELEASE_NAMES,
    RELEASES,
    UnsupportedApi,
    get_release,
    with_inter_broker_apis,
)
from aiokafkawire.connection.node_api_versions import RELEASES as WHAT_CLIENTS_ASSUME
from aiokafkawire.errors import InvalidOption
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.wire import APIS, ApiKey, ErrorCode
from aiokafkawire.wire.header import encode_request
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest
from aiokafkawire.wire.messages.delete_groups import DeleteGroupsRequest
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

from ..wire.vectors import FOLDER
from .group_requests import commit, join, offset_fetch_request
from .raw_client import (
    RawClient,
    batch,
    build_update_metadata_request,
    connected,
    only,
    produce_request,
)

E = ErrorCode
ASK = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0.8", "0.8.2"),
        ("0.8.0", "0.8.0"),
        ("0.8.2.2", "0.8.2"),
        ("0.9", "0.9.0"),
        ("0.10", "0.10.2"),
        ("0.10.0.1", "0.10.0"),
        ("0.11", "0.11.0"),
        ("1.1", "1.1"),
        ("1.1.1", "1.1"),
        ("2", "2.8"),
        ("2.8.2", "2.8"),
        ("4.3.0", "4.3"),
    ],
)
def test_a_text_means_a_release(text: str, line: str) -> None:
    assert get_release(text, HANDLERS).name == line


@pytest.mark.parametrize("text", ["0.7", "5.0", "2.9", "trunk", "4.4-rc", "."])
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"as_of is a release of Kafka from 0\.8 to 4\.4"):
        Broker(as_of=text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", "as_of must not be empty"), (4.3, "as_of must be a string, not 4.3")],
)
def test_what_is_no_text_is_no_release(given: Any, expected: str) -> None:
    with pytest.raises(InvalidOption, match=expected):
        Broker(as_of=given)


def test_nothing_goes_back() -> None:
    for older, newer in itertools.pairwise(RELEASE_NAMES):
        before, after = RELEASES[older].served, RELEASES[newer].served
        gone = set(CONTROLLER_HANDLERS) if newer == "3.0" else set()
        assert set(before) - gone <= set(after)
        for key, versions in before.items():
            if key not in gone:
                assert versions.high <= after[key].high, (key, newer)


SHARE_OFFSETS = {
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
}


def test_the_newest_serve_what_our_messages_have() -> None:
    newest = RELEASES["4.4"].served
    assert set(newest) == set(HANDLERS)
    for key in HANDLERS:
        api = APIS[key]
        assert newest[key].high == api.max_stable_version, (
            f"add version {api.max_stable_version} of {api.name} to broker/releases.py"
        )
        # The early access of share groups was removed.
        lowest = 1 if "SHARE" in key.name and key not in SHARE_OFFSETS else 0
        assert newest[key].low == lowest or RELEASES["3.9"].served[key].low == 0
    everything = get_release(None, HANDLERS)
    assert {key: tuple(versions) for key, versions in everything.served.items()} == {
        key: (APIS[key].min_version, APIS[key].max_stable_version) for key in HANDLERS
    }
    assert everything.since("4.4")


def test_the_versions_that_4_removed_are_those_that_only_3_made_vectors_of() -> None:
    rows = json.loads((FOLDER / "header-versions.json").read_text())
    served = RELEASES["4.4"].served
    removed = {
        (row["apiKey"], row["version"])
        for row in rows
        if row["apiKey"] in served and not {"4.3.0", "4.4"} & set(row["kafka"])
    }
    assert removed == {(key, version) for key in served for version in range(served[key].low)}


@pytest.mark.parametrize("client", WHAT_CLIENTS_ASSUME)
def test_it_agrees_with_what_our_client_assumes_of_those_it_cannot_ask(client: str) -> None:
    assumed = WHAT_CLIENTS_ASSUME[client]
    served = get_release(client, [*HANDLERS, *CONTROLLER_HANDLERS]).served
    assert {key: tuple(versions) for key, versions in assumed.items()} == {
        key: tuple(versions) for key, versions in served.items()
    }


def test_inter_broker_apis_are_not_served_to_clients() -> None:
    alone, among = get_release("0.10", HANDLERS), get_release("0.10", CONTROLLER_HANDLERS)
    assert not set(CONTROLLER_HANDLERS) & set(alone.served)
    assert set(CONTROLLER_HANDLERS) == set(among.served)
    # Its version 0 has another header, which brokers never supported.
    assert among.served[ApiKey.CONTROLLED_SHUTDOWN] == (0, 1)
    assert among.advertised[ApiKey.CONTROLLED_SHUTDOWN] == (1, 1)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("0.10.0.1", [(0, 0), (0, 0), (0, 2), (1, 1)]),
        ("0.10.2.2", [(0, 0), (0, 0), (0, 3), (1, 1)]),
        ("0.11.0.3", [(0, 0), (0, 0), (0, 3), (1, 1)]),
        ("1.1.1", [(0, 1), (0, 0), (0, 4), (0, 1)]),
        ("2.1.1", [(0, 1), (0, 0), (0, 4), (0, 1)]),
        ("2.8.2", [(0, 5), (0, 3), (0, 7), (0, 3)]),
    ],
)
def test_inter_broker_apis_are_advertised_as_by_real_brokers(
    release: str, expected: list[tuple[int, int]]
) -> None:
    """LeaderAndIsr, StopReplica, UpdateMetadata and ControlledShutdown, as each release
    advertised."""
    found = get_release(release, CONTROLLER_HANDLERS).advertised
    assert [tuple(found[key]) for key in sorted(CONTROLLER_HANDLERS)] == expected


def test_options_that_are_not_given_have_the_defaults_of_the_release() -> None:
    for as_of, session_ms, message_bytes, refuses in (
        ("0.9", 30_000, 1_000_012, False),
        ("0.10", 300_000, 1_000_012, False),
        ("0.11", 300_000, 1_000_012, True),
        ("1.1", 300_000, 1_000_012, True),
        ("2.4", 1_800_000, 1_000_012, True),
        ("2.5", 1_800_000, 1_048_588, False),
        (None, 1_800_000, 1_048_588, False),
    ):
        options = Broker(as_of=as_of).options
        assert options.group_max_session_timeout_ms == session_ms
        assert options.max_message_bytes == message_bytes
        assert options.refuse_unknown_producers == refuses
    given = Broker(as_of="0.9", group_max_session_timeout_ms=60_000).options
    assert given.group_max_session_timeout_ms == 60_000


async def answer(
    client: RawClient, api_key: int, version: int, *, within_s: float = 30
) -> memoryview | None:
    """Return the response to an ApiVersions request body; fail when there is none."""
    frame = bytearray(b"".join(bytes(part) for part in encode_request(ASK, 4, 7, "raw")))
    frame[4:8] = api_key.to_bytes(2, "big") + version.to_bytes(2, "big")
    await client.transport.send([bytes(frame)])
    with anyio.fail_after(within_s):
        return await client.frame()


@pytest.mark.parametrize("as_of", ["0.8", "0.10", "2.4", "4.3", None])
async def test_an_api_that_it_does_not_have_ends_the_connection(as_of: str | None) -> None:
    async with Broker(as_of=as_of) as broker:
        for api_key in (68, 999):
            async with connected(broker) as client:
                assert await answer(client, api_key, 0) is None


async def test_0_8_closes_on_api_versions() -> None:
    async with Broker(as_of="0.8") as broker, connected(broker) as client:
        assert await answer(client, ApiKey.API_VERSIONS, 0) is None


@pytest.mark.slow
async def test_0_9_is_silent_and_goes_on() -> None:
    assert RELEASES["0.9.0"].on_unsupported_api is UnsupportedApi.IGNORE
    async with Broker(as_of="0.9") as broker, connected(broker) as client:
        for api_key, version in ((ApiKey.API_VERSIONS, 0), (ApiKey.METADATA, 1), (999, 0)):
            with pytest.raises(TimeoutError):
                await answer(client, api_key, version, within_s=0.1)
        assert (await client.call(build_update_metadata_request("t", create=True), 0)).brokers


@pytest.mark.parametrize(
    ("as_of", "expected"),
    [
        ("0.10", []),
        ("2.3", []),
        ("2.4", [(18, 0, 3)]),
        ("4.3", [(18, 0, 4)]),
        ("4.4", [(18, 0, 5)]),
    ],
)
async def test_a_too_new_question_for_versions(
    as_of: str, expected: list[tuple[int, int, int]]
) -> None:
    async with Broker(as_of=as_of) as broker, connected(broker) as client:
        frame = await answer(client, ApiKey.API_VERSIONS, 99)
        assert frame is not None
        # The correlation id, the error, and a list of three numbers each: version 0.
        words = [int.from_bytes(frame[at : at + 2], "big") for at in range(4, len(frame), 2)]
        keys = [tuple(words[at : at + 3]) for at in range(3, len(words), 3)]
        assert (words[0], keys) == (E.UNSUPPORTED_VERSION, expected)
        await client.send(ASK, 0)
        _, versions = await client.receive(ApiKey.API_VERSIONS, 0)
        assert {k.api_key: (k.min_version, k.max_version) for k in versions.api_keys} == {
            key: tuple(versions)
            for key, versions in get_release(as_of, HANDLERS).advertised.items()
            if key not in TELEMETRY_APIS  # without client_telemetry
        }


@pytest.mark.parametrize(
    ("version", "same_cluster", "node_id", "code"),
    [
        (5, True, 1, E.NONE),
        (5, True, 2, E.REBOOTSTRAP_REQUIRED),
        (5, False, 1, E.REBOOTSTRAP_REQUIRED),
        (5, None, 2, E.NONE),
        (4, False, 2, E.NONE),
    ],
)
async def test_a_misrouted_connection_is_refused(
    version: int, same_cluster: bool | None, node_id: int, code: E
) -> None:
    async with Broker(nodes=2, as_of="4.4") as broker, connected(broker, 1) as client:
        expected = {True: broker.cluster_id, False: "another", None: None}[same_cluster]
        request = ApiVersionsRequest(
            client_software_name="a",
            client_software_version="1",
            cluster_id=expected,
            node_id=node_id,
        )
        answered = await client.call(request, version)
        assert (answered.error_code, not answered.api_keys) == (code, bool(code))


async def test_kafka_4_advertises_produce_versions_that_it_rejects() -> None:
    async with Broker(as_of="4.3") as broker, connected(broker) as client:
        expected = await client.call(ASK, 4)
        (produce,) = (k for k in expected.api_keys if k.api_key == ApiKey.PRODUCE)
        assert (produce.min_version, produce.max_version) == (0, 13)
        await broker.create_topic("t")
        await client.send(produce_request("t", 0, batch(b"v", magic=1)), 2)
        assert await client.closed()


@pytest.mark.parametrize(
    ("as_of", "version", "sent", "kept"),
    [
        ("0.8", 0, 0, 0),
        ("0.9", 1, 0, 0),
        ("0.10", 0, 0, 1),
        ("0.10", 2, 1, 1),
        ("0.10", 2, 0, 1),
        ("1.1", 0, 0, 2),
        ("1.1", 2, 1, 2),
        ("1.1", 3, 2, 2),
        ("3.9", 2, 1, 2),
        (None, 2, 1, 1),
    ],
)
@pytest.mark.parametrize("compression", [0, 1], ids=["plain", "gzip"])
async def test_what_is_written_is_kept_in_the_format_of_the_release(
    as_of: str | None, version: int, sent: int, kept: int, compression: int
) -> None:
    async with Broker(as_of=as_of) as broker, connected(broker) as client:
        await broker.create_topic("t")
        records = batch(b"a", b"b", magic=sent, compression=compression)
        answered = only(await client.call(produce_request("t", 0, records), version))
        assert (answered.error_code, answered.base_offset) == (E.NONE, 0)
        assert broker.end_offset("t", 0) == 2
        log = broker._running.cluster.topics["t"].partitions[0].log
        stored = list(iter_batches(log.read(0, 10_000)))
        assert {view.magic for view in stored} == {kept}
        assert {int(view.compression) for view in stored} == {compression}
        assert [c.value(i) for v in stored for c in [v.columns()] for i in range(len(c))] == [
            b"a",
            b"b",
        ]
        times = [time for view in stored for time in view.columns().timestamps]
        assert times == ([-1, -1] if sent == 0 else [1_000, 1_001])
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)
        fetch = FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[asked])]
        )
        if version == 0:
            old = only(await client.call(fetch, 0))
            assert {view.magic for view in iter_batches(old.records)} == {0}


@pytest.mark.parametrize(("as_of", "magic"), [("0.8", 1), ("0.9", 1), ("0.9", 2), ("0.10", 2)])
async def test_a_format_that_the_release_does_not_have_is_refused(as_of: str, magic: int) -> None:
    async with Broker(as_of=as_of) as broker, connected(broker) as client:
        await broker.create_topic("t")
        request = produce_request("t", 0, batch(b"v", magic=magic))
        assert only(await client.call(request, 0)).error_code == E.CORRUPT_MESSAGE
        assert broker.end_offset("t", 0) == 0


async def test_only_0_8_takes_a_number_of_acks() -> None:
    for as_of, acks, code, end in (
        ("0.8", 2, E.NONE, 1),
        ("0.8", 3, E.REQUEST_TIMED_OUT, 1),
        ("0.9", 2, E.INVALID_REQUIRED_ACKS, 0),
    ):
        async with Broker(nodes=2, as_of=as_of) as broker:
            await broker.create_topic("t", replication_factor=2)
            async with connected(broker, broker.leader("t", 0)) as client:
                request = produce_request("t", 0, batch(b"v", magic=0), acks=acks)
                assert only(await client.call(request, 0)).error_code == code
            assert broker.end_offset("t", 0) == end


@pytest.mark.parametrize(
    ("as_of", "code"), [("0.8", E.NONE), ("2.8", E.NONE), ("3.9", E.UNSUPPORTED_VERSION)]
)
async def test_where_version_0_of_offsets_was_kept(as_of: str, code: ErrorCode) -> None:
    async with Broker(as_of=as_of) as broker, connected(broker) as client:
        await broker.create_topic("t")
        assert only(await client.call(commit("t"), 0)).error_code == code
        assert only(await client.call(offset_fetch_request("t"), 0)).error_code == code


async def test_groups_came_with_0_9_and_deleting_them_with_1_1() -> None:
    async with Broker(as_of="0.8") as broker, connected(broker) as client:
        await client.send(join(session_ms=30_001), 0)
        assert await client.closed()
    async with Broker(as_of="0.9") as broker, connected(broker) as client:
        assert (
            await client.call(join(session_ms=30_001), 0)
        ).error_code == E.INVALID_SESSION_TIMEOUT
    for as_of, served in (("1.0", False), ("1.1", True)):
        async with Broker(as_of=as_of) as broker, connected(broker) as client:
            await client.send(DeleteGroupsRequest(groups_names=[]), 0)
            assert await client.closed() != served


def test_errors_bear_the_code_that_they_had() -> None:
    def expected(name: str, code: ErrorCode) -> ErrorCode:
        return RELEASES[name].translate_error(code)

    assert expected("2.3", ErrorCode.INVALID_RECORD) is ErrorCode.CORRUPT_MESSAGE
    assert expected("2.4", ErrorCode.INVALID_RECORD) is ErrorCode.INVALID_RECORD
    unknown = ErrorCode.UNKNOWN_PRODUCER_ID
    assert expected("0.11.0", unknown) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert expected("1.0", unknown) is unknown


def test_replicating_nodes_use_apis_hidden_from_clients() -> None:
    last = RELEASES["2.8"]
    for as_of in ("3.0", "3.9", "4.3", None):
        release = with_inter_broker_apis(get_release(as_of, [*HANDLERS, *CONTROLLER_HANDLERS]))
        assert release.inter_broker == {key: last.served[key] for key in CONTROLLER_HANDLERS}
        assert release.inter_broker.items() <= release.served.items()
        assert not release.inter_broker.keys() & release.advertised.keys()
        assert release.advertised == get_release(as_of, HANDLERS).advertised


def test_zookeeper_releases_advertise_inter_broker_apis_to_clients() -> None:
    for name in ("0.8.2", "1.0", "2.8"):
        release = get_release(name, [*HANDLERS, *CONTROLLER_HANDLERS])
        assert with_inter_broker_apis(release) is release
