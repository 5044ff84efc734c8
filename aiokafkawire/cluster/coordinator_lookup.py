"""Coordinators of many groups or transactional ids at once."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.coordinators import find_coordinators_request
from aiokafkawire.cluster.routing import ToAnyNode, ToCoordinator
from aiokafkawire.errors import KafkaError, ProtocolError, UnsupportedVersion
from aiokafkawire.types import NodeId
from aiokafkawire.wire import ErrorCode, error_for
from aiokafkawire.wire.messages.find_coordinator import Coordinator

__all__ = ("MAX_KEYS_PER_REQUEST", "find_coordinators")

MAX_KEYS_PER_REQUEST = 500
"""Keys of one FindCoordinator request."""

MAX_PARALLEL_LOOKUPS = 32
"""Requests in flight for brokers that find one coordinator per request (before Kafka 3.0)."""


async def find_coordinators(
    cluster: Cluster, routes: Sequence[ToCoordinator], *, deadline: float
) -> dict[ToCoordinator, NodeId | KafkaError]:
    """Find coordinators, cached or by as few requests as the brokers support.

    An error that is retriable is returned too: this makes one attempt.

    Raises:
        KafkaError: No broker could answer before the deadline.
    """
    found: dict[ToCoordinator, NodeId | KafkaError] = {}
    unknown: list[ToCoordinator] = []
    for route in dict.fromkeys(routes):
        node_id = cluster.coordinators.known.get(route)
        if node_id is not None and node_id in cluster.metadata.nodes:
            found[route] = node_id
        else:
            unknown.append(route)
    for start in range(0, len(unknown), MAX_KEYS_PER_REQUEST):
        some = unknown[start : start + MAX_KEYS_PER_REQUEST]
        try:
            found.update(await _find_in_one_request(cluster, some, deadline))
        except UnsupportedVersion:
            found.update(await _find_one_by_one(cluster, some, deadline))
    return found


async def _find_in_one_request(
    cluster: Cluster, routes: Sequence[ToCoordinator], deadline: float
) -> dict[ToCoordinator, NodeId | KafkaError]:
    request, min_version = find_coordinators_request(routes)
    response, broker = await cluster.request_with_broker(
        request, to=ToAnyNode(), deadline=deadline, min_version=min_version
    )
    entries = {entry.key: entry for entry in response.coordinators}
    coordinators = [
        (entry.node_id, entry.host, entry.port)
        for entry in response.coordinators
        if entry.error_code == ErrorCode.NONE
    ]
    for node_id, host, port in dict.fromkeys(coordinators):
        cluster.add_node(node_id, host, port)
    return {route: _read_entry(cluster, route, entries.get(route.key), broker) for route in routes}


def _read_entry(
    cluster: Cluster, route: ToCoordinator, entry: Coordinator | None, broker: str
) -> NodeId | KafkaError:
    """Return the coordinator in an entry of a response, or its error; cache the coordinator."""
    if entry is None:
        return ProtocolError(
            f"the FindCoordinator response lacks an entry for {route.key!r}", broker=broker
        )
    code, reason = entry.error_code, entry.error_message
    if code == ErrorCode.NONE:
        if entry.node_id in cluster.metadata.nodes:
            cluster.coordinators.put(route, entry.node_id)
            return entry.node_id
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        reason = f"its address is invalid: broker {entry.node_id} at {entry.host!r}"
    error = error_for(code, api="FindCoordinator", broker=broker, **route.context)
    if reason:
        error.reason += f" ({reason})"
    return error


async def _find_one_by_one(
    cluster: Cluster, routes: Sequence[ToCoordinator], deadline: float
) -> dict[ToCoordinator, NodeId | KafkaError]:
    found: dict[ToCoordinator, NodeId | KafkaError] = {}
    limiter = anyio.CapacityLimiter(MAX_PARALLEL_LOOKUPS)

    async def find(route: ToCoordinator) -> None:
        async with limiter:
            try:
                found[route] = await cluster.find_coordinator(
                    route.key, route.type, deadline=deadline
                )
            except KafkaError as error:
                found[route] = error

    async with anyio.create_task_group() as group:
        for route in routes:
            group.start_soon(find, route)
    return found
