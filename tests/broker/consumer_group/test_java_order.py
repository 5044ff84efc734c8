"""Iteration order of Java's hash maps."""

from __future__ import annotations

from aiokafkawire.broker.groups.consumer_group.java_order import (
    hash_order,
    partition_order,
    text_hash,
    timeline_order,
    topic_hash,
)
from aiokafkawire.wire.primitives import uuid_from_text
from tests.wire.vectors import lines


def test_orders_equal_java() -> None:
    members = topics = 0
    cases = lines("server-assignors")
    for case in cases:
        listed = [member["memberId"] for member in case["members"]]
        members += hash_order(listed, text_hash) == listed
        ids = [uuid_from_text(topic) for topic in case["topicHashOrder"]]
        topics += hash_order(ids, topic_hash) == ids
    assert members == len(cases) == 340
    # The table of a set that had more topics before is larger.
    assert topics == 328


def test_order_of_a_timeline_map() -> None:
    names = ["alpha", "beta", "gamma", "delta", "m5"]
    listed = timeline_order(names, 5)
    # Three keys are in the first slot, from the last that was added to the first.
    assert listed == ["m5", "gamma", "alpha", "delta", "beta"]
    assert hash_order(listed, text_hash) == ["alpha", "m5", "delta", "gamma", "beta"]


def test_members_of_one_bucket() -> None:
    # They keep the order of the timeline map, as an assignment of Kafka 4.3.0 showed.
    names = ["n1", "n2", "pU_QaPrpSC-TLK22TUu2zg"]
    listed = timeline_order(names, 3)
    assert listed == ["pU_QaPrpSC-TLK22TUu2zg", "n2", "n1"]
    assert hash_order(listed, text_hash) == ["n1", "pU_QaPrpSC-TLK22TUu2zg", "n2"]


def test_hashes_equal_java() -> None:
    assert text_hash("") == 0
    assert text_hash("m1") == 3_428
    assert text_hash("\U0001f600") == 1_772_899
    assert partition_order((17, 16, 1, 0)) == (0, 16, 1, 17)
