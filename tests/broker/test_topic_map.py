"""Topics by name and by id."""

from __future__ import annotations

from uuid import UUID

from aiokafkawire.broker import BrokerConfig
from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.broker.storage import MemoryStore
from aiokafkawire.broker.topic_map import TopicMap
from aiokafkawire.broker.topics import Partition, Topic


def partitions(name: str, count: int) -> list[Partition]:
    return [
        Partition(name, index, [1], PartitionLog(f"{name}-{index}", MemoryStore(), BrokerConfig()))
        for index in range(count)
    ]


def topic(name: str, number: int, count: int = 1) -> Topic:
    return Topic(name, UUID(int=number), partitions(name, count), {})


def test_a_topic_is_found_by_name_and_by_id() -> None:
    topics, one, two = TopicMap(), topic("one", 1), topic("two", 2, 3)
    topics.add(one)
    topics.add(two)
    assert (list(topics), len(topics), topics["one"]) == (["one", "two"], 2, one)
    assert topics.get_by_id(two.topic_id) is two
    assert topics.partition_count == 4
    topics.remove(two)
    assert "two" not in topics
    assert topics.get_by_id(two.topic_id) is None
    assert topics.partition_count == 1


def test_replaced_topics_keep_their_order() -> None:
    topics, kept = TopicMap(), [topic("one", 1), topic("two", 2, 3)]
    topics.replace_all(kept)
    topics.remove(kept[0])
    topics.replace_all(kept)
    assert list(topics.values()) == kept
    assert topics.get_by_id(UUID(int=1)) is kept[0]
    assert topics.partition_count == 4


def test_every_change_raises_the_version() -> None:
    topics, one = TopicMap(), topic("one", 1)
    versions = [topics.version]
    topics.add(one)
    versions.append(topics.version)
    topics.add_partitions(one, partitions("one", 2))
    versions.append(topics.version)
    assert topics.partition_count == 3
    topics.remove_partitions(one, 1)
    versions.append(topics.version)
    assert (topics.partition_count, len(one.partitions)) == (1, 1)
    topics.remove(one)
    versions.append(topics.version)
    assert versions == sorted(set(versions))
