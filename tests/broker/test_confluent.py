"""librdkafka, through confluent-kafka, against the embedded broker in a thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .threaded_broker import DEADLINE_S, ThreadedBroker, repeat_until, threaded_broker

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = pytest.mark.slow

COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


@pytest.fixture(params=["asyncio", "trio"])
def threaded(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    with threaded_broker(request.param, nodes=3) as broker:
        yield broker


def quiet() -> logging.Logger:
    return logging.getLogger("librdkafka")


def produce(threaded: ThreadedBroker, topic: str, values: list[str], **options: Any) -> list[Any]:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": threaded.servers, "linger.ms": 5, **options}, logger=quiet()
    )
    delivered: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        delivered.append((error, message))

    for value in values:
        producer.produce(topic, key=value, value=value, on_delivery=on_delivery)
    assert producer.flush(DEADLINE_S) == 0
    assert [error for error, _ in delivered if error is not None] == []
    return [message for _, message in delivered]


def consumer(threaded: ThreadedBroker, group: str, **options: Any) -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": threaded.servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            **options,
        },
        logger=quiet(),
    )


def poll_until(consumers: list[Any], done: Callable[[], bool], seen: list[Any]) -> None:
    """Poll all consumers in turn, keeping messages, until `done` or the deadline."""

    def step() -> None:
        for each in consumers:
            message = each.poll(0.05)
            if message is not None:
                assert message.error() is None, message.error()
                seen.append(message)

    repeat_until(step, done)


def values(messages: list[Any]) -> list[str]:
    return sorted(message.value().decode() for message in messages)


@pytest.mark.parametrize(
    "options",
    [
        {"acks": "all", "enable.idempotence": True},
        {"acks": "1"},
        {"acks": "all", "enable.idempotence": True, "compression.type": "lz4"},
        {"acks": "1", "compression.type": "zstd"},
        {"acks": "all", "compression.type": "snappy"},
        {"acks": "all", "compression.type": "gzip"},
    ],
    ids=str,
)
def test_what_is_produced_is_consumed(threaded: ThreadedBroker, options: dict[str, Any]) -> None:
    threaded.call(threaded.broker.create_topic, "t", 3)
    given = [f"v{i}" for i in range(500)]
    messages = produce(threaded, "t", given, **options)
    assert len(messages) == 500
    reader = consumer(threaded, "g")
    reader.subscribe(["t"])
    seen: list[Any] = []
    try:
        poll_until([reader], lambda: len(seen) >= 500, seen)
        assert values(seen) == sorted(given)
        where = {(m.value(), m.partition(), m.offset()) for m in seen}
        assert where == {(m.value(), m.partition(), m.offset()) for m in messages}
    finally:
        reader.close()


@pytest.mark.parametrize("options", [{}, COOPERATIVE], ids=["eager", "cooperative"])
def test_a_group_of_two_rebalances_commits_and_resumes(
    threaded: ThreadedBroker, options: dict[str, Any]
) -> None:
    threaded.call(threaded.broker.create_topic, "t", 4)
    produce(threaded, "t", [f"a{i}" for i in range(100)])
    first, second = consumer(threaded, "g", **options), consumer(threaded, "g", **options)
    seen: list[Any] = []
    try:
        first.subscribe(["t"])
        poll_until([first], lambda: len(first.assignment()) == 4 and len(seen) == 100, seen)
        first.commit(asynchronous=False)
        second.subscribe(["t"])
        poll_until(
            [first, second],
            lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2,
            seen,
        )
        produce(threaded, "t", [f"b{i}" for i in range(100)])
        poll_until([first, second], lambda: len(seen) >= 200, seen)
        first.commit(asynchronous=False)
        second.commit(asynchronous=False)
        second.close()
        poll_until([first], lambda: len(first.assignment()) == 4, seen)
    finally:
        first.close()
    assert values(seen) == sorted(f"{batch}{i}" for batch in "ab" for i in range(100))
    produce(threaded, "t", ["c"])
    third = consumer(threaded, "g", **options)
    third.subscribe(["t"])
    again: list[Any] = []
    try:
        poll_until([third], lambda: bool(again), again)
        assert [m.value() for m in again] == [b"c"]
    finally:
        third.close()


def test_what_stays_is_not_revoked_from_a_cooperative_member(threaded: ThreadedBroker) -> None:
    threaded.call(threaded.broker.create_topic, "t", 4)
    rebalances: list[tuple[str, int]] = []

    def on_assign(_: Any, partitions: list[Any]) -> None:
        rebalances.append(("assigned", len(partitions)))

    def on_revoke(_: Any, partitions: list[Any]) -> None:
        rebalances.append(("revoked", len(partitions)))

    first, second = (consumer(threaded, "g", **COOPERATIVE) for _ in range(2))
    try:
        first.subscribe(["t"], on_assign=on_assign, on_revoke=on_revoke)
        poll_until([first], lambda: len(first.assignment()) == 4, [])
        second.subscribe(["t"])
        poll_until(
            [first, second],
            lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2,
            [],
        )
        assert [entry for entry in rebalances if entry[1]] == [("assigned", 4), ("revoked", 2)]
    finally:
        second.close()
        first.close()


def test_a_static_member_comes_back_to_what_it_had(threaded: ThreadedBroker) -> None:
    threaded.call(threaded.broker.create_topic, "t", 4)
    static = {"session.timeout.ms": 30_000}
    first = consumer(threaded, "g", **static, **{"group.instance.id": "one"})
    second = consumer(threaded, "g", **static, **{"group.instance.id": "two"})
    rebalances: list[str] = []
    try:
        for each in (first, second):
            each.subscribe(["t"], on_revoke=lambda *_: rebalances.append("revoked"))
        poll_until(
            [first, second],
            lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2,
            [],
        )
        rebalances.clear()
        had = second.assignment()
        second.close()
        rebalances.clear()
        again = consumer(threaded, "g", **static, **{"group.instance.id": "two"})
        again.subscribe(["t"])
        poll_until([first, again], lambda: len(again.assignment()) == 2, [])
        assert again.assignment() == had
        assert rebalances == []
        twin = consumer(threaded, "g", **static, **{"group.instance.id": "two"})
        twin.subscribe(["t"])
        failed: list[Any] = []

        def step() -> None:
            twin.poll(0.05)
            message = again.poll(0.05)
            if message is not None and message.error() is not None:
                failed.append(message.error().code())

        repeat_until(step, lambda: bool(failed))
        assert failed[0] in {
            confluent_kafka.KafkaError.FENCED_INSTANCE_ID,
            confluent_kafka.KafkaError._FATAL,
        }
        twin.close()
        again.close()
    finally:
        first.close()


def test_an_idempotent_producer_survives_a_killed_leader(threaded: ThreadedBroker) -> None:
    threaded.call(threaded.broker.create_topic, "t", 3)
    produce(threaded, "t", ["before"])
    threaded.call(threaded.broker.kill, 2)
    produce(
        threaded, "t", [f"v{i}" for i in range(200)], **{"acks": "all", "enable.idempotence": True}
    )
    threaded.call(threaded.broker.restart, 2)
    produce(threaded, "t", ["after"])
    ends = [threaded.broker.end_offset("t", p) for p in range(3)]
    assert sum(ends) == 202


def test_the_admin_client(threaded: ThreadedBroker) -> None:
    client = admin.AdminClient({"bootstrap.servers": threaded.servers}, logger=quiet())
    made = client.create_topics([admin.NewTopic("t", num_partitions=2, replication_factor=3)])
    assert made["t"].result(DEADLINE_S) is None
    described = client.list_topics(timeout=DEADLINE_S)
    assert {p: len(m.replicas) for p, m in described.topics["t"].partitions.items()} == {0: 3, 1: 3}
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        client.create_topics([admin.NewTopic("t", num_partitions=1)])["t"].result(DEADLINE_S)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
    reader = consumer(threaded, "g")
    reader.subscribe(["t"])
    try:
        poll_until([reader], lambda: len(reader.assignment()) == 2, [])
        listed = client.list_consumer_groups().result(DEADLINE_S)
        assert [(g.group_id, g.state.name) for g in listed.valid] == [("g", "STABLE")]
        group = client.describe_consumer_groups(["g"])["g"].result(DEADLINE_S)
        assert [len(m.assignment.topic_partitions) for m in group.members] == [2]
    finally:
        reader.close()
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        client.delete_consumer_groups(["nobody"])["nobody"].result(DEADLINE_S)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.GROUP_ID_NOT_FOUND
    assert client.delete_consumer_groups(["g"])["g"].result(DEADLINE_S) is None
    grown = client.create_partitions([admin.NewPartitions("t", 5)])
    assert grown["t"].result(DEADLINE_S) is None
    assert threaded.broker.topics == {"t": 5}
    cluster = client.describe_cluster().result(DEADLINE_S)
    assert sorted(node.id for node in cluster.nodes) == [1, 2, 3]
    resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, "t")
    configs = client.describe_configs([resource])[resource].result(DEADLINE_S)
    assert configs["max.message.bytes"].value == "1048588"
    assert client.delete_topics(["t"])["t"].result(DEADLINE_S) is None
    assert threaded.broker.topics == {}


def transactional(threaded: ThreadedBroker, name: str = "tx", **options: Any) -> Any:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": threaded.servers, "transactional.id": name, **options}, logger=quiet()
    )
    producer.init_transactions(DEADLINE_S)
    return producer


def transact(producer: Any, *values: str, topic: str = "t", commit: bool = True) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, key=value, value=value)
    if commit:
        producer.commit_transaction(DEADLINE_S)
    else:
        producer.flush(DEADLINE_S)
        producer.abort_transaction(DEADLINE_S)


def read(threaded: ThreadedBroker, topic: str, count: int, isolation: str) -> list[str]:
    """Return what a reader sees first, and nothing after it in the same topic."""
    reader = consumer(threaded, f"{topic}-{isolation}", **{"isolation.level": isolation})
    reader.subscribe([topic])
    seen: list[Any] = []
    try:
        poll_until([reader], lambda: len(seen) >= count, seen)
        assert reader.poll(0.2) is None
    finally:
        reader.close()
    return values(seen)


@pytest.fixture(params=["0.11", "3.9", "4.3", None])
def hosted_as_of(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    with threaded_broker(nodes=3, as_of=request.param) as broker:
        broker.call(broker.broker.create_topic, "t", 4)
        yield broker


def test_a_reader_of_committed_records_sees_no_others(hosted_as_of: ThreadedBroker) -> None:
    producer = transactional(hosted_as_of)
    transact(producer, *(f"a{i}" for i in range(20)))
    transact(producer, *(f"x{i}" for i in range(20)), commit=False)
    transact(producer, *(f"b{i}" for i in range(20)))
    kept = sorted(f"{name}{i}" for name in "ab" for i in range(20))
    assert read(hosted_as_of, "t", 40, "read_committed") == kept
    lost = [f"x{i}" for i in range(20)]
    assert read(hosted_as_of, "t", 60, "read_uncommitted") == sorted(kept + lost)


def test_what_is_read_and_written_in_one_transaction(hosted_as_of: ThreadedBroker) -> None:
    hosted_as_of.call(hosted_as_of.broker.create_topic, "u", 2)
    produce(hosted_as_of, "t", [f"v{i}" for i in range(30)])
    producer = transactional(hosted_as_of)
    seen: list[Any] = []
    for commit in (False, True):
        reader = consumer(hosted_as_of, "g", **{"isolation.level": "read_committed"})
        reader.subscribe(["t"])
        seen.clear()
        try:
            poll_until([reader], lambda: len(seen) >= 30, seen)
            producer.begin_transaction()
            for message in seen:
                producer.produce("u", key=message.key(), value=message.value())
            positions = reader.position(reader.assignment())
            metadata = reader.consumer_group_metadata()
            producer.send_offsets_to_transaction(positions, metadata, DEADLINE_S)
            end = producer.commit_transaction if commit else producer.abort_transaction
            end(DEADLINE_S)
        finally:
            reader.close()
        assert values(seen) == sorted(f"v{i}" for i in range(30))
    assert read(hosted_as_of, "u", 30, "read_committed") == values(seen)
    produce(hosted_as_of, "t", ["new"])
    reader = consumer(hosted_as_of, "g")
    reader.subscribe(["t"])
    seen.clear()
    try:
        poll_until([reader], lambda: bool(seen), seen)
    finally:
        reader.close()
    assert values(seen) == ["new"]


def test_the_older_of_two_producers_is_fenced(hosted_as_of: ThreadedBroker) -> None:
    older = transactional(hosted_as_of)
    older.begin_transaction()
    older.produce("t", "lost")
    older.flush(DEADLINE_S)
    newer = transactional(hosted_as_of)
    transact(newer, "kept")
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        older.commit_transaction(DEADLINE_S)
    assert caught.value.args[0].code() in {
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
    }
    assert caught.value.args[0].fatal()
    assert read(hosted_as_of, "t", 1, "read_committed") == ["kept"]


def test_a_transaction_goes_on_when_its_coordinator_is_killed(threaded: ThreadedBroker) -> None:
    threaded.call(threaded.broker.create_topic, "t", 4)
    producer = transactional(threaded)
    producer.begin_transaction()
    producer.produce("t", "a")
    producer.flush(DEADLINE_S)
    threaded.call(threaded.broker.kill, threaded.call(threaded.broker.coordinator, "tx"))
    producer.produce("t", "b")
    producer.commit_transaction(DEADLINE_S)
    assert read(threaded, "t", 2, "read_committed") == ["a", "b"]


def test_the_admin_client_asks_for_offsets_by_isolation(threaded: ThreadedBroker) -> None:
    threaded.call(threaded.broker.create_topic, "t", 1)
    producer = transactional(threaded)
    producer.begin_transaction()
    producer.produce("t", "a")
    producer.flush(DEADLINE_S)
    client = admin.AdminClient({"bootstrap.servers": threaded.servers}, logger=quiet())
    spec = admin.OffsetSpec.latest()
    where = confluent_kafka.TopicPartition("t", 0)
    for level, offset in (
        (confluent_kafka.IsolationLevel.READ_COMMITTED, 0),
        (confluent_kafka.IsolationLevel.READ_UNCOMMITTED, 1),
    ):
        found = client.list_offsets({where: spec}, isolation_level=level)[where]
        assert found.result(DEADLINE_S).offset == offset
    producer.commit_transaction(DEADLINE_S)
