"""Choice of the broker to fetch from in the mode `record_limit`."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafkawire.types import NodeId

from .node import ShareNode

__all__ = ("NodeRotation",)


class NodeRotation:
    """The brokers that are fetched from, one at a time.

    One that did not respond is left out for as long as that has taken, so that the others have at
    least half of the time.
    """

    def __init__(self) -> None:
        self._index = 0
        self._left_out_until: dict[NodeId, float] = {}

    def choose(self, nodes: Sequence[ShareNode], now: float) -> ShareNode:
        """Return the broker to fetch from now."""
        responsive = [
            node for node in nodes if self._left_out_until.get(node.node_id, now) <= now
        ] or nodes
        return responsive[self._index % len(responsive)]

    def advance(self) -> None:
        """Choose the next broker from now on."""
        self._index += 1

    def leave_out(self, node: ShareNode, until: float) -> None:
        """Choose another broker until a time, if there is one."""
        self._left_out_until[node.node_id] = until
        self.advance()
