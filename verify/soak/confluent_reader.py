"""Contents of the brokers, read with confluent-kafka."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import confluent_kafka

from verify.soak.checker import PartitionOffset

QUIET_SECONDS = 30.0
COMMITTED_SECONDS = 20.0
BATCH = 10_000
OFFSET_KEY_VERSIONS = (0, 1)


def _consumer(servers: str, isolation: str = "read_uncommitted") -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "log_level": 0,
        }
    )


def ends(servers: str, topic: str) -> dict[int, int]:
    """Return the end of each partition."""
    consumer = _consumer(servers)
    try:
        return _ends(consumer, topic)
    finally:
        consumer.close()


def _ends(consumer: confluent_kafka.Consumer, topic: str) -> dict[int, int]:
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    return {number: _end(consumer, topic, number) for number in partitions}


def _end(consumer: confluent_kafka.Consumer, topic: str, number: int) -> int:
    """Return the end of a partition; ask again while its leader moves."""
    deadline = time.monotonic() + QUIET_SECONDS
    while True:
        try:
            partition = confluent_kafka.TopicPartition(topic, number)
            end: int = consumer.get_watermark_offsets(partition, timeout=30)[1]
        except confluent_kafka.KafkaException as failure:
            moved = confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION
            if failure.args[0].code() != moved or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return end


def messages(
    servers: str, topic: str, *, committed: bool = False
) -> Iterator[confluent_kafka.Message]:
    """Yield all messages of a topic, from each partition's first record to its current end.

    The last offset may be a transaction marker, which is no message: a partition has ended when the
    client reports so at or after that offset.
    """
    consumer = _consumer(servers, "read_committed" if committed else "read_uncommitted")
    try:
        missing = {number: end for number, end in _ends(consumer, topic).items() if end}
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in missing])
        deadline = time.monotonic() + QUIET_SECONDS
        while missing:
            found = consumer.consume(BATCH, timeout=1.0)
            if found:
                deadline = time.monotonic() + QUIET_SECONDS
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{topic} gives nothing more; partitions missing: {missing}")
            for message in found:
                error, (partition, offset) = message.error(), _place(message)
                if error is None:
                    yield message
                    offset += 1
                elif error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                    raise confluent_kafka.KafkaException(error)
                if offset >= missing.get(partition, 0):
                    missing.pop(partition, None)
    finally:
        consumer.close()


def _place(message: confluent_kafka.Message) -> PartitionOffset:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return PartitionOffset(partition, offset)


def records(
    servers: str, topic: str, *, committed: bool = False
) -> dict[int, list[tuple[int, bytes]]]:
    """Return (offset, value) of each record of each partition in log order: all, or those that a
    `read_committed` consumer sees."""
    found: dict[int, list[tuple[int, bytes]]] = {}
    for message in messages(servers, topic, committed=committed):
        partition, offset = _place(message)
        found.setdefault(partition, []).append((offset, message.value() or b""))
    return found


def log(servers: str, topic: str, *, committed: bool = False) -> dict[int, list[tuple[int, int]]]:
    """As `records`, for a topic whose values are numbers."""
    return numbers(records(servers, topic, committed=committed))


def numbers(found: dict[int, list[tuple[int, bytes]]]) -> dict[int, list[tuple[int, int]]]:
    return {
        partition: [(offset, int(value)) for offset, value in entries]
        for partition, entries in found.items()
    }


def committed_offsets(
    servers: str, group: str, topic: str, partitions: int
) -> dict[int, int | None]:
    """Return the committed offsets of a group for a topic; None where it has none."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": group, "log_level": 0}
    )
    try:
        asked = [confluent_kafka.TopicPartition(topic, number) for number in range(partitions)]
        found = consumer.committed(asked, timeout=COMMITTED_SECONDS)
    finally:
        consumer.close()
    return {each.partition: None if each.offset < 0 else each.offset for each in found}


def commits(servers: str, group: str, topic: str) -> list[PartitionOffset]:
    """Return every commit of a group for a topic, as `all_commits`."""
    return all_commits(servers).get((group, topic), [])


def all_commits(servers: str) -> dict[tuple[str, str], list[PartitionOffset]]:
    """Return every commit by group and topic, in the order in which its coordinator wrote them.

    They are read from __consumer_offsets, where a group has one partition. Commits of aborted
    transactions are left out.
    """
    found: dict[tuple[str, str], list[PartitionOffset]] = {}
    for message in messages(servers, "__consumer_offsets", committed=True):
        key, value = message.key(), message.value()
        if key is None or value is None:
            continue
        (version,) = struct.unpack_from(">h", key)
        if version not in OFFSET_KEY_VERSIONS:
            continue
        group, position = _string(key, 2)
        topic, position = _string(key, position)
        (partition,) = struct.unpack_from(">i", key, position)
        (offset,) = struct.unpack_from(">q", value, 2)
        found.setdefault((group, topic), []).append(PartitionOffset(partition, offset))
    return found


def _string(data: bytes, position: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, position)
    begin = position + 2
    return data[begin : begin + size].decode(), begin + size
