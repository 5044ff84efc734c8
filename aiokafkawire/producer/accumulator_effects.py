"""The effects of the accumulator, which calls nobody itself."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafkawire.producer.batch_future import BatchFailed
from aiokafkawire.runtime import NEVER
from aiokafkawire.types import NodeId

__all__ = ("AccumulatorEffects",)


class AccumulatorEffects:
    """Effects that `Sender.perform` acts on.

    Attributes:
        wakeups: When to check the batches of a node; node None means that a leader is missing.
        ready: Nodes with a batch to send at once, if no request is in flight.
        any_completed: A batch was completed, and its memory released.
        failure: The first failed batch of a transactional producer; see `take_failure`.
    """

    __slots__ = ("any_completed", "failure", "ready", "wakeups")

    def __init__(self) -> None:
        self.wakeups: dict[NodeId | None, float] = {}
        self.ready: dict[NodeId, None] = {}
        self.any_completed = False
        self.failure: BatchFailed | None = None

    def wake(self, node: NodeId | None, at: float) -> None:
        """Check the batches of a node at a time, or earlier."""
        if at < self.wakeups.get(node, NEVER):
            self.wakeups[node] = at

    def add_ready(self, nodes: Iterable[NodeId | None]) -> None:
        """Check at once the nodes that have no request in flight."""
        self.ready.update(dict.fromkeys(node for node in nodes if node is not None))

    def take_failure(self) -> BatchFailed | None:
        """Return the first failure since the last call."""
        failure, self.failure = self.failure, None
        return failure
