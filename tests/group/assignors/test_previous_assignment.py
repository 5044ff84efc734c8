from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiokafkawire.group.assignors import MemberSubscription, previous_assignment
from aiokafkawire.group.assignors.previous_assignment import (
    OwnedPartitions,
    PreviousAssignment,
    decode_generation,
    decode_owned,
    encode_generation,
    encode_owned,
    resolve_previous_assignment,
)
from aiokafkawire.types import TopicPartition
from tests.compare_counter import CountedName
from tests.group.assignors.cases import lines_of

CASES = list(lines_of("consumer-protocol.jsonl.gz"))


def tps(*numbers: int, topic: str = "a") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def test_sticky_user_data_equals_java() -> None:
    read = 0
    for case in CASES:
        if case["kind"] != "sticky-user-data":
            continue
        data = bytes.fromhex(case["hex"])
        expected = sorted(TopicPartition(*tp) for tp in case["partitions"])
        partitions, generation = decode_owned(data)
        assert sorted(partitions) == expected
        assert generation == (-1 if case["generation"] is None else case["generation"])
        if case["generation"] is not None:
            ours = encode_owned(partitions, generation)
            assert ours == data
        read += 1
    assert read > 20


def test_cooperative_sticky_user_data_equals_java() -> None:
    cases = [case for case in CASES if case["kind"] == "cooperative-user-data"]
    assert len(cases) > 5
    for case in cases:
        assert encode_generation(case["generation"]).hex() == case["hex"]
        assert decode_generation(bytes.fromhex(case["hex"])) == case["generation"]


GOOD = encode_owned([*tps(1, 2), *tps(0, topic="ä")], 7)


def test_trailing_bytes_are_ignored() -> None:
    assert decode_owned(GOOD + b"more") == decode_owned(GOOD)
    assert decode_generation(b"\0\0\0\x05more") == 5


@settings(deadline=None)
@given(st.binary(max_size=40) | st.binary(max_size=8).map(GOOD.__add__))
@example(struct.pack(">i", 2**31 - 1))
@example(struct.pack(">iH", 1, 0xFFFF) + bytes(8))
@example(struct.pack(">ih1si", 1, 1, b"a", 2**30))
@example(struct.pack(">ih1si", 1, 1, b"\xff", 0))
@example(struct.pack(">ih1si", 1, 9, b"a", 0))
@example(struct.pack(">i", -1))
@example(b"\0")
def test_malformed_user_data_does_not_raise(data: bytes) -> None:
    partitions, generation = decode_owned(data)
    assert len(list(partitions)) * 4 <= len(data)
    assert -(2**31) <= generation < 2**31
    assert -(2**31) <= decode_generation(data) < 2**31


def test_the_number_of_owned_partitions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previous_assignment, "MAX_OWNED_PARTITIONS", 3)
    assert decode_owned(GOOD) != OwnedPartitions()
    assert decode_owned(encode_owned([*tps(1, 2), *tps(0, 1, topic="b")], 7)) == OwnedPartitions()


@pytest.mark.parametrize("cut", range(len(GOOD)))
def test_truncated_user_data_owns_nothing(cut: int) -> None:
    without_generation = len(GOOD) - 4
    expected = (
        OwnedPartitions()
        if cut < without_generation
        else OwnedPartitions(decode_owned(GOOD).partitions)
    )
    assert decode_owned(GOOD[:cut]) == expected


def resolve(counts: dict[str, int], **claims_by_member: tuple[Any, int]) -> PreviousAssignment:
    members = [
        MemberSubscription(name, ("a",), owned=tuple(owned), generation=generation)
        for name, (owned, generation) in claims_by_member.items()
    ]
    return resolve_previous_assignment(
        members, counts, lambda member: OwnedPartitions(member.owned, member.generation)
    )


def test_only_existing_partitions_count() -> None:
    claimed = [*tps(0, 1, 2, -1), *tps(0, topic="gone"), *tps(0)]
    found = resolve({"a": 2}, one=(claimed, 3))
    assert found.owned == {"one": tps(0, 1)}
    assert not found.disputed


def test_the_newest_generation_owns() -> None:
    found = resolve({"a": 4}, old=(tps(0, 1, 2), 3), new=(tps(1), 4), older=(tps(2, 3), 2))
    assert found.owned == {"old": tps(0, 2), "new": tps(1), "older": tps(3)}
    assert not found.disputed
    assert found.previous_owners == dict(
        zip(tps(0, 1, 2, 3), ["old", "old", "old", "older"], strict=True)
    )


def test_a_partition_claimed_twice_in_one_generation_has_no_owner() -> None:
    found = resolve({"a": 3}, one=(tps(0, 1), 3), two=(tps(1, 2), 3), three=(tps(1), 2))
    assert found.owned == {"one": tps(0), "two": tps(2), "three": []}
    assert found.disputed == {TopicPartition("a", 1)}


def test_a_dispute_in_an_old_generation_is_ignored() -> None:
    found = resolve({"a": 1}, one=(tps(0), 3), two=(tps(0), 3), three=(tps(0), 4))
    assert found.owned == {"one": [], "two": [], "three": tps(0)}
    assert not found.disputed


def test_a_previous_owner_must_still_subscribe() -> None:
    members = [
        MemberSubscription("left", ("b",), owned=(TopicPartition("a", 0),), generation=1),
        MemberSubscription("here", ("a",), generation=2),
    ]
    found = resolve_previous_assignment(
        members, {"a": 1, "b": 1}, lambda member: OwnedPartitions(member.owned, member.generation)
    )
    assert not found.previous_owners


def test_old_claims_are_resolved_in_linear_time() -> None:
    topics = tuple(CountedName(f"topic-{number}") for number in range(500))
    owned = tuple(TopicPartition(CountedName(str(topic)), 0) for topic in topics)
    members = [
        MemberSubscription("old", topics, owned=owned, generation=1),
        MemberSubscription("new", topics, generation=2),
    ]
    CountedName.compared = 0
    claims = resolve_previous_assignment(
        members,
        dict.fromkeys(topics, 1),
        lambda member: OwnedPartitions(member.owned, member.generation),
    )
    assert len(claims.previous_owners) == len(topics)
    assert CountedName.compared < 20 * len(topics)
