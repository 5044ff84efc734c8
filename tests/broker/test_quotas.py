"""Client quotas: AlterClientQuotas, DescribeClientQuotas, and clients that exceed them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import pytest

from aiokafkawire import Admin, Consumer, Producer
from aiokafkawire.admin import NewTopic
from aiokafkawire.broker import Acl, Broker
from aiokafkawire.broker.quotas import ClientQuotaManager, ClientQuotas, QuotaChange
from aiokafkawire.broker.quotas.enforcement import _Timed
from aiokafkawire.broker.quotas.rates import SampledRate
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.alter_client_quotas import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    OpData,
)
from aiokafkawire.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from aiokafkawire.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from aiokafkawire.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from aiokafkawire.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

from .raw_client import RawClient, batch, build_update_metadata_request, connected, produce_request

E = ErrorCode
Names = dict[str, str | None]
EXACT, DEFAULT, ANY = 0, 1, 2


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        await broker.create_topic("t")
        yield broker


async def alter(
    broker: Broker,
    *entries: tuple[Sequence[tuple[str, str | None]], Sequence[tuple[str, float | None]]],
    validate_only: bool = False,
) -> list[tuple[Names, int, str | None]]:
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasEntryData(
                entity=[
                    AlterClientQuotasEntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
                ops=[
                    OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in values
                ],
            )
            for entity, values in entries
        ],
        validate_only=validate_only,
    )
    async with connected(broker) as client:
        response = await client.call(request, 1)
    return [
        ({e.entity_type: e.entity_name for e in each.entity}, each.error_code, each.error_message)
        for each in response.entries
    ]


async def describe(
    broker: Broker, *components: tuple[str, int, str | None], strict: bool = False
) -> Any:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )
    async with connected(broker) as client:
        response = await client.call(request, 1)
    if response.error_code:
        assert response.entries is None
        return response.error_code, response.error_message
    return [
        (
            {e.entity_type: e.entity_name for e in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in response.entries
    ]


Described = tuple[Names, dict[str, float]]

ALICE: Described = (
    {"user": "alice"},
    {"consumer_byte_rate": 2e6, "producer_byte_rate": 1e6},
)
ALICE_C: Described = (
    {"client-id": "c", "user": "alice"},
    {"producer_byte_rate": 7.0},
)
DEFAULT_USER: Described = ({"user": None}, {"request_percentage": 50.5})
DEFAULT_CLIENT: Described = ({"client-id": None}, {"consumer_byte_rate": 77.0})
ADDRESS: Described = ({"ip": "10.0.0.1"}, {"connection_creation_rate": 9.0})
EVERYTHING = [ALICE, ALICE_C, DEFAULT_USER, DEFAULT_CLIENT, ADDRESS]


async def set_everything(broker: Broker) -> None:
    results = await alter(
        broker, *((list(names.items()), list(values.items())) for names, values in EVERYTHING)
    )
    assert results == [(names, E.NONE, None) for names, _ in EVERYTHING]


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, EVERYTHING),
        ([("user", ANY, None)], False, [ALICE, ALICE_C, DEFAULT_USER]),
        ([("user", ANY, None)], True, [ALICE, DEFAULT_USER]),
        ([("user", DEFAULT, None)], False, [DEFAULT_USER]),
        ([("user", EXACT, "alice")], False, [ALICE, ALICE_C]),
        ([("client-id", ANY, None)], False, [ALICE_C, DEFAULT_CLIENT]),
        ([("user", EXACT, "alice"), ("client-id", ANY, None)], True, [ALICE_C]),
        ([("nope", EXACT, "a")], False, (E.UNSUPPORTED_VERSION, "Unsupported entity type nope")),
        ([("", EXACT, "a")], False, (E.INVALID_REQUEST, "Invalid empty entity type.")),
        (
            [("user", EXACT, "alice"), ("user", DEFAULT, None)],
            False,
            (E.INVALID_REQUEST, "Entity type user cannot appear more than once in the filter."),
        ),
        (
            [("user", EXACT, "alice"), ("ip", DEFAULT, None)],
            False,
            (
                E.INVALID_REQUEST,
                "Invalid entity filter component combination. IP filter component should not be"
                " used with user or clientId filter component.",
            ),
        ),
        ([("user", 5, "alice")], False, (E.INVALID_REQUEST, "Unknown match type 5")),
        (
            [("user", EXACT, None)],
            False,
            (
                E.INVALID_REQUEST,
                "Request specified MATCH_TYPE_EXACT, but set match string to null.",
            ),
        ),
        (
            [("user", DEFAULT, "x")],
            False,
            (
                E.INVALID_REQUEST,
                "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
            ),
        ),
        (
            [("user", ANY, "x")],
            False,
            (
                E.INVALID_REQUEST,
                "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
            ),
        ),
    ],
)
async def test_filters_answer_as_kafka_4_3(
    broker: Broker, components: list[tuple[str, int, str | None]], strict: bool, expected: Any
) -> None:
    await set_everything(broker)
    assert await describe(broker, *components, strict=strict) == expected


@pytest.mark.parametrize(
    ("entity", "values", "text"),
    [
        ([("user", "a")], [("nope", 1)], "Invalid configuration key nope"),
        (
            [("user", "a")],
            [("connection_creation_rate", 1)],
            "Invalid configuration key connection_creation_rate",
        ),
        (
            [("user", "a")],
            [("producer_byte_rate", 1.5)],
            "producer_byte_rate cannot be a fractional value.",
        ),
        (
            [("user", "a")],
            [("producer_byte_rate", -1)],
            "Quota producer_byte_rate must be greater than 0",
        ),
        (
            [("user", "a")],
            [("producer_byte_rate", 1), ("producer_byte_rate", 2)],
            "Ignoring duplicate entity ClientQuotaEntity(entries={user=a})",
        ),
        ([], [("producer_byte_rate", 1)], "Invalid empty client quota entity"),
        (
            [("nope", "x")],
            [("producer_byte_rate", 1)],
            "Unhandled client quota entity type: nope",
        ),
        ([("user", "")], [("producer_byte_rate", 1)], "Empty user not supported"),
        (
            [("user", "u"), ("ip", "1.1.1.1")],
            [("producer_byte_rate", 1)],
            "Invalid quota entity combination, IP entity shouldnot be combined with User or"
            " ClientId",
        ),
        (
            [("ip", "no such host !")],
            [("connection_creation_rate", 1)],
            "no such host ! is not a valid IP or resolvable host.",
        ),
    ],
)
async def test_invalid_changes_have_kafkas_texts(
    broker: Broker,
    entity: list[tuple[str, str | None]],
    values: list[tuple[str, float | None]],
    text: str,
) -> None:
    ((_, code, message),) = await alter(broker, (entity, values))
    assert (code, message) == (E.INVALID_REQUEST, text)
    assert await describe(broker) == []


async def test_an_entity_can_be_changed_once_per_request(broker: Broker) -> None:
    user = [("user", "a")]
    ((_, code, text),) = await alter(
        broker, (user, [("producer_byte_rate", 1)]), (user, [("producer_byte_rate", 2)])
    )
    assert (code, text) == (
        E.INVALID_REQUEST,
        "Ignoring duplicate entity ClientQuotaEntity(entries={user=a})",
    )
    assert await describe(broker) == [({"user": "a"}, {"producer_byte_rate": 1.0})]


async def test_quotas_can_be_validated_and_removed(broker: Broker) -> None:
    user = [("user", "a")]
    valid = [({"user": "a"}, E.NONE, None)]
    assert await alter(broker, (user, [("producer_byte_rate", 1)]), validate_only=True) == valid
    assert await describe(broker) == []
    await alter(broker, (user, [("producer_byte_rate", 1), ("consumer_byte_rate", 2)]))
    await alter(broker, (user, [("producer_byte_rate", None)]))
    assert await describe(broker) == [({"user": "a"}, {"consumer_byte_rate": 2.0})]
    assert await alter(broker, (user, [("consumer_byte_rate", None)])) == valid
    assert await describe(broker) == []


async def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path) as broker:
        await set_everything(broker)
    async with Broker(data_dir=tmp_path) as broker:
        assert await describe(broker) == EVERYTHING


async def test_permissions_on_the_configs_of_the_cluster_are_needed() -> None:
    acls = [Acl("User:ANONYMOUS", "DescribeConfigs", cluster=True)]
    async with Broker(acls=acls) as broker:
        ((_, code, _),) = await alter(broker, ([("user", "a")], [("producer_byte_rate", 1)]))
        assert code == E.CLUSTER_AUTHORIZATION_FAILED
        assert await describe(broker) == []
        broker.remove_acls(*acls)
        assert await describe(broker) == (E.CLUSTER_AUTHORIZATION_FAILED, None)


# --- throttling ----------------------------------------------------------------------------------


async def produce(client: RawClient, size: int, version: int = 9) -> int:
    """Return the throttle time of a produced record, in ms."""
    response = await client.call(produce_request("t", 0, batch(b"v" * size)), version)
    assert response.responses[0].partition_responses[0].error_code == E.NONE
    throttle_ms: int = response.throttle_time_ms
    return throttle_ms


async def test_a_producer_beyond_its_quota_is_muted(broker: Broker) -> None:
    await alter(broker, ([("client-id", "raw")], [("producer_byte_rate", 1_000)]))
    async with connected(broker) as client:
        assert await produce(client, 5_000) == 0
        throttle_ms = await produce(client, 5_300)
        # 10.3 to 10.5 kB in the window of 10 s are 300 to 500 bytes above the quota.
        assert 300 <= throttle_ms <= 600
        began = time.monotonic()
        await client.call(build_update_metadata_request("t"), 9)
        assert time.monotonic() - began >= throttle_ms / 1000 - 0.1


async def test_before_2_0_the_response_is_delayed() -> None:
    async with Broker(as_of="1.1") as broker:
        await broker.create_topic("t")
        broker._running.cluster.metadata.quotas.alter(
            [QuotaChange({"user": "ANONYMOUS"}, [("producer_byte_rate", 1_000.0)])]
        )
        async with connected(broker) as client:
            began = time.monotonic()
            throttle_ms = await produce(client, 10_300, version=5)
            assert time.monotonic() - began >= throttle_ms / 1000 - 0.1
            assert throttle_ms >= 300


def fetch_request(offset: int = 0, **fields: Any) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[partition])], **fields
    )


async def test_a_consumer_beyond_its_quota_gets_no_records(broker: Broker) -> None:
    async with connected(broker) as client:
        await produce(client, 6_000)
        await alter(broker, ([("client-id", "raw")], [("consumer_byte_rate", 1_000)]))
        first = await client.call(fetch_request(), 11)
        assert (first.throttle_time_ms, len(first.responses)) == (0, 1)
        second = await client.call(fetch_request(session_epoch=0), 11)
        assert (second.error_code, second.session_id, second.responses) == (E.NONE, 0, [])
        assert 1_500 <= second.throttle_time_ms <= 3_000


async def test_a_response_fits_into_the_window_of_the_quota(broker: Broker) -> None:
    async with connected(broker) as client:
        for _ in range(4):
            await produce(client, 900)
        await alter(broker, ([("client-id", None)], [("consumer_byte_rate", 200)]))
        response = await client.call(fetch_request(max_bytes=1_000_000), 11)
        assert response.throttle_time_ms == 0
        assert 0 < len(response.responses[0].partitions[0].records) <= 2_000


async def test_request_time_is_limited(broker: Broker) -> None:
    await alter(broker, ([("user", "ANONYMOUS")], [("request_percentage", 0.000_1)]))
    async with connected(broker) as client:
        # The clock of uvloop counts whole milliseconds: most requests seem to take no time.
        for _ in range(1_000):
            response = await client.call(build_update_metadata_request("t"), 9)
            if response.throttle_time_ms:
                break
        assert 0 < response.throttle_time_ms <= 1_000


@pytest.mark.slow
async def test_clients_of_this_package_obey(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    await alter(
        broker, ([("user", None)], [("producer_byte_rate", 2_000), ("consumer_byte_rate", 20_000)])
    )
    began = time.monotonic()
    async with Producer(bootstrap_servers=servers) as producer:
        for _ in range(22):
            await producer.send_and_wait("t", b"v" * 1_000)
    assert time.monotonic() - began >= 0.5
    throttled = [each.response for each in broker.requests.of(ApiKey.PRODUCE)]
    assert any(each is not None and each.throttle_time_ms for each in throttled)  # type: ignore[attr-defined]
    async with Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        with anyio.fail_after(30):
            for _ in range(22):
                await consumer.getone()


# --- partitions and connections ------------------------------------------------------------------


def creation(name: str, partitions: int, *, validate_only: bool = False) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=1_000, validate_only=validate_only)


async def test_partitions_beyond_the_quota_are_refused(broker: Broker) -> None:
    """A burst of the window is allowed, and a debt of the last request."""
    await alter(broker, ([("user", None)], [("controller_mutation_rate", 1)]))
    async with connected(broker) as client:
        response = await client.call(creation("a", 11 + 2), 7)
        assert (response.topics[0].error_code, response.throttle_time_ms) == (E.NONE, 0)
        response = await client.call(creation("b", 1), 7)
        (refused,) = response.topics
        assert refused.error_code == E.THROTTLING_QUOTA_EXCEEDED
        assert refused.error_message is None
        assert 1_000 < response.throttle_time_ms <= 2_000
        began = time.monotonic()
        deleted = DeleteTopicState(name="a", topic_id=UUID(int=0))
        deletion = DeleteTopicsRequest(topics=[deleted], timeout_ms=1_000)
        response = await client.call(deletion, 6)
        assert time.monotonic() - began > 0.8
        assert response.responses[0].error_code == E.NONE
        extension = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)],
            timeout_ms=1_000,
            validate_only=False,
        )
        response = await client.call(extension, 3)
        assert response.results[0].error_code == E.THROTTLING_QUOTA_EXCEEDED
    assert list(broker.topics) == ["t"]


async def test_an_invalid_topic_does_not_count(broker: Broker) -> None:
    await alter(broker, ([("client-id", "raw")], [("controller_mutation_rate", 1)]))
    async with connected(broker) as client:
        response = await client.call(creation("t", 50), 7)
        assert response.topics[0].error_code == E.TOPIC_ALREADY_EXISTS
        assert (await client.call(creation("a", 1), 7)).topics[0].error_code == E.NONE


async def test_before_create_topics_v6_the_client_is_only_throttled(broker: Broker) -> None:
    await alter(broker, ([("user", None)], [("controller_mutation_rate", 20)]))
    async with connected(broker) as client:
        response = await client.call(creation("a", 230), 5)
        assert response.topics[0].error_code == E.NONE
        assert 300 <= response.throttle_time_ms <= 500


async def test_admin_creates_all_topics_in_the_end(broker: Broker) -> None:
    await alter(broker, ([("user", None)], [("controller_mutation_rate", 20)]))
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for name in ("a", "b"):
            # Over the burst of 220 by more than a slow machine makes up for meanwhile.
            await admin.create_topics([NewTopic(name, 240)])
    refused = [each for each in broker.requests.of(ApiKey.CREATE_TOPICS) if each.response]
    assert len(refused) > 2
    assert {"a", "b"} < set(broker.topics)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", None])
async def test_connections_beyond_the_quota_are_closed(broker: Broker, name: str | None) -> None:
    await alter(broker, ([("ip", name)], [("connection_creation_rate", 1)]))
    address = broker.nodes[1]

    async def connect() -> bool:
        """Return True if the node closes the connection."""
        stream = await anyio.connect_tcp(address.host, address.port)
        async with stream:
            with anyio.move_on_after(1.5):
                try:
                    await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return True
        return False

    closed: list[bool] = []

    async def try_one() -> None:
        closed.append(await connect())

    async with anyio.create_task_group() as group:
        for _ in range(15):
            group.start_soon(try_one)
    # 10 in the window of 10 s are 1 per second.
    assert closed.count(True) >= 5
    assert closed.count(False) >= 8


# --- rates ---------------------------------------------------------------------------------------


def test_a_rate_covers_ten_seconds_at_least() -> None:
    rate = SampledRate()
    rate.record(20_000, 100.0)
    assert rate.rate(100.0) == 2_000
    assert rate.rate(105.0) == 2_000
    assert rate.rate(110.5) == pytest.approx(20_000 / 10.5)
    assert rate.rate(111.0) == 0
    rate.record(1_000, 111.0)
    assert rate.rate(111.0) == 100


def manager(*quotas: tuple[Names, str, float]) -> ClientQuotaManager:
    all_quotas = ClientQuotas()
    for names, key, value in quotas:
        assert set(all_quotas.alter([QuotaChange(names, [(key, value)])]).values()) == {None}
    return ClientQuotaManager(all_quotas)


def test_the_throttle_time_brings_the_rate_down_to_the_quota() -> None:
    of = manager(({"user": "u"}, "producer_byte_rate", 1_000.0))
    assert of.record("producer_byte_rate", "u", "c", 10_000, 0.0) == 0
    assert of.record("producer_byte_rate", "u", "d", 10_000, 0.0) == 10
    assert of.record("producer_byte_rate", "v", "c", 99_999, 0.0) == 0


def test_clients_of_a_default_have_rates_of_their_own() -> None:
    of = manager(({"client-id": None}, "producer_byte_rate", 1_000.0))
    assert of.record("producer_byte_rate", "u", "c", 10_000, 0.0) == 0
    assert of.record("producer_byte_rate", "u", "d", 10_000, 0.0) == 0
    assert of.record("producer_byte_rate", "v", "c", 1_000, 0.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "names",
    [
        {"user": "u", "client-id": "c"},
        {"user": "u", "client-id": None},
        {"user": "u"},
        {"user": None, "client-id": "c"},
        {"user": None, "client-id": None},
        {"user": None},
        {"client-id": "c"},
        {"client-id": None},
    ],
)
def test_the_most_specific_quota_applies(names: Names) -> None:
    order: list[Names] = [
        {"user": "u", "client-id": "c"},
        {"user": "u", "client-id": None},
        {"user": "u"},
        {"user": None, "client-id": "c"},
        {"user": None, "client-id": None},
        {"user": None},
        {"client-id": "c"},
        {"client-id": None},
    ]
    later = [(each, "producer_byte_rate", 1.0) for each in order[order.index(names) + 1 :]]
    of = manager(*later, (names, "producer_byte_rate", 1_000.0))
    assert of.record("producer_byte_rate", "u", "c", 10_000, 0.0) == 0
    assert of.record("producer_byte_rate", "u", "c", 1_000, 0.0) == pytest.approx(1.0)


async def test_waiting_does_not_count_as_request_time() -> None:
    now = [0.0]

    class Step:
        """An awaitable that waits once, while the clock advances."""

        def __await__(self) -> Any:
            now[0] += 1
            yield
            now[0] += 2

    async def handle() -> None:
        await Step()
        now[0] += 4

    timed = _Timed(handle(), lambda: now[0])
    steps = timed.__await__()
    steps.send(None)
    now[0] += 100
    with pytest.raises(StopIteration):
        steps.send(None)
    assert timed.used_s == 7


async def test_a_failure_reaches_the_handler() -> None:
    failed = []

    class Step:
        def __await__(self) -> Any:
            yield

    async def handle() -> None:
        try:
            await Step()
        except ValueError as error:
            failed.append(error)

    steps = _Timed(handle(), lambda: 0.0).__await__()
    steps.send(None)
    with pytest.raises(StopIteration):
        steps.throw(ValueError("no"))
    assert len(failed) == 1
