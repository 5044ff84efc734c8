"""Arguments and results of the admin client's operations."""

from aiokafkawire.admin.types.acl_operation import AclOperation, authorized_operations
from aiokafkawire.admin.types.cluster import ClusterDescription, Node
from aiokafkawire.admin.types.topics import (
    CreatedTopic,
    NewTopic,
    TopicConfigEntry,
    TopicDescription,
    TopicListing,
    TopicPartitionInfo,
)

__all__ = (
    "AclOperation",
    "ClusterDescription",
    "CreatedTopic",
    "NewTopic",
    "Node",
    "TopicConfigEntry",
    "TopicDescription",
    "TopicListing",
    "TopicPartitionInfo",
    "authorized_operations",
)
