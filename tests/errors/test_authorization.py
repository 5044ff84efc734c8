"""Clients of a broker with ACLs: the call concerned raises `AuthorizationFailed` with the ACL."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest

from aiokafkawire import Consumer, GroupMetadata, Producer, TopicPartition
from aiokafkawire.broker import Acl, Broker
from aiokafkawire.errors import AuthorizationFailed, BrokerError, KafkaError, TransactionFailed
from aiokafkawire.wire import ErrorCode, error_for

ME = "User:ANONYMOUS"
WITHIN_S = 20
T0 = TopicPartition("t", 0)


def acl(operation: str, **resource: str) -> Acl:
    return Acl(ME, operation, **resource)  # type: ignore[arg-type]


SEES_T = acl("Describe", topic="t")
READS_T = acl("Read", topic="t")
WRITES_T = acl("Write", topic="t")
SEES_G = acl("Describe", group="g")
READS_G = acl("Read", group="g")
WRITES_X = acl("Write", transactional_id="x")


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    with anyio.fail_after(60):
        async with Broker(acls=[]) as broker:
            await broker.create_topic("t")
            yield broker


async def failure(call: Callable[[], Awaitable[object]]) -> AuthorizationFailed:
    """Return the error of a call, which must not take until a timeout."""
    with anyio.fail_after(WITHIN_S), pytest.raises(AuthorizationFailed) as caught:
        await call()
    error = caught.value
    assert isinstance(error, BrokerError)
    assert not error.retriable
    return error


def shown(error: AuthorizationFailed) -> tuple[str, str | None, str | None]:
    return error.resource_type, error.resource_name, error.operation


# --- the producer --------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [True, False])
async def test_send_to_a_forbidden_topic(broker: Broker, idempotent: bool) -> None:
    broker.add_acls(acl("Write", topic="another"))
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, enable_idempotence=idempotent
    ) as producer:
        for topic in ("t", "missing"):
            error = await failure(lambda topic=topic: producer.send_and_wait(topic, b"v"))  # type: ignore[misc]
            assert str(error).startswith(
                "TOPIC_AUTHORIZATION_FAILED: the principal lacks Describe on the topic (Read or"
                " Write includes it) ("
            )
            assert f"api Metadata, topic {topic}" in str(error)
            assert shown(error) == ("topic", topic, "Describe")


async def test_send_to_a_topic_that_can_only_be_read(broker: Broker) -> None:
    broker.add_acls(READS_T)
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False
    ) as producer:
        error = await failure(lambda: producer.send_and_wait("t", b"v"))
        assert str(error).startswith(
            "TOPIC_AUTHORIZATION_FAILED: the principal lacks Write on the topic ("
        )
        assert shown(error) == ("topic", "t", "Write")
        assert (error.code, error.api, error.partition) == (29, "Produce", 0)
        broker.add_acls(WRITES_T)
        await producer.send_and_wait("t", b"v")


async def test_an_idempotent_producer_that_may_write_nothing(broker: Broker) -> None:
    broker.add_acls(READS_T)
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        error = await failure(lambda: producer.send_and_wait("t", b"v"))
    assert str(error).startswith(
        "CLUSTER_AUTHORIZATION_FAILED: the principal lacks Write on any topic (before Kafka 2.8:"
        " IdempotentWrite on the cluster) ("
    )
    assert shown(error) == ("cluster", None, "IdempotentWrite")


async def test_a_forbidden_transactional_id(broker: Broker) -> None:
    broker.add_acls(WRITES_T)
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x")

    async def start() -> None:
        async with producer, producer.transaction():
            await producer.send_and_wait("t", b"v")

    error = await failure(start)
    assert str(error).startswith(
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the principal lacks Describe on the transactional"
        " id (Write includes it) ("
    )
    assert shown(error) == ("transactional_id", "x", "Describe")


async def test_a_transactional_id_that_can_only_be_described(broker: Broker) -> None:
    broker.add_acls(WRITES_T, acl("Describe", transactional_id="x"))
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x")

    async def start() -> None:
        async with producer, producer.transaction():
            await producer.send_and_wait("t", b"v")

    error = await failure(start)
    assert shown(error) == ("transactional_id", "x", "Write")
    assert error.api == "InitProducerId"


async def test_a_forbidden_topic_in_a_transaction(broker: Broker) -> None:
    broker.add_acls(READS_T, WRITES_X)
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="x"
    ) as producer:
        await producer.begin_transaction()
        error = await failure(lambda: producer.send_and_wait("t", b"v"))
        assert shown(error) == ("topic", "t", "Write")
        with pytest.raises(TransactionFailed) as failed:
            await producer.commit_transaction()
        assert isinstance(failed.value.__cause__, AuthorizationFailed)
        await producer.abort_transaction()
        broker.add_acls(WRITES_T)
        async with producer.transaction():
            await producer.send_and_wait("t", b"v")


@pytest.mark.parametrize("topics", [("t", "seen"), ("seen", "t")])
@pytest.mark.parametrize("as_of", ["2.8", None])
async def test_the_error_of_a_transaction_names_the_forbidden_topic(
    as_of: str | None, topics: tuple[str, str]
) -> None:
    """The code of the others, OPERATION_NOT_ATTEMPTED, says nothing."""
    acls = [WRITES_T, WRITES_X, acl("Describe", topic="seen")]
    async with Broker(as_of=as_of, acls=acls) as broker:
        for topic in topics:
            await broker.create_topic(topic)
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="x", linger_ms=20
        ) as producer:
            for topic in topics:
                await producer.partitions_for(topic)
            await producer.begin_transaction()
            deliveries = {topic: producer.send_nowait(topic, b"v") for topic in topics}
            with anyio.fail_after(WITHIN_S), pytest.raises(KafkaError) as refused:
                await deliveries["seen"]
            with pytest.raises(TransactionFailed) as failed:
                await producer.commit_transaction()
            await producer.abort_transaction()
    for error in (refused.value, failed.value):
        cause = error if isinstance(error, AuthorizationFailed) else error.__cause__
        assert isinstance(cause, AuthorizationFailed)
        assert shown(cause) == ("topic", "seen", "Write")


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], ("group", "g", "Describe")),
        ([SEES_G], ("group", "g", "Read")),
        ([READS_G], ("topic", "t", "Read")),
    ],
)
async def test_offsets_that_a_transaction_may_not_commit(
    broker: Broker, acls: list[Acl], expected: tuple[str, str, str]
) -> None:
    broker.add_acls(acl("Write", topic="another"), SEES_T, WRITES_X, *acls)
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="x"
    ) as producer:
        await producer.begin_transaction()
        with anyio.fail_after(WITHIN_S), pytest.raises(TransactionFailed) as failed:
            await producer.send_offsets_to_transaction({T0: 1}, GroupMetadata("g"))
        cause = failed.value.__cause__
        assert isinstance(cause, AuthorizationFailed)
        assert shown(cause) == expected
        await producer.abort_transaction()


# --- the consumer --------------------------------------------------------------------------------


async def test_a_consumer_raises_for_a_forbidden_topic_and_goes_on(broker: Broker) -> None:
    for topics in (("t",), ("missing",)):
        consumer = Consumer(*topics, bootstrap_servers=broker.bootstrap_servers)
        async with consumer:
            error = await failure(consumer.getone)
            assert shown(error) == ("topic", topics[0], "Describe")
    async with Consumer(
        "t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(2):
            await failure(lambda: consumer.getmany(timeout_ms=500))
        broker.add_acls(READS_T, WRITES_T)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"v")
        with anyio.fail_after(WITHIN_S):
            while True:
                try:
                    record = await consumer.getone()
                    break
                except AuthorizationFailed:
                    continue
        assert record.value == b"v"


@pytest.mark.parametrize("operation", ["getone", "getmany"])
async def test_an_assigned_forbidden_topic(broker: Broker, operation: str) -> None:
    async with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign(T0)
        for _ in range(2):
            error = await failure(
                consumer.getone
                if operation == "getone"
                else lambda: consumer.getmany(timeout_ms=60_000)
            )
            assert shown(error) == ("topic", "t", "Describe")


@pytest.mark.parametrize("position", ["earliest", "latest", "seek"])
async def test_a_topic_that_can_only_be_described(broker: Broker, position: str) -> None:
    broker.add_acls(SEES_T)
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="latest" if position == "latest" else "earliest",
    ) as consumer:
        consumer.assign(T0)
        if position == "seek":
            consumer.seek(T0, 0)
        for _ in range(2):
            error = await failure(lambda: consumer.getmany(timeout_ms=60_000))
            assert str(error).startswith(
                "TOPIC_AUTHORIZATION_FAILED: the principal lacks Read on the topic ("
            )
            assert shown(error) == ("topic", "t", "Read")


async def test_a_permission_that_is_removed_while_reading(broker: Broker) -> None:
    broker.add_acls(READS_T, WRITES_T)
    async with (
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        Consumer(
            "t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer,
    ):
        await producer.send_and_wait("t", b"v")
        assert (await consumer.getone()).value == b"v"
        broker.remove_acls(READS_T)
        error = await failure(consumer.getone)
        assert shown(error) == ("topic", "t", "Read")


async def test_a_forbidden_group(broker: Broker) -> None:
    broker.add_acls(READS_T)
    async with Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
        error = await failure(consumer.getone)
        assert str(error).startswith(
            "GROUP_AUTHORIZATION_FAILED: the principal lacks Describe on the group (Read includes"
            " it) ("
        )
        assert shown(error) == ("group", "g", "Describe")


async def test_a_group_that_can_only_be_described(broker: Broker) -> None:
    broker.add_acls(READS_T, SEES_G)
    async with Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
        error = await failure(consumer.getone)
        assert shown(error) == ("group", "g", "Read")
        assert error.api == "JoinGroup"


async def test_a_group_with_a_forbidden_topic(broker: Broker) -> None:
    broker.add_acls(READS_G)
    async with Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
        error = await failure(consumer.getone)
        assert shown(error) == ("topic", "t", "Describe")


async def test_commits(broker: Broker) -> None:
    broker.add_acls(SEES_G)
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", enable_auto_commit=False
    ) as consumer:
        consumer.assign(T0)
        error = await failure(lambda: consumer.committed(T0))
        assert shown(error) == ("topic", "t", "Describe")
        broker.add_acls(SEES_T)
        assert await consumer.committed(T0) == {T0: None}
        error = await failure(lambda: consumer.commit({T0: 1}))
        assert shown(error) == ("group", "g", "Read")
        broker.add_acls(READS_G)
        error = await failure(lambda: consumer.commit({T0: 1}))
        assert shown(error) == ("topic", "t", "Read")
        broker.add_acls(READS_T)
        await consumer.commit({T0: 1})
        broker.remove_acls(*broker.acls)
        error = await failure(lambda: consumer.committed(T0))
        assert shown(error) == ("group", "g", "Describe")


async def test_offsets(broker: Broker) -> None:
    async with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: consumer.beginning_offsets(T0),
            lambda: consumer.end_offsets(T0),
            lambda: consumer.offsets_for_times({T0: 0}),
            lambda: consumer.partitions_for("t"),
        ]
        for call in calls:
            error = await failure(call)
            assert shown(error) == ("topic", "t", "Describe")


# --- the error -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "api", "expected"),
    [
        (29, "Produce", "TOPIC_AUTHORIZATION_FAILED: the principal lacks Write on the topic"),
        (
            29,
            "DeleteRecords",
            "TOPIC_AUTHORIZATION_FAILED: the principal lacks Delete on the topic",
        ),
        (
            31,
            "CreateAcls",
            "CLUSTER_AUTHORIZATION_FAILED: the principal lacks Alter on the cluster",
        ),
        (29, None, "TOPIC_AUTHORIZATION_FAILED: the principal lacks an ACL on the topic"),
        (30, "JoinGroup", "GROUP_AUTHORIZATION_FAILED: the principal lacks Read on the group"),
        (
            31,
            "CreateTopics",
            "CLUSTER_AUTHORIZATION_FAILED: the principal lacks Create on the cluster",
        ),
        (
            53,
            "EndTxn",
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the principal lacks Write on the transactional"
            " id",
        ),
        (
            65,
            "DescribeDelegationToken",
            "DELEGATION_TOKEN_AUTHORIZATION_FAILED: the principal lacks an ACL on the delegation"
            " token",
        ),
    ],
)
def test_texts(code: int, api: str | None, expected: str) -> None:
    error = error_for(code, api=api)
    assert isinstance(error, AuthorizationFailed)
    assert (error.code, error.name) == (code, ErrorCode(code).name)
    assert error.reason == expected
    assert error.resource_name is None


def test_the_name_can_become_known_later_and_survives_pickling() -> None:
    error = error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED, api="Heartbeat")
    error.group = "g"
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, AuthorizationFailed)
    assert shown(again) == ("group", "g", "Read")
    assert str(again) == (
        "GROUP_AUTHORIZATION_FAILED: the principal lacks Read on the group (api Heartbeat, group g)"
    )
