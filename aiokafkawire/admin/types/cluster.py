"""Arguments and results of the operations on the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafkawire.admin.types.acl_operation import AclOperation
from aiokafkawire.types import NodeId

__all__ = ("ClusterDescription", "Node")


@dataclass(frozen=True, slots=True)
class Node:
    """A broker or controller. A fenced broker is registered, but not alive."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Nodes of a cluster.

    Attributes:
        cluster_id: Id of the cluster; None before Kafka 0.10.1.
        controller_id: Node id of the controller; with KRaft that of any live broker, unless
            controllers were asked. None if there is none.
        nodes: Brokers in order of node ids; controllers if these were asked.
        authorized_operations: Operations of the principal on the cluster; None unless asked for.
    """

    cluster_id: str | None
    controller_id: NodeId | None
    nodes: tuple[Node, ...]
    authorized_operations: frozenset[AclOperation] | None = None
