"""What a handler is given with its request."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.callbacks import Callbacks
from aiokafkawire.broker.client_log import ClientLog
from aiokafkawire.broker.cluster_state import ClusterState, Partition, Topic
from aiokafkawire.broker.coordinator_loading import CoordinatorLoader
from aiokafkawire.broker.features import TRANSACTION_VERSION, finalized
from aiokafkawire.broker.fetch_session_cache import FetchSessionCache
from aiokafkawire.broker.groups.coordinator import Groups
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.releases import NODE_CLIENT_ID, Release
from aiokafkawire.broker.replication import ReplicaManager, Replication
from aiokafkawire.broker.transactions import Transactions
from aiokafkawire.runtime import Address, Clock, Session
from aiokafkawire.wire import ErrorCode

__all__ = (
    "BrokerState",
    "ClientConnection",
    "Disconnect",
    "RequestContext",
    "require_replica_manager",
)


class Disconnect(Exception):
    """A handler asks for the connection to be closed instead of an answer."""


@dataclass(slots=True, eq=False)
class ClientConnection:
    """The client at the other end of a connection."""

    host: str
    is_closed: bool = False
    on_close: Callbacks = field(default_factory=Callbacks)

    def mark_closed(self) -> None:
        """It will read no answer any more: whoever waits for its sake may stop."""
        self.is_closed = True
        self.on_close.notify()


@dataclass(slots=True, eq=False)
class BrokerState(Session):
    """What all nodes and all handlers share, or have for each node.

    `addresses` are those that clients are told; `releases` as which release each node answers.
    Without `replication` all nodes have the same partitions.
    """

    options: BrokerConfig
    clock: Clock
    cluster: ClusterState
    groups: Groups
    transactions: Transactions
    coordinator_loader: CoordinatorLoader
    releases: dict[int, Release]
    addresses: dict[int, Address] = field(default_factory=dict)
    fetch_sessions: dict[int, FetchSessionCache] = field(default_factory=dict)
    replication: Replication | None = None
    client_log: ClientLog = field(init=False)

    def __post_init__(self) -> None:
        self.client_log = ClientLog(self.clock.now)

    @property
    def oldest_release(self) -> Release:
        """The release whose features all nodes have."""
        return min(self.releases.values(), key=lambda release: release.number)

    @property
    def transaction_version(self) -> int:
        """The level of the cluster's feature transaction.version."""
        return finalized(self.oldest_release).get(TRANSACTION_VERSION, 0)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request: where it came in, and from whom."""

    state: BrokerState
    node_id: int
    version: int
    client_id: str
    connection: ClientConnection

    @property
    def cluster(self) -> ClusterState:
        return self.state.cluster

    @property
    def release(self) -> Release:
        """The release that the node answers as."""
        return self.state.releases[self.node_id]

    @property
    def replicas(self) -> ReplicaManager | None:
        """What the node has for itself, where nodes replicate."""
        replication = self.state.replication
        return None if replication is None else replication.managers[self.node_id]

    @property
    def is_from_broker(self) -> bool:
        """Whether another node asks."""
        return self.replicas is not None and self.client_id.startswith(NODE_CLIENT_ID)

    @property
    def accepts_controller_requests(self) -> bool:
        """Whether the node carries out what is the controller's to do, or passes it on."""
        return self.release.forwards_to_controller or self.node_id == self.cluster.controller_id

    def check_leader(self, partition: Partition) -> None:
        """Refuse unless the node leads."""
        if self.node_id not in partition.replicas and not self.release.distinguishes_followers:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition.check_leader(self.node_id)

    def check_coordinator(self, key: str) -> None:
        """Refuse unless the node coordinates a group or a transactional id, and has loaded it."""
        if self.cluster.coordinator(key) != self.node_id:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if self.state.coordinator_loader.is_loading(key):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def wait_for_metadata(self, timeout_ms: int) -> None:
        """Let the node hear from the controller what was changed, where nodes replicate."""
        if self.state.replication is not None:
            await self.state.replication.told(self.node_id, max(timeout_ms, 0) / 1000)

    def check_replica(self, partition: Partition) -> None:
        """Refuse unless the node has a replica."""
        if self.node_id not in partition.replicas:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if self.release.distinguishes_followers
                else ErrorCode.REPLICA_NOT_AVAILABLE
            )

    def partition(self, topic: Topic, index: int, *, on_this_node: bool = False) -> Partition:
        """A partition as the node has it. Raises `ApiError`.

        `on_this_node`: this very node's replica is asked for, whoever leads.
        """
        replicas = self.replicas
        if replicas is None:
            return self.cluster.partition(topic, index)
        try:
            return replicas.replica(topic.name, index)
        except ApiError as error:
            if self.release.distinguishes_followers and 0 <= index < len(topic.partitions):
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from error
            if on_this_node:
                raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE) from error
            raise


def require_replica_manager(context: RequestContext) -> ReplicaManager:
    """What the node has for itself, for what only nodes that replicate serve."""
    assert context.replicas is not None, "only nodes that replicate serve this"
    return context.replicas
