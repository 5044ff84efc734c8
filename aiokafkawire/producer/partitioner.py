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

__all__ = ("Partitioner", "StickyPartition", "partition_for_key")


def partition_for_key(key: Buffer, partition_count: int) -> int:
    """Return the partition of a key among partitions 0 to `partition_count` - 1."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartition:
    """The current partition of a topic for records without a key.

    Attributes:
        partition: Index of the partition; None until `choose` is called, and again once
            `switch_bytes` were appended.
        produced_bytes: Bytes appended to the partition since `choose`.
        switch_bytes: Bytes after which another partition is chosen.
    """

    __slots__ = ("partition", "produced_bytes", "switch_bytes")

    def __init__(self, switch_bytes: int) -> None:
        self.switch_bytes = switch_bytes
        self.partition: int | None = None
        self.produced_bytes = 0

    def choose(self, queued_batches: Sequence[int | None], rng: random.Random) -> int:
        """Choose the next partition at random, weighted by queue length.

        A partition's weight is the length of the longest queue minus its own length plus 1.
        Without any leader all partitions have the same weight.

        Args:
            queued_batches: Number of waiting batches per partition, None without a leader.
            rng: Source of the random number.
        """
        self.produced_bytes = 0
        led = [(index, size) for index, size in enumerate(queued_batches) if size is not None]
        if not led:
            self.partition = rng.randrange(len(queued_batches))
            return self.partition
        longest = max(size for _, size in led)
        draw = rng.randrange(sum(longest + 1 - size for _, size in led))
        for index, size in led:
            draw -= longest + 1 - size
            if draw < 0:
                self.partition = index
                break
        assert self.partition is not None
        return self.partition

    def add_bytes(self, size_bytes: int, batch_ended: bool) -> None:
        """Count appended bytes. The choice ends with the batch that reaches `switch_bytes`.

        While that batch is open the choice continues, up to twice the size: ending it within a
        batch would leave a small batch behind.
        """
        self.produced_bytes += size_bytes
        if self.produced_bytes >= self.switch_bytes and (
            batch_ended or self.produced_bytes >= 2 * self.switch_bytes
        ):
            self.partition = None


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
