"""Which partition a record goes to.

With a key: murmur2 of the key over all partitions, as the Java producer does, so that both put a
key into the same partition. Without: one partition for as long as it takes to fill a batch, then
another (KIP-480), drawn so that a partition with a long queue is drawn less often (KIP-794).

Plain and synchronous: the queues' lengths and the random numbers are arguments.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from aiokafkawire.records import Buffer, murmur2

__all__ = ("Partitioner", "StickyPartition", "partition_for_key")


def partition_for_key(key: Buffer, partition_count: int) -> int:
    """The partition of a key among `partition_count` partitions (0, 1, … one after the other)."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartition:
    """The partition that a topic's records without a key go to now.

    `partition` is None until `choose` was called. `produced_bytes` counts what went there since.
    """

    __slots__ = ("partition", "produced_bytes", "switch_bytes")

    def __init__(self, switch_bytes: int) -> None:
        self.switch_bytes = switch_bytes
        self.partition: int | None = None
        self.produced_bytes = 0

    def choose(self, queued_batches: Sequence[int | None], rng: random.Random) -> int:
        """Draw the next partition.

        `queued_batches` has each partition's number of batches that wait to be sent, None where
        the partition has no leader. A partition's weight is one more than the longest queue's
        lead over its own; without any leader all weigh the same.
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
        """Count a record. The choice ends with the batch that reaches `switch_bytes`.

        Where the last batch is still open the choice goes on, at most to twice that size: ending
        it in mid-batch would leave a small batch behind.
        """
        self.produced_bytes += size_bytes
        if self.produced_bytes >= self.switch_bytes and (
            batch_ended or self.produced_bytes >= 2 * self.switch_bytes
        ):
            self.partition = None


class Partitioner(Protocol):
    """What may be given as the `partitioner` option: it is asked for each record without an
    explicit partition, with a key or without.

    The partitions come as sorted lists; the available ones are those with a leader, maybe none.
    What it raises comes out of the call that sends; a partition that the topic lacks is an error.
    """

    def __call__(
        self,
        key: Buffer | None,
        all_partitions: Sequence[int],
        available_partitions: Sequence[int],
    ) -> int:
        """The partition of one record."""
        ...
