"""Requests to all nodes of a cluster."""

from __future__ import annotations

from typing import TypeVar

import anyio

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import ToNode, not_ready_code
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import NodeId
from aiokafkawire.wire import APIS, ApiKey, Request, Response, error_for

__all__ = ("request_all_nodes",)

R = TypeVar("R", bound=Response)


async def request_all_nodes(
    cluster: Cluster, message: Request[R] | VersionedRequest[R], *, deadline: float
) -> dict[NodeId, R | KafkaError]:
    """Send a request to all nodes concurrently; return the response or error of each.

    A node whose coordinator is not ready yet is retried until the deadline.

    Raises:
        NoBrokerAvailable: No node is known at the deadline.
    """
    results: dict[NodeId, R | KafkaError] = {}

    async def send(node_id: NodeId) -> None:
        attempt = 0
        try:
            while True:
                attempt += 1
                response, broker = await cluster.request_with_broker(
                    message, to=ToNode(node_id), deadline=deadline
                )
                code = not_ready_code(response)
                if code is None:
                    results[node_id] = response
                    return
                api = APIS[ApiKey(message.api_key)].name
                error = error_for(code, api=api, broker=broker, attempt=attempt)
                await cluster.retry_backoff.wait_or_raise(attempt, deadline, error)
        except KafkaError as error:
            results[node_id] = error

    await cluster.wait_nodes(deadline)
    nodes = sorted(cluster.metadata.nodes)
    async with anyio.create_task_group() as group:
        for node_id in nodes:
            group.start_soon(send, node_id)
    return {node_id: results[node_id] for node_id in nodes}
