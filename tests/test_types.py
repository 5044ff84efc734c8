from __future__ import annotations

from collections.abc import Collection

import pytest

from aiokafkawire.types import (
    RecordMetadata,
    TopicPartition,
    no_partition_text,
    parse_topic_partition,
    parse_topic_partitions,
    partitions_by_topic,
    require_topic_name,
)

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


@pytest.mark.parametrize(
    "given",
    [
        (A, B),
        (("a", 0), ("b", 1)),
        ([A, B],),
        ([("a", 0)], B),
        (iter([A, B]),),
        (dict.fromkeys([A, B]),),
        ((A, B),),
    ],
)
def test_partitions_are_accepted_one_by_one_or_as_an_iterable(given: tuple[object, ...]):
    assert parse_topic_partitions(given) == [A, B]  # type: ignore[arg-type]


def test_no_argument_gives_no_partition():
    assert parse_topic_partitions([]) == []
    assert parse_topic_partitions([[]]) == []


@pytest.mark.parametrize("given", ["orders", 3, ("orders",), [3], ["orders"], ("a", 0, 1), None])
def test_an_invalid_partition_argument_is_named(given: object):
    with pytest.raises(TypeError, match=r"a partition must be a .topic, number. tuple, not"):
        parse_topic_partitions([given])  # type: ignore[list-item]


@pytest.mark.parametrize("given", ["a", ("a", "0"), ("a", True), ("a", 0.0), ["a", 0], (*A, 1)])
def test_a_partition_must_be_a_name_and_an_int(given: object):
    for check in (parse_topic_partition, lambda one: parse_topic_partitions([one])):
        with pytest.raises(TypeError, match=r"a partition must be a .topic, number. tuple, not"):
            check(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("a", 2**31), "at most 2147483647, not 2147483648"),
        (("a", -(2**31)), "not -2147483648"),
        (("\ud800", 0), "cannot be encoded as UTF-8"),
        (("a" * 2**15, 0), "at most 32767 bytes, not 32768"),
        (("\xe9" * 2**14, 0), "at most 32767 bytes, not 32768"),
    ],
)
def test_a_value_that_does_not_fit_into_a_request_is_rejected(given: tuple[str, int], message: str):
    with pytest.raises(ValueError, match=message):
        parse_topic_partition(given)
    assert parse_topic_partition(("\xe9", 2**31 - 1)) == ("\xe9", 2**31 - 1)


def test_str_of_a_partition_is_kafkas_form():
    assert str(B) == "b-1"
    assert RecordMetadata("b", 1, 7, 0).topic_partition == B


def test_partitions_are_grouped_by_topic_in_their_order():
    first, other, second = TopicPartition("t", 1), TopicPartition("s", 0), TopicPartition("t", 0)
    grouped = partitions_by_topic(iter([first, other, second]))
    assert list(grouped.items()) == [("t", [first, second]), ("s", [other])]


def test_a_topic_name_has_at_most_249_characters():
    require_topic_name("a" * 249)
    with pytest.raises(ValueError, match=r"it has 250 characters, of at most 249; a hint$"):
        require_topic_name("a" * 250, "; a hint")


@pytest.mark.parametrize(
    ("number", "partitions", "text"),
    [
        (1, [0], "1 partition"),
        (3, (0, 1, 2), "3 partitions"),
        (-1, [0, 1], "2 partitions"),
        (1, [2, 0], "2 partitions (0, 2)"),
        (0, {1: "one"}, "1 partition (1)"),
        (5, range(100, 200), f"100 partitions ({', '.join(map(str, range(100, 120)))}, …)"),
    ],
)
def test_a_missing_partition_is_named_with_those_there_are(
    number: int, partitions: Collection[int], text: str
):
    expected = f"topic 't' has no partition {number}: it has {text}"
    assert no_partition_text("t", number, partitions) == expected
