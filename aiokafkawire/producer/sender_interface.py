"""The interface through which the accumulator notifies the sender."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.topic_queues import TopicQueues
from aiokafkawire.types import NodeId

__all__ = ("SendBatch", "SenderInterface")

SendBatch = Callable[[Batch, float], None]
"""Sends one batch; the second argument is the current time on the runtime's clock."""


class SenderInterface(Protocol):
    """Sends batches to brokers; implemented by `Sender`."""

    def wake(self, node: NodeId | None, at: float) -> None:
        """Check a broker's batches at time `at`; node None means that a leader is missing."""
        ...

    def end_linger(self, node: NodeId) -> None:
        """Send a broker's batches without linger, if possible within this call."""
        ...

    def batch_ready(self, node: NodeId) -> None:
        """Send a batch that is ready, within this call if no request is in flight."""
        ...

    def immediate_sender(self, node: NodeId, topic: TopicQueues, now: float) -> SendBatch | None:
        """Return a function that sends a batch of the topic within the call.

        Returns None if a batch would have to wait; report it with `batch_ready` then.
        """
        ...
