"""Replication as brokers did it before KRaft: each node has its own logs and its own view.

| Module | Holds |
|---|---|
| `registry` | what ZooKeeper would: the truth about who lives, who controls, who leads what |
| `controller` | the machine that finds what a node has to be told |
| `messages` | what it tells, and how the versions of its requests lay that out |
| `manager` | a node: its replicas, its term of the controller, what it tells clients |
| `replica` | the machine of one replica: offline, follower, leader |
| `fetcher` | the machine that finds what a follower has to ask its leader |
| `metadata_cache` | what a node tells clients |
| `cluster`, `peers` | the tasks and connections of all this |
"""

from aiokafkawire.broker.replication.controller_context import ControllerContext
from aiokafkawire.broker.replication.replica import Replica
from aiokafkawire.broker.replication.replica_manager import ReplicaManager
from aiokafkawire.broker.replication.replication import Replication, ReplicationNode

__all__ = ("ControllerContext", "Replica", "ReplicaManager", "Replication", "ReplicationNode")
