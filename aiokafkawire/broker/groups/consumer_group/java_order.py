"""Iteration order of Java's hash maps, on which Kafka's uniform assignor depends."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

__all__ = ("hash_order", "partition_order", "text_hash", "timeline_order", "topic_hash")

K = TypeVar("K")

MASK = 0xFFFFFFFF
SMALLEST_TABLE = 16
SMALLEST_TIMELINE_TABLE = 2
FIBONACCI = -7046029254386353131
"""Factor of Knuth's multiplicative hashing, in 64 bits."""


@functools.lru_cache(maxsize=20_000)
def text_hash(text: str) -> int:
    """Return `String.hashCode` as an unsigned number."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & MASK
    return value


def topic_hash(topic_id: UUID) -> int:
    """Return `Uuid.hashCode` as an unsigned number."""
    value = (topic_id.int >> 64) ^ (topic_id.int & (2**64 - 1))
    return (value >> 32) ^ (value & MASK)


@functools.lru_cache(maxsize=20_000)
def partition_order(partitions: tuple[int, ...]) -> tuple[int, ...]:
    """Return partitions in the order in which a `HashSet` of them iterates."""
    return tuple(hash_order(sorted(partitions), lambda partition: partition))


def timeline_order(keys: Iterable[str], most: int) -> list[str]:
    """Return keys in the order in which Kafka's `TimelineHashMap` iterates.

    It returns the keys of one slot from the last to the first.

    Args:
        keys: Keys in the order in which they were added.
        most: Largest number of keys that the map had; it never shrinks.
    """
    slots = SMALLEST_TIMELINE_TABLE
    while 3 * most > 4 * slots:
        slots *= 2
    shift = 65 - slots.bit_length()

    def slot(key: str) -> int:
        value = text_hash(key)
        signed = value - (1 << 32) if value >> 31 else value
        return ((signed * FIBONACCI) & (2**64 - 1)) >> shift

    found = list(keys)
    found.reverse()
    return sorted(found, key=slot)


def hash_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """Return keys in the order in which a `HashMap` that grew to hold them iterates.

    Keys of one bucket keep their order.
    """
    found = list(keys)
    size = SMALLEST_TABLE
    while 4 * len(found) > 3 * size:
        size *= 2

    def bucket(key: K) -> int:
        value = hash_of(key)
        return (value ^ (value >> 16)) & (size - 1)

    return sorted(found, key=bucket)
