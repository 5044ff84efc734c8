from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.errors import InvalidOption
from aiokafkawire.spark.offsets import (
    from_nested,
    offsets_from_json,
    offsets_to_json,
    partitions_from_json,
    timestamps_from_json,
    to_nested,
)
from aiokafkawire.types import TopicPartition

TOPICS = st.text("abc._-", min_size=1, max_size=4)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, TOPICS, st.integers(0, 300)), st.integers(-2, 2**63 - 1)
)


def test_the_text_is_that_of_the_jvms_connector():
    offsets = {TopicPartition("b", 0): -1, TopicPartition("a", 10): 5, TopicPartition("a", 2): -2}
    assert offsets_to_json(offsets) == '{"a":{"2":-2,"10":5},"b":{"0":-1}}'


@given(OFFSETS, st.randoms(use_true_random=False))
def test_equal_offsets_are_equal_text_and_come_back(offsets, random):
    shuffled = list(offsets.items())
    random.shuffle(shuffled)
    text = offsets_to_json(dict(shuffled))
    assert text == offsets_to_json(offsets)
    assert offsets_from_json(text, "startingOffsets") == offsets
    assert from_nested(json.loads(json.dumps(to_nested(offsets))), "offsets") == offsets


@pytest.mark.parametrize(
    "text",
    [
        "latests",
        "[]",
        "1",
        '{"a":1}',
        '{"a":[1]}',
        '{"a":{"0":"1"}}',
        '{"a":{"0":1.5}}',
        '{"a":{"0":true}}',
        '{"a":{"x":1}}',
        '{"a":{"-1":1}}',
        '{"a":{"0":-3}}',
    ],
)
def test_what_is_wrong_is_refused_by_name(text):
    with pytest.raises(InvalidOption, match="startingOffsets"):
        offsets_from_json(text, "startingOffsets")


def test_times_are_not_negative():
    assert timestamps_from_json('{"a":{"0":7}}', "x") == {TopicPartition("a", 0): 7}
    with pytest.raises(InvalidOption, match=r"a-0 is negative: -1"):
        timestamps_from_json('{"a":{"0":-1}}', "x")


def test_assigned_partitions_are_in_order_and_single():
    found = partitions_from_json('{"b":[1,0,1],"a":[3]}', "assign")
    assert found == (TopicPartition("a", 3), TopicPartition("b", 0), TopicPartition("b", 1))


@pytest.mark.parametrize("text", ["x", "[]", '{"a":0}', '{"a":["0"]}', '{"a":[-1]}'])
def test_what_names_no_partitions_is_refused(text):
    with pytest.raises(InvalidOption, match="assign"):
        partitions_from_json(text, "assign")
