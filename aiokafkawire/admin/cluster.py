"""Operations on the cluster."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.response_values import unless_negative
from aiokafkawire.admin.types.acl_operation import authorized_operations
from aiokafkawire.admin.types.cluster import ClusterDescription, Node
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import UnsupportedVersion
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from aiokafkawire.wire.messages.metadata import MetadataRequest, MetadataResponse

__all__ = ("ClusterOperations",)

FIRST_WITH_ENDPOINT_TYPE = 1
FIRST_WITH_FENCED_BROKERS = 2
BROKERS, CONTROLLERS = 1, 2
"""Endpoint types of DescribeCluster (KIP-919)."""

FIRST_WITH_AUTHORIZED_OPERATIONS, LAST_WITH_AUTHORIZED_OPERATIONS = 8, 10
"""Metadata versions with the authorized operations on the cluster."""


class ClusterOperations(Operations):
    """Operations on the cluster."""

    async def describe_cluster(
        self,
        *,
        include_authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
        timeout_ms: int | None = None,
    ) -> ClusterDescription:
        """Describe the cluster: its id, controller and brokers.

        Uses Metadata before Kafka 2.8. With `bootstrap_controllers`, the nodes are the controllers.

        Args:
            include_authorized_operations: Ask for the operations that the principal may perform
                on the cluster (Kafka 2.3+).
            include_fenced_brokers: Include brokers that are registered, but not alive (Kafka 4.0+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The id of the cluster, its controller and nodes.

        Raises:
            UnsupportedVersion: The brokers do not support what is asked for.
            KafkaError: No broker could answer.
        """
        requester = self._requester(timeout_ms)

        def build(version: int) -> DescribeClusterRequest:
            return DescribeClusterRequest(
                include_cluster_authorized_operations=include_authorized_operations,
                endpoint_type=CONTROLLERS if requester.uses_controllers else BROKERS,
                include_fenced_brokers=include_fenced_brokers,
            )

        request: VersionedRequest[DescribeClusterResponse] = VersionedRequest(
            ApiKey.DESCRIBE_CLUSTER, build
        )
        try:
            response = await requester.request(
                request,
                min_version=max(
                    FIRST_WITH_FENCED_BROKERS * include_fenced_brokers,
                    FIRST_WITH_ENDPOINT_TYPE * requester.uses_controllers,
                ),
            )
        except UnsupportedVersion:
            if include_fenced_brokers or requester.uses_controllers:
                raise
            return await _describe_by_metadata(requester, include_authorized_operations)
        operations = authorized_operations(response.cluster_authorized_operations)
        nodes = (
            Node(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
            for broker in response.brokers
        )
        return ClusterDescription(
            response.cluster_id,
            unless_negative(response.controller_id),
            _by_id(nodes),
            operations if include_authorized_operations else None,
        )


async def _describe_by_metadata(
    requester: Requester, include_authorized_operations: bool
) -> ClusterDescription:
    def build(version: int) -> MetadataRequest:
        if include_authorized_operations:
            return MetadataRequest(topics=[], include_cluster_authorized_operations=True)
        return MetadataRequest(topics=[])

    request: VersionedRequest[MetadataResponse] = VersionedRequest(ApiKey.METADATA, build)
    if include_authorized_operations:
        response = await requester.request(
            request,
            min_version=FIRST_WITH_AUTHORIZED_OPERATIONS,
            max_version=LAST_WITH_AUTHORIZED_OPERATIONS,
        )
        operations = authorized_operations(response.cluster_authorized_operations)
    else:
        response, operations = await requester.request(request), None
    nodes = (
        Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers
    )
    return ClusterDescription(
        response.cluster_id,
        unless_negative(response.controller_id),
        _by_id(nodes),
        operations,
    )


def _by_id(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return nodes in order of their ids; of several with one id, the last."""
    found = {node.node_id: node for node in nodes}
    return tuple(found[node_id] for node_id in sorted(found))
