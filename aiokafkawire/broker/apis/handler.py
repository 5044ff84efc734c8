"""Interface of the API modules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import Response
from aiokafkawire.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint

__all__ = ("Handler", "NodeEndpoints")


class Handler(NamedTuple):
    """Functions of an API module.

    `handle` returns the response, or None for no response. `error_response(request, version, code)`
    returns a response with `code` in every field that has one.
    """

    handle: Callable[[RequestContext, Any], Awaitable[Response | None]]
    error_response: Callable[[Any, int, int], Response | None]


class NodeEndpoints:
    """Collects the leader addresses that a response includes (KIP-951)."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._nodes: dict[int, NodeEndpoint] = {}

    def leader(self, leader_id: int, leader_epoch: int) -> LeaderIdAndEpoch:
        """Return the current leader of a partition, and include its address."""
        address = self._context.addresses.get(leader_id)
        if address is not None and leader_id in self._context.cluster.live:
            self._nodes[leader_id] = NodeEndpoint(
                node_id=leader_id,
                host=address.host,
                port=address.port,
                rack=self._context.cluster.racks.get(leader_id),
            )
        return LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)

    @property
    def nodes(self) -> list[NodeEndpoint]:
        return list(self._nodes.values())
