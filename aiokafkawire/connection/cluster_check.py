"""The check for misrouted connections (KIP-1242, ApiVersions v5).

The client sends the id of the cluster and node that it expects at an address. Kafka 4.4 and later
refuse the connection with REBOOTSTRAP_REQUIRED if they are another one, for example because the
address was given to another host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiokafkawire.errors import ConnectionFailed
from aiokafkawire.runtime import Address
from aiokafkawire.types import NodeId

__all__ = ("ClusterCheck", "ExpectedNode")


@dataclass(frozen=True, slots=True)
class ExpectedNode:
    """Node that a client expects at an address."""

    cluster_id: str
    node_id: NodeId
    address: Address

    def misrouted_error(self) -> ConnectionFailed:
        """Return the error of a connection that another node or cluster accepted."""
        return ConnectionFailed(
            f"the server is not node {self.node_id} of cluster {self.cluster_id}"
            " (REBOOTSTRAP_REQUIRED)"
        )


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """The check of connections to the nodes of a cluster.

    Attributes:
        cluster_id: Returns the cluster id of the metadata; None if it is unknown.
        on_misrouted: Called when another node or cluster refused a connection.
    """

    cluster_id: Callable[[], str | None]
    on_misrouted: Callable[[ExpectedNode], None]

    def expected(self, node_id: NodeId | None, address: Address) -> ExpectedNode | None:
        """Return what to expect at the address of a node; None if nothing is known."""
        cluster_id = self.cluster_id()
        if cluster_id is None or node_id is None or node_id < 0:
            return None
        return ExpectedNode(cluster_id, node_id, address)
