"""The choice of a record's partition.

With a key: murmur2 of the key over all partitions, as in the Java producer, so that both choose the
same partition. Without a key: one partition until a batch is full, then another (KIP-480). A
partition with a longer queue is chosen less often (KIP-794).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from aiokafkawire.records import Buffer, murmur2

__all__ = ("Partitioner", "choose_sticky_partition", "partition_for_key")


def partition_for_key(key: Buffer, partition_count: int) -> int:
    """Return the partition of a key among partitions 0 to `partition_count` - 1."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def choose_sticky_partition(queued_batches: Sequence[int | None], rng: random.Random) -> int:
    """Choose a partition for records without a key at random, weighted by queue length.

    A partition's weight is the length of the longest queue minus its own length plus 1. Without any
    leader all partitions have the same weight.

    Args:
        queued_batches: Number of waiting batches per partition, None without a leader.
        rng: Source of the random number.

    Returns:
        The index of the partition.
    """
    led = [(index, size) for index, size in enumerate(queued_batches) if size is not None]
    if not led:
        return rng.randrange(len(queued_batches))
    longest = max(size for _, size in led)
    draw = rng.randrange(sum(longest + 1 - size for _, size in led))
    for index, size in led:
        draw -= longest + 1 - size
        if draw < 0:
            return index
    raise AssertionError("the weights do not add up")


class Partitioner(Protocol):
    """Signature of the `partitioner` option.

    Called for each record without an explicit partition, with or without a key. An exception is
    raised in the call that sends; so is `ValueError` for a partition that does not exist.
    """

    def __call__(
        self,
        key: Buffer | None,
        all_partitions: Sequence[int],
        available_partitions: Sequence[int],
    ) -> int:
        """Return the partition of one record.

        Args:
            key: Key of the record.
            all_partitions: All partition numbers, ascending.
            available_partitions: Partitions with a leader, ascending; may be empty.
        """
        ...
