"""Many brokers: bootstrap, metadata, leaders, coordinators, routing and retry."""

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.metadata import (
    MetadataSnapshot,
    NodeInfo,
    PartitionMetadata,
    TopicMetadata,
    Update,
)
from aiokafkawire.cluster.routing import (
    AnyNode,
    Controller,
    Coordinator,
    CoordinatorType,
    Node,
    Route,
    error_codes,
)

__all__ = (
    "AnyNode",
    "Cluster",
    "Controller",
    "Coordinator",
    "CoordinatorType",
    "MetadataSnapshot",
    "Node",
    "NodeInfo",
    "PartitionMetadata",
    "Route",
    "TopicMetadata",
    "Update",
    "error_codes",
)
