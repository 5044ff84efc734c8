"""Configuration and counters of the accumulator."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiokafkawire.records import Compression
from aiokafkawire.runtime.durations import Durations

__all__ = ("AccumulatorConfig", "ProducerTotals", "QueueConfig")


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """The options of a partition's queue; times in seconds."""

    batch_size_bytes: int
    linger_s: float
    delivery_timeout_s: float
    max_in_flight: int
    retries: int


@dataclass(frozen=True, slots=True)
class AccumulatorConfig:
    """The options of the accumulator; times in seconds."""

    queue: QueueConfig
    buffer_memory_bytes: int
    compression: Compression
    compression_level: int | None
    adaptive: bool = True
    availability_timeout_s: float = 0.0
    transactional: bool = False


@dataclass(slots=True)
class ProducerTotals:
    """Counters since the start of the producer."""

    records_delivered: int = 0
    records_failed: int = 0
    batches_sent: int = 0
    batches_resent: int = 0
    batches_split: int = 0
    batch_bytes_sent: int = 0
    queue_time: Durations = field(default_factory=Durations, compare=False)
