"""Wrong arguments are refused at the call, and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.errors import RecordTooLarge
from aiokafkawire.producer import Producer
from aiokafkawire.producer.intake import checked

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
    return checked(**(arguments | changes))


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


def test_a_dictionary_of_headers_is_to_be_given_by_its_items():
    with pytest.raises(TypeError, match=r"pairs of name and value: give the items\(\)"):
        check(headers={"ab": b"1"})


@pytest.mark.parametrize("none", [None, (), []])
def test_no_headers_are_none_or_nothing(none: object):
    *_, headers, _ = check(headers=none)
    assert headers == ()


@pytest.mark.parametrize("part", ["value", "key"])
def test_a_record_over_the_limit_says_its_size(part: str):
    check(**{part: b"x" * 850})
    with pytest.raises(RecordTooLarge, match="max_request_size_bytes") as caught:
        check(**{part: b"x" * 1000})
    assert caught.value.topic == "t"
    assert caught.value.size_bytes is not None
    assert caught.value.size_bytes > 1000


def test_headers_count_towards_the_limit():
    with pytest.raises(RecordTooLarge):
        check(headers=[("h", b"x" * 1000)])


async def test_a_topic_that_many_look_up_at_once_is_kept_once(broker: Broker, new_producer: New):
    async with new_producer() as producer:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(producer.partitions_for, "t")
        session = producer._lifecycle.session
        session.sender.accumulator.topics["t"].used_at -= 1_000
        for _ in range(2):
            session.cluster.request_update()
            deadline = anyio.current_time() + 20
            assert await session.cluster.wait_update(session.cluster.metadata.version, deadline)
        assert not session.cluster.metadata.topics
