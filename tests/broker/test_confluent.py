"""librdkafka, by confluent-kafka, against the embedded broker. It runs in threads of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import admin

from .hosted import DEADLINE_S, HostedBroker, hosted_broker, repeat_until

pytestmark = pytest.mark.slow

COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


@pytest.fixture(params=["asyncio", "trio"])
def hosted(request: pytest.FixtureRequest) -> Iterator[HostedBroker]:
    with hosted_broker(request.param, nodes=3) as broker:
        yield broker


def quiet() -> logging.Logger:
    return logging.getLogger("librdkafka")


def produce(hosted: HostedBroker, topic: str, values: list[str], **options: Any) -> list[Any]:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": hosted.servers, "linger.ms": 5, **options}, logger=quiet()
    )
    delivered: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        delivered.append((error, message))

    for value in values:
        producer.produce(topic, key=value, value=value, on_delivery=on_delivery)
    assert producer.flush(DEADLINE_S) == 0
    assert [error for error, _ in delivered if error is not None] == []
    return [message for _, message in delivered]


def consumer(hosted: HostedBroker, group: str, **options: Any) -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": hosted.servers,
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
def test_what_is_produced_is_consumed(hosted: HostedBroker, options: dict[str, Any]) -> None:
    hosted.call(hosted.broker.create_topic, "t", 3)
    given = [f"v{i}" for i in range(500)]
    messages = produce(hosted, "t", given, **options)
    assert len(messages) == 500
    reader = consumer(hosted, "g")
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
    hosted: HostedBroker, options: dict[str, Any]
) -> None:
    hosted.call(hosted.broker.create_topic, "t", 4)
    produce(hosted, "t", [f"a{i}" for i in range(100)])
    first, second = consumer(hosted, "g", **options), consumer(hosted, "g", **options)
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
        produce(hosted, "t", [f"b{i}" for i in range(100)])
        poll_until([first, second], lambda: len(seen) >= 200, seen)
        first.commit(asynchronous=False)
        second.commit(asynchronous=False)
        second.close()
        poll_until([first], lambda: len(first.assignment()) == 4, seen)
    finally:
        first.close()
    assert values(seen) == sorted(f"{batch}{i}" for batch in "ab" for i in range(100))
    produce(hosted, "t", ["c"])
    third = consumer(hosted, "g", **options)
    third.subscribe(["t"])
    again: list[Any] = []
    try:
        poll_until([third], lambda: bool(again), again)
        assert [m.value() for m in again] == [b"c"]
    finally:
        third.close()


def test_what_stays_is_not_revoked_from_a_cooperative_member(hosted: HostedBroker) -> None:
    hosted.call(hosted.broker.create_topic, "t", 4)
    told: list[tuple[str, int]] = []

    def on_assign(_: Any, partitions: list[Any]) -> None:
        told.append(("assigned", len(partitions)))

    def on_revoke(_: Any, partitions: list[Any]) -> None:
        told.append(("revoked", len(partitions)))

    first, second = (consumer(hosted, "g", **COOPERATIVE) for _ in range(2))
    try:
        first.subscribe(["t"], on_assign=on_assign, on_revoke=on_revoke)
        poll_until([first], lambda: len(first.assignment()) == 4, [])
        second.subscribe(["t"])
        poll_until(
            [first, second],
            lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2,
            [],
        )
        assert [entry for entry in told if entry[1]] == [("assigned", 4), ("revoked", 2)]
    finally:
        second.close()
        first.close()


def test_a_static_member_comes_back_to_what_it_had(hosted: HostedBroker) -> None:
    hosted.call(hosted.broker.create_topic, "t", 4)
    static = {"session.timeout.ms": 30_000}
    first = consumer(hosted, "g", **static, **{"group.instance.id": "one"})
    second = consumer(hosted, "g", **static, **{"group.instance.id": "two"})
    told: list[str] = []
    try:
        for each in (first, second):
            each.subscribe(["t"], on_revoke=lambda *_: told.append("revoked"))
        poll_until(
            [first, second],
            lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2,
            [],
        )
        told.clear()
        had = second.assignment()
        second.close()
        told.clear()
        again = consumer(hosted, "g", **static, **{"group.instance.id": "two"})
        again.subscribe(["t"])
        poll_until([first, again], lambda: len(again.assignment()) == 2, [])
        assert again.assignment() == had
        assert told == []
        twin = consumer(hosted, "g", **static, **{"group.instance.id": "two"})
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


def test_an_idempotent_producer_survives_a_killed_leader(hosted: HostedBroker) -> None:
    hosted.call(hosted.broker.create_topic, "t", 3)
    produce(hosted, "t", ["before"])
    hosted.call(hosted.broker.kill, 2)
    produce(
        hosted, "t", [f"v{i}" for i in range(200)], **{"acks": "all", "enable.idempotence": True}
    )
    hosted.call(hosted.broker.restart, 2)
    produce(hosted, "t", ["after"])
    ends = [hosted.broker.end_offset("t", p) for p in range(3)]
    assert sum(ends) == 202


def test_the_admin_client(hosted: HostedBroker) -> None:
    client = admin.AdminClient({"bootstrap.servers": hosted.servers}, logger=quiet())
    made = client.create_topics([admin.NewTopic("t", num_partitions=2, replication_factor=3)])
    assert made["t"].result(DEADLINE_S) is None
    described = client.list_topics(timeout=DEADLINE_S)
    assert {p: len(m.replicas) for p, m in described.topics["t"].partitions.items()} == {0: 3, 1: 3}
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        client.create_topics([admin.NewTopic("t", num_partitions=1)])["t"].result(DEADLINE_S)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
    reader = consumer(hosted, "g")
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
    assert hosted.broker.topics == {"t": 5}
    cluster = client.describe_cluster().result(DEADLINE_S)
    assert sorted(node.id for node in cluster.nodes) == [1, 2, 3]
    resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, "t")
    configs = client.describe_configs([resource])[resource].result(DEADLINE_S)
    assert configs["max.message.bytes"].value == "1048588"
    assert client.delete_topics(["t"])["t"].result(DEADLINE_S) is None
    assert hosted.broker.topics == {}
