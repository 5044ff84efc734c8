"""Context of a request: shared state, node and connection."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from aiokafkawire.broker.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.authentication import CredentialStore, SaslAuthenticator
from aiokafkawire.broker.authorizer import Authorizer
from aiokafkawire.broker.callbacks import Callbacks
from aiokafkawire.broker.client_log import ClientLog
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.coordinator_loading import CoordinatorLoader
from aiokafkawire.broker.features import SHARE_VERSION, TRANSACTION_VERSION
from aiokafkawire.broker.fetch_session_cache import FetchSessionCache
from aiokafkawire.broker.groups.group_coordinator import GroupCoordinator
from aiokafkawire.broker.loggers import BrokerLoggers
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.quotas.controller_mutations import MutationQuota
from aiokafkawire.broker.quotas.manager import ClientQuotaManager
from aiokafkawire.broker.releases import NODE_CLIENT_ID, Release
from aiokafkawire.broker.replication import ReplicaManager, Replication
from aiokafkawire.broker.share.share_partition_manager import SharePartitionManager
from aiokafkawire.broker.telemetry import ClientAttributes, ClientTelemetry
from aiokafkawire.broker.topics import Partition, Topic, is_internal_topic
from aiokafkawire.broker.transactions import TransactionCoordinator
from aiokafkawire.runtime import Address, Clock, Session
from aiokafkawire.wire import ErrorCode

__all__ = (
    "ANONYMOUS",
    "BrokerState",
    "ClientConnection",
    "Disconnect",
    "RequestContext",
    "require_replica_manager",
)

ANONYMOUS = "User:ANONYMOUS"
"""Principal of a client that did not authenticate."""


class Disconnect(Exception):
    """Raised by a handler to close the connection instead of responding."""


@dataclass(slots=True, eq=False)
class ClientConnection:
    """Client end of a connection, with the software that its ApiVersions request named.

    `listener` is the name of the listener that accepted it, `authenticator` is None on a listener
    without SASL.
    """

    host: str
    listener: str = ""
    port: int = 0
    software_name: str = ""
    software_version: str = ""
    principal: str = ANONYMOUS
    authenticator: SaslAuthenticator | None = None
    is_closed: bool = False
    on_close: Callbacks = field(default_factory=Callbacks)

    def mark_closed(self) -> None:
        """Mark the connection as closed and notify requests that still wait."""
        self.is_closed = True
        self.on_close.notify()


@dataclass(slots=True, eq=False)
class BrokerState(Session):
    """State that all nodes and handlers share.

    `addresses` are the advertised addresses of the first listener, `listener_addresses` those of
    each listener, `releases` the release of each node, and `credentials` the users of SASL. Without
    `replication` all nodes have the same partitions. Without `authorizer` everyone may do
    everything.
    """

    options: BrokerConfig
    clock: Clock
    cluster: ClusterState
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    coordinator_loader: CoordinatorLoader
    share_partitions: SharePartitionManager
    releases: dict[int, Release]
    credentials: CredentialStore
    rng: random.Random
    addresses: dict[int, Address] = field(default_factory=dict)
    listener_addresses: dict[str, dict[int, Address]] = field(default_factory=dict)
    fetch_sessions: dict[int, FetchSessionCache] = field(default_factory=dict)
    quota_managers: dict[int, ClientQuotaManager] = field(default_factory=dict)
    replication: Replication | None = None
    authorizer: Authorizer | None = None
    loggers: BrokerLoggers = field(default_factory=BrokerLoggers)
    client_log: ClientLog = field(init=False)
    telemetry: ClientTelemetry = field(init=False)

    def __post_init__(self) -> None:
        self.client_log = ClientLog(self.clock.now)
        self.telemetry = ClientTelemetry(self.cluster.dynamic_configs, self.rng)

    def quota_manager(self, node_id: int) -> ClientQuotaManager:
        """Return the rates of a node's clients, or of the controller's with `CONTROLLER`."""
        if node_id not in self.quota_managers:
            self.quota_managers[node_id] = ClientQuotaManager(self.cluster.metadata.quotas)
        return self.quota_managers[node_id]

    @property
    def oldest_release(self) -> Release:
        """The oldest release among the nodes, which limits the finalized features."""
        return min(self.releases.values(), key=lambda release: release.number)

    @property
    def transaction_version(self) -> int:
        """Finalized level of the feature transaction.version."""
        return self.finalized_features.get(TRANSACTION_VERSION, 0)

    @property
    def share_version(self) -> int:
        """Finalized level of the feature share.version."""
        return self.finalized_features.get(SHARE_VERSION, 0)

    @property
    def finalized_features(self) -> Mapping[str, int]:
        """Finalized levels of features; level 0 is left out."""
        return self.cluster.metadata.features.finalized(self.oldest_release)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Node, version and connection of one request."""

    state: BrokerState
    node_id: int
    version: int
    client_id: str
    connection: ClientConnection
    mutation_quota: MutationQuota | None = None

    @property
    def principal(self) -> str:
        """Authenticated user of the connection, such as `User:alice`."""
        return self.connection.principal

    @property
    def user(self) -> str:
        """Name of the principal without its type, as in quotas."""
        return self.principal.partition(":")[2]

    @property
    def client_attributes(self) -> ClientAttributes:
        """Attributes of the client that client metrics subscriptions match."""
        connection = self.connection
        return ClientAttributes(
            self.client_id,
            connection.software_name,
            connection.software_version,
            connection.host,
            connection.port,
        )

    @property
    def quota_manager(self) -> ClientQuotaManager:
        """Rates of the node's clients."""
        return self.state.quota_manager(self.node_id)

    @property
    def addresses(self) -> Mapping[int, Address]:
        """Advertised address of each node on the listener of the connection."""
        state = self.state
        return state.listener_addresses.get(self.connection.listener, state.addresses)

    @property
    def cluster(self) -> ClusterState:
        return self.state.cluster

    @property
    def release(self) -> Release:
        """Release of the node."""
        return self.state.releases[self.node_id]

    @property
    def replica_manager(self) -> ReplicaManager | None:
        """Replica manager of the node, None without `replicate`."""
        replication = self.state.replication
        return None if replication is None else replication.managers[self.node_id]

    @property
    def is_from_broker(self) -> bool:
        """Return True if another node sent the request."""
        return self.replica_manager is not None and self.client_id.startswith(NODE_CLIENT_ID)

    def is_authorized(
        self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> bool:
        """Return True if the principal may perform the operation on the resource.

        The nodes themselves may do everything, like super users of Kafka.
        """
        authorizer = self.state.authorizer
        return (
            authorizer is None
            or (self.is_from_broker and self.principal == ANONYMOUS)
            or authorizer.authorize(
                self.principal, self.connection.host, operation, resource_type, name
            )
        )

    def authorize(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
        message: str | None = None,
    ) -> None:
        """Raise `ApiError` unless the principal may perform the operation on the resource."""
        if not self.is_authorized(operation, resource_type, name):
            raise ApiError(ErrorCode[f"{resource_type.name}_AUTHORIZATION_FAILED"], message)

    def authorize_topic_creation(self, name: str, message: str | None = None) -> None:
        """Raise `ApiError` unless the principal may create the topic, or any topic."""
        if not self.is_authorized(AclOperation.CREATE, ResourceType.CLUSTER):
            self.authorize(AclOperation.CREATE, ResourceType.TOPIC, name, message)

    def is_authorized_by_resource_type(
        self, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return True if the principal may perform the operation on any resource of the type."""
        authorizer = self.state.authorizer
        return authorizer is None or authorizer.authorize_by_resource_type(
            self.principal, self.connection.host, operation, resource_type
        )

    def authorized_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the principal may perform, one bit per `AclOperation`."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.is_authorized(operation, resource_type, name)
        )

    def authorized_topic(
        self, name: str, topic_id: UUID, operation: AclOperation, *, by_id: bool
    ) -> Topic:
        """Return the topic of a request.

        Without permission for the name, an unknown topic and a forbidden one look alike.

        Raises:
            ApiError: The topic does not exist, or the principal may not perform the operation.
        """
        if by_id:
            topic = self.cluster.topic_by_id(topic_id)
            self.authorize(operation, ResourceType.TOPIC, topic.name)
            return topic
        self.authorize(operation, ResourceType.TOPIC, name)
        return self.cluster.topic(name)

    def topic_config(self, topic: Topic, name: str) -> str:
        """Return the value of a config that applies to a topic on this node."""
        return self.cluster.topic_config(topic, name, self.node_id)

    @property
    def accepts_controller_requests(self) -> bool:
        """Return True if the node is the controller or forwards to it."""
        return self.release.forwards_to_controller or self.node_id == self.cluster.controller_id

    def check_leader(self, partition: Partition) -> None:
        """Raise `ApiError` unless the node leads the partition."""
        if self.node_id not in partition.replicas and not self.release.distinguishes_followers:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition.check_leader(self.node_id)

    def check_coordinator(self, key: str) -> None:
        """Raise `ApiError` unless the node coordinates the key and has loaded it."""
        if self.cluster.coordinator(key) != self.node_id:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if self.state.coordinator_loader.is_loading(key):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def wait_for_metadata(self, timeout_ms: int) -> None:
        """With `replicate`, wait until the node has the controller's latest metadata."""
        if self.state.replication is not None:
            await self.state.replication.wait_until_node_is_up_to_date(
                self.node_id, max(timeout_ms, 0) / 1000
            )

    def check_replica(self, partition: Partition) -> None:
        """Raise `ApiError` unless the node has a replica."""
        if self.node_id not in partition.replicas:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if self.release.distinguishes_followers
                else ErrorCode.REPLICA_NOT_AVAILABLE
            )

    def partition(self, topic: Topic, index: int, *, on_this_node: bool = False) -> Partition:
        """Return the node's view of a partition.

        Args:
            topic: The topic.
            index: Index of the partition.
            on_this_node: Requires a replica on this node, whichever node leads.

        Raises:
            ApiError: The partition does not exist, or not on this node.
        """
        replicas = self.replica_manager
        if replicas is None or is_internal_topic(topic.name):
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
    """Return the replica manager, for APIs that exist only with `replicate`."""
    assert context.replica_manager is not None, "this API needs replicate=True"
    return context.replica_manager
