"""librdkafka's consumer protocol against the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.test_confluent import poll_until, produce, quiet, values
from tests.broker.threaded_broker import DEADLINE_S, ThreadedBroker, threaded_broker

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = pytest.mark.slow

CONSUMER = {"group.protocol": "consumer"}
CLASSIC = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
    "heartbeat.interval.ms": 200,
    "session.timeout.ms": 6000,
}


@pytest.fixture(params=["asyncio", "trio"])
def threaded(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    with threaded_broker(
        request.param,
        nodes=3,
        group_consumer_heartbeat_interval_ms=100,
        group_consumer_session_timeout_ms=6_000,
    ) as broker:
        broker.call(broker.broker.create_topic, "t", 4)
        yield broker


def consumer(threaded: ThreadedBroker, **options: Any) -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": threaded.servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        },
        logger=quiet(),
    )


def are_balanced(*consumers: Any) -> bool:
    sizes = sorted(len(each.assignment()) for each in consumers)
    return sum(sizes) == 4 and sizes[-1] - sizes[0] <= 1


def test_two_members_share_commit_and_leave(threaded: ThreadedBroker) -> None:
    produce(threaded, "t", [f"a{i}" for i in range(100)])
    first, second = consumer(threaded, **CONSUMER), consumer(threaded, **CONSUMER)
    seen: list[Any] = []
    try:
        first.subscribe(["t"])
        poll_until([first], lambda: are_balanced(first) and len(seen) == 100, seen)
        first.commit(asynchronous=False)
        second.subscribe(["t"])
        poll_until([first, second], lambda: are_balanced(first, second), seen)
        produce(threaded, "t", [f"b{i}" for i in range(100)])
        poll_until([first, second], lambda: len(seen) >= 200, seen)
        first.commit(asynchronous=False)
        second.commit(asynchronous=False)
        second.close()
        poll_until([first], lambda: are_balanced(first), seen)
    finally:
        first.close()
    assert values(seen) == sorted(f"{batch}{i}" for batch in "ab" for i in range(100))
    produce(threaded, "t", ["c"])
    third = consumer(threaded, **CONSUMER)
    third.subscribe(["t"])
    again: list[Any] = []
    try:
        poll_until([third], lambda: bool(again), again)
        assert values(again) == ["c"]
    finally:
        third.close()


def test_group_survives_its_coordinator(threaded: ThreadedBroker) -> None:
    first, second = consumer(threaded, **CONSUMER), consumer(threaded, **CONSUMER)
    seen: list[Any] = []
    revoked: list[Any] = []
    try:
        for each in (first, second):
            each.subscribe(["t"], on_lost=lambda *_: revoked.append("lost"))
        poll_until([first, second], lambda: are_balanced(first, second), seen)
        threaded.call(threaded.broker.kill, threaded.broker.coordinator("g"))
        produce(threaded, "t", [f"v{i}" for i in range(50)])
        poll_until([first, second], lambda: len(seen) >= 50, seen)
        assert values(seen) == sorted(f"v{i}" for i in range(50))
        first.commit(asynchronous=False)
        assert not revoked
    finally:
        second.close()
        first.close()


def test_static_member_returns_to_its_partitions(threaded: ThreadedBroker) -> None:
    first = consumer(threaded, **CONSUMER, **{"group.instance.id": "one"})
    second = consumer(threaded, **CONSUMER, **{"group.instance.id": "two"})
    try:
        first.subscribe(["t"])
        second.subscribe(["t"])
        poll_until([first, second], lambda: are_balanced(first, second), [])
        had = second.assignment()
        second.close()
        second = consumer(threaded, **CONSUMER, **{"group.instance.id": "two"})
        second.subscribe(["t"])
        poll_until([first, second], lambda: are_balanced(first, second), [])
        assert second.assignment() == had
    finally:
        second.close()
        first.close()


def test_regular_expression(threaded: ThreadedBroker) -> None:
    threaded.call(threaded.broker.create_topic, "orders-1", 2)
    reader = consumer(threaded, **CONSUMER)
    try:
        reader.subscribe(["^orders-.*"])
        poll_until([reader], lambda: len(reader.assignment()) == 2, [])
    finally:
        reader.close()


def test_group_is_upgraded_and_downgraded_under_load(threaded: ThreadedBroker) -> None:
    """Members of the classic protocol are replaced one by one, and the way back."""
    seen: list[Any] = []
    members = [consumer(threaded, **CLASSIC) for _ in range(2)]
    count = 0

    def load() -> None:
        nonlocal count
        produce(threaded, "t", [f"v{count + i:04}" for i in range(20)])
        count += 20

    try:
        for each in members:
            each.subscribe(["t"])
        poll_until(members, lambda: are_balanced(*members), seen)
        for options in (CONSUMER, CONSUMER, CLASSIC, CLASSIC):
            load()
            members.append(consumer(threaded, **options))
            members[-1].subscribe(["t"])
            poll_until(members, lambda: are_balanced(*members), seen)
            load()
            poll_until(members, lambda: len({m.value() for m in seen}) == count, seen)
            oldest = members.pop(0)
            oldest.commit(asynchronous=False)
            for each in members:
                each.commit(asynchronous=False)
            oldest.close()
            poll_until(members, lambda: are_balanced(*members), seen)
    finally:
        for each in members:
            each.close()
    assert sorted({m.value().decode() for m in seen}) == [f"v{i:04}" for i in range(count)]


def test_admin_client_describes_the_group(threaded: ThreadedBroker) -> None:
    reader = consumer(threaded, **CONSUMER)
    client = admin.AdminClient({"bootstrap.servers": threaded.servers}, logger=quiet())
    try:
        reader.subscribe(["t"])
        poll_until([reader], lambda: are_balanced(reader), [])
        listed = client.list_consumer_groups().result(DEADLINE_S)
        assert [(g.group_id, g.state.name, g.type.name) for g in listed.valid] == [
            ("g", "STABLE", "CONSUMER")
        ]
        group = client.describe_consumer_groups(["g"])["g"].result(DEADLINE_S)
        assert [len(m.assignment.topic_partitions) for m in group.members] == [4]
    finally:
        reader.close()
