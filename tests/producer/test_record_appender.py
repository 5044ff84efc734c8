"""Checks of the arguments, and the fast path of appending."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.errors import InvalidTxnState, RecordTooLarge
from aiokafkawire.producer import Producer
from aiokafkawire.producer.record_args import validate_record
from aiokafkawire.wire import ApiKey
from tests.producer.conftest import produced

New = Callable[..., Producer]


def check(**changes: Any):
    arguments = {
        "topic": "t",
        "value": b"v",
        "key": None,
        "partition": None,
        "timestamp_ms": None,
        "headers": (),
        "max_bytes": 1000,
    }
    return validate_record(**(arguments | changes))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("value", "text"),
        ("value", 1),
        ("value", [1]),
        ("key", "text"),
        ("key", 1.5),
        ("topic", b"t"),
        ("topic", None),
        ("partition", "0"),
        ("partition", True),
        ("timestamp_ms", 1.5),
    ],
)
def test_wrong_types_are_named(name: str, wrong: object):
    with pytest.raises(TypeError, match=name):
        check(**{name: wrong})


@pytest.mark.parametrize(
    "headers",
    [[("name", "text")], [(b"name", b"v")], ["name"], [("a", b"b", b"c")], [1], "ab"],
)
def test_wrong_headers_are_named(headers: object):
    with pytest.raises(TypeError, match="header"):
        check(headers=headers)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("topic", ""), ("partition", -1), ("timestamp_ms", -1), ("timestamp_ms", 2**63)],
)
def test_impossible_values_are_named(name: str, wrong: object):
    with pytest.raises(ValueError, match=name):
        check(**{name: wrong})


def test_bytes_like_objects_are_copied():
    content = bytearray(b"abc")
    _, value, key, *_ = check(value=content, key=memoryview(content)[1:])
    content[:] = b"xyz"
    assert (value, key) == (b"abc", b"bc")


def test_headers_are_copied():
    *_, headers, _ = check(headers=[["a", bytearray(b"1")], ("b", None)])
    assert headers == (("a", b"1"), ("b", None))


def test_a_dictionary_of_headers_is_rejected():
    with pytest.raises(
        TypeError, match=r"pairs of name and value: pass the dictionary's items\(\)"
    ):
        check(headers={"ab": b"1"})


@pytest.mark.parametrize("none", [None, (), []])
def test_no_headers(none: object):
    *_, headers, _ = check(headers=none)
    assert headers == ()


@pytest.mark.parametrize("part", ["value", "key"])
def test_a_record_over_the_limit_has_its_size(part: str):
    check(**{part: b"x" * 850})
    with pytest.raises(RecordTooLarge, match="max_request_size_bytes") as caught:
        check(**{part: b"x" * 1000})
    assert caught.value.topic == "t"
    assert caught.value.size_bytes is not None
    assert caught.value.size_bytes > 1000


def test_headers_count_towards_the_limit():
    with pytest.raises(RecordTooLarge):
        check(headers=[("h", b"x" * 1000)])


async def test_concurrent_lookups_keep_one_reference_to_a_topic(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(producer.partitions_for, "t")
        session = producer._lifecycle.session
        session.sender.accumulator.topics["t"].last_used_at -= 1_000
        for _ in range(2):
            session.cluster.request_update()
            deadline = anyio.current_time() + 20
            assert await session.cluster.wait_update(session.cluster.metadata.version, deadline)
        assert not session.cluster.metadata.topics


PLAIN: list[tuple[bytes | None, int | None]] = [(None, None), (b"key", None), (None, 1), (b"k", 1)]


@pytest.mark.parametrize(("key", "partition"), PLAIN)
async def test_the_fast_path_uses_the_same_memory(
    broker: Broker, new_producer: New, key: bytes | None, partition: int | None
):
    async with new_producer(linger_ms=5_000) as producer:
        sender = producer._lifecycle.session.sender
        appender, accumulator = producer._lifecycle.session.appender, sender.accumulator
        await producer.partitions_for("t")
        first = appender.append_fast("t", b"v" * 30, key, partition)
        if key is None and partition is None:
            assert first is None  # The general path chooses the partition.
            first = producer.send_nowait("t", b"v" * 30)
        assert first is not None
        taken = accumulator.pool.used_bytes
        second = appender.append_fast("t", b"w" * 30, key, partition)
        assert second is not None
        assert accumulator.pool.used_bytes == taken
        accumulator.pool.release_unused()
        assert 60 < accumulator.pool.used_bytes < 100 < taken
        await producer.flush()
        assert accumulator.pool.used_bytes == 0
        metadata = [await first, await second]
    assert [one.offset for one in metadata] == [0, 1]
    assert len({one.partition for one in metadata}) == 1


async def test_the_fast_path_begins_the_same_batch(new_producer: New):
    async with new_producer(linger_ms=5_000) as producer:
        session = producer._lifecycle.session
        await producer.partitions_for("t")
        topic = session.sender.accumulator.topics["t"]
        for number, put in enumerate((session.appender.append_fast, producer.send_nowait)):
            assert put("t", b"v" * 30, b"key", number) is not None
        short, long = (topic.by_partition[number].open for number in (0, 1))
        assert short is not None
        assert long is not None
        assert short.reserved_bytes == long.reserved_bytes
        assert short.builder.limit_bytes == long.builder.limit_bytes
        assert long.linger_until - short.linger_until < 5
        assert session.appender.append_fast("t", b"v" * 30, b"key", 0).future is short.future
        await producer.flush()


@pytest.mark.parametrize(
    ("value", "key", "partition", "why"),
    [
        (None, None, 0, "no value"),
        (bytearray(b"v"), None, 0, "a value to be copied"),
        ("text", None, 0, "a wrong value"),
        (b"v", bytearray(b"k"), 0, "a key to be copied"),
        (b"v", bytearray(b"k"), None, "a key to be copied"),
        (b"v", None, 99, "a partition that there is not"),
        (b"v", None, True, "a wrong partition"),
        (b"v" * 3_000, None, 0, "too large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_other_records_need_the_general_path(
    new_producer: New, value: Any, key: Any, partition: Any, why: str
):
    async with new_producer(
        linger_ms=5_000, max_request_size_bytes=2_000, batch_size_bytes=1_000
    ) as producer:
        await producer.send("t", b"v", partition=0)
        session = producer._lifecycle.session
        before = session.sender.accumulator.pool.used_bytes
        assert session.appender.append_fast("t", value, key, partition) is None
        assert session.sender.accumulator.pool.used_bytes == before


async def test_the_fast_path_is_closed_while_a_caller_waits_or_the_producer_closes(
    new_producer: New,
):
    async with new_producer(linger_ms=5_000, buffer_memory_bytes=300) as producer:
        await producer.send("t", b"v", partition=0)
        session = producer._lifecycle.session
        appender, accumulator = session.appender, session.sender.accumulator
        assert appender.append_fast("t", b"v" * 300, None, 0) is None  # no space
        assert appender.append_fast("other", b"v", None, 0) is None
        accumulator.begin_flush()  # A caller may wait for space.
        producer.send_nowait("t", b"v", partition=0)
        assert appender.append_fast("t", b"v", None, 0) is None
        accumulator.end_flush()
        producer.send_nowait("t", b"v" * 20, partition=0)
        assert appender.append_fast("t", b"v", None, 0) is not None
        session.sender.close_to_new_records(RecordTooLarge("closing"))
        assert appender.append_fast("t", b"v", None, 0) is None


async def test_the_fast_path_fills_batches_to_the_same_size(broker: Broker, new_producer: New):
    async with new_producer(linger_ms=5_000, batch_size_bytes=400) as producer:
        for number in range(100):
            await producer.send("t", b"%03d" % number * 10, partition=0)
        await producer.flush()
    batches = [b for seen in broker.requests.of(ApiKey.PRODUCE) for b in produced(seen)]
    # 9, or 8 if a delayed record needs one more byte for its timestamp.
    assert {batch.count for batch in batches[:-1]} <= {8, 9}
    assert sum(batch.count for batch in batches) == 100
    assert all(batch.size_bytes <= 400 for batch in batches)


async def test_the_fast_path_needs_an_open_transaction(new_producer: New):
    async with new_producer(transactional_id="short", linger_ms=5_000) as producer:
        appender = producer._lifecycle.session.appender
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        assert appender.append_fast("t", b"v", None, 0) is not None
        assert (
            appender.append_fast("t", b"v", None, 1) is None
        )  # The partition is new in the transaction.
        await producer.commit_transaction()
        assert appender.append_fast("t", b"v", None, 0) is None
        with pytest.raises(InvalidTxnState):
            await producer.send("t", b"v", partition=0)
