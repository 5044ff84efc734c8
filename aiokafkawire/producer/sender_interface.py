"""What sends to the brokers, as the accumulator sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.topic_queues import TopicQueues
from aiokafkawire.types import NodeId

__all__ = ("SendBatch", "SenderInterface")

SendBatch = Callable[[Batch, float], None]
"""Sends a batch, and is told the time."""


class SenderInterface(Protocol):
    """What sends to the brokers."""

    def wake(self, node: NodeId | None, at: float) -> None:
        """There may be something for a broker from a time on; None: a leader is missing."""
        ...

    def end_linger(self, node: NodeId) -> None:
        """A broker's batches do not wait for more records any more; they may go in this call."""
        ...

    def batch_ready(self, node: NodeId) -> None:
        """There is a batch for a broker that waits for no more records; it may go in this call, if
        nothing else is under way there."""
        ...

    def immediate_sender(self, node: NodeId, topic: TopicQueues, now: float) -> SendBatch | None:
        """What sends a batch to a broker at once, if nothing is in the way of one of this topic:
        else None, and it is to be offered."""
        ...
