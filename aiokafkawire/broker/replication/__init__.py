"""Replication as in Kafka before KRaft: each node has its own logs and metadata.

| Module | Content |
|---|---|
| `controller_context` | state that ZooKeeper would hold: live nodes, controller, leaders |
| `controller` | the commands that each node still needs |
| `controller_commands` | these commands, and their requests in each version |
| `replica_manager` | replicas and metadata of one node |
| `replica` | state machine of one replica: offline, follower, leader |
| `replica_fetcher` | the next request of a follower to a leader |
| `metadata_cache` | metadata that a node returns to clients |
| `replication`, `inter_broker_clients` | tasks and connections |
"""

from aiokafkawire.broker.replication.controller_context import ControllerContext
from aiokafkawire.broker.replication.replica import Replica
from aiokafkawire.broker.replication.replica_manager import ReplicaManager
from aiokafkawire.broker.replication.replication import Replication, ReplicationNode

__all__ = ("ControllerContext", "Replica", "ReplicaManager", "Replication", "ReplicationNode")
