"""The choice of a record's partition."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from aiokafkawire.producer.partitioner import choose_sticky_partition, partition_for_key
from tests.producer.model import Cluster

VECTORS = Path(__file__).parent.parent / "vectors" / "hashes.jsonl.gz"


def murmur_vectors() -> list[dict]:
    with gzip.open(VECTORS, "rt") as lines:
        found = [json.loads(line) for line in lines]
    return [vector for vector in found if vector["kind"] == "murmur2"]


def test_keys_have_the_partitions_of_the_java_producer():
    vectors = murmur_vectors()
    assert vectors
    for vector in vectors:
        key = base64.b64decode(vector["key"])
        for count, partition in vector["partition"].items():
            assert partition_for_key(key, int(count)) == partition, vector["id"]


def test_a_sticky_partition_lasts_until_the_batch_that_fills_it_ends():
    topic = Cluster(partitions=2, batch_size_bytes=100).topic
    queue = topic.sticky_queue = topic.queues[0]
    topic.update_sticky(90)
    topic.update_sticky(9)
    assert topic.sticky_queue is queue
    topic.update_sticky(1)
    assert topic.sticky_queue is None


def draws(queued: list[int | None], times: int = 6_000) -> Counter[int]:
    rng = random.Random(7)
    return Counter(choose_sticky_partition(queued, rng) for _ in range(times))


def test_equal_queues_are_chosen_equally_often():
    counts = draws([2, 2, 2])
    assert all(1_800 < counts[partition] < 2_200 for partition in range(3))


def test_longer_queues_are_chosen_less_often():
    # Weights: 3 - 0, 3 - 1, 3 - 2.
    counts = draws([0, 1, 2])
    assert 2_800 < counts[0] < 3_200
    assert 1_800 < counts[1] < 2_200
    assert 850 < counts[2] < 1_150


def test_partitions_without_a_leader_are_not_chosen():
    assert set(draws([None, 5, None, 0], 500)) == {1, 3}


def test_without_any_leader_all_partitions_are_chosen():
    assert set(draws([None, None], 100)) == {0, 1}


@pytest.mark.parametrize("count", [1, 2, 12, 1000])
def test_every_partition_is_in_range(count: int):
    assert {partition_for_key(b"%d" % n, count) < count for n in range(200)} == {True}
