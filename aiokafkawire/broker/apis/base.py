"""What every API's module gives: how a request is carried out, and how it fails as a whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiokafkawire.broker.call import Call
from aiokafkawire.wire import Response
from aiokafkawire.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint

__all__ = ("Handler", "NodeEndpoints")


class Handler(NamedTuple):
    """`handle` gives None when the request gets no answer.

    `failed(request, version, code)` is the response with `code` in every field that has one.
    """

    handle: Callable[[Call, Any], Awaitable[Response | None]]
    failed: Callable[[Any, int, int], Response | None]


class NodeEndpoints:
    """Collects the addresses of leaders that a response names (KIP-951)."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._nodes: dict[int, NodeEndpoint] = {}

    def leader(self, leader_id: int, leader_epoch: int) -> LeaderIdAndEpoch:
        """The hint for a partition, its leader's address noted."""
        address = self._call.state.addresses.get(leader_id)
        if address is not None and leader_id in self._call.cluster.live:
            self._nodes[leader_id] = NodeEndpoint(
                node_id=leader_id,
                host=address.host,
                port=address.port,
                rack=self._call.cluster.racks.get(leader_id),
            )
        return LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)

    @property
    def nodes(self) -> list[NodeEndpoint]:
        return list(self._nodes.values())
