"""Many brokers: bootstrap, metadata, leaders, coordinators, routing and retry."""

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.metadata import (
    MetadataSnapshot,
    MetadataUpdate,
    NodeInfo,
    PartitionMetadata,
    TopicMetadata,
)
from aiokafkawire.cluster.routing import (
    CoordinatorType,
    Route,
    ToAnyNode,
    ToController,
    ToCoordinator,
    ToNode,
    error_codes,
)

__all__ = (
    "Cluster",
    "CoordinatorType",
    "MetadataSnapshot",
    "MetadataUpdate",
    "NodeInfo",
    "PartitionMetadata",
    "Route",
    "ToAnyNode",
    "ToController",
    "ToCoordinator",
    "ToNode",
    "TopicMetadata",
    "error_codes",
)
