"""Client of a whole cluster: bootstrap, metadata, and requests routed to the right broker."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, TypeVar

from aiokafkawire.cluster.bootstrap import with_previous_reason
from aiokafkawire.cluster.broker_clients import BrokerClients
from aiokafkawire.cluster.coordinators import (
    CoordinatorCache,
    find_coordinator_request,
    read_find_coordinator,
)
from aiokafkawire.cluster.metadata import MetadataSnapshot, MetadataUpdate, TopicMetadata
from aiokafkawire.cluster.metadata_updater import MetadataUpdater
from aiokafkawire.cluster.metadata_waits import wait_controller, wait_nodes, wait_topic
from aiokafkawire.cluster.ping import Pinger
from aiokafkawire.cluster.retry_backoff import RetryBackoff
from aiokafkawire.cluster.routing import (
    CoordinatorType,
    Route,
    ToAnyNode,
    ToController,
    ToCoordinator,
    ToNode,
    least_loaded_node,
    routing_error_code,
)
from aiokafkawire.config import ClientConfig
from aiokafkawire.connection import (
    CONNECTION_KINDS,
    Backoff,
    BrokerClient,
    ConnectionKind,
    Handshake,
    NodeApiVersions,
    VersionedRequest,
    make_handshake,
    parse_api_version,
)
from aiokafkawire.errors import (
    ConnectionFailed,
    ConnectionLost,
    KafkaError,
    NoBrokerAvailable,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.runtime import Future, Runtime, Supervisor
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, Request, Response, error_for

__all__ = ("Cluster",)

_ROUTE_FAILURES = (ConnectionFailed, ConnectionLost, RequestTimedOut)
"""Errors after which the broker of a route is looked up again."""

R = TypeVar("R", bound=Response)


class Cluster:
    """Client of one Kafka cluster.

    All deadlines are absolute seconds of `runtime.clock`. Tasks run in `supervisor`, which must run
    from `start` on.
    """

    def __init__(
        self,
        config: ClientConfig,
        runtime: Runtime,
        supervisor: Supervisor,
        *,
        handshake: Handshake | None = None,
    ) -> None:
        # Raise for a bad api_version here, not later in a task that connects.
        parse_api_version(config.api_version)
        self.config = config
        self._runtime = runtime
        self._supervisor = supervisor
        self._handshake = handshake or make_handshake(config, runtime, supervisor)
        self.broker_clients = BrokerClients(config, runtime, supervisor, self._handshake)
        self._metadata_updater = MetadataUpdater(config, runtime, self.broker_clients)
        self.pinger = Pinger(
            config, runtime, supervisor, self.broker_clients, self._metadata_updater
        )
        self.coordinators = CoordinatorCache(supervisor.fields)
        self.retry_backoff = RetryBackoff(
            Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms), runtime
        )

    async def start(self, deadline: float) -> None:
        """Fetch the first metadata from the bootstrap addresses.

        Without `connect_on_start`, return at once and connect in the background.

        Raises:
            NoBrokerAvailable: No bootstrap address returned metadata before the deadline.
            AuthenticationFailed: A broker rejected the credentials.
            InvalidOption: A file of the options cannot be used.
        """
        await self._handshake.prepare()
        if self.config.connect_on_start:
            await self._metadata_updater.start(self._supervisor, deadline)
        else:
            self._metadata_updater.start_in_background(self._supervisor)

    async def aclose(self) -> None:
        """Close all connections; pending requests fail with `ClientClosed`."""
        await self.broker_clients.aclose()

    # --- metadata ---

    @property
    def metadata(self) -> MetadataSnapshot:
        """Newest snapshot of the metadata."""
        return self._metadata_updater.metadata

    @property
    def metadata_source(self) -> str | None:
        """Broker that returned `metadata`, as `3 at host:9092` or an address without a node id."""
        return self._metadata_updater.source

    def add_topics(self, topics: Iterable[str]) -> None:
        """Include topics in metadata refreshes.

        References are counted: each call needs a matching `remove_topics`.
        """
        new_topics = self._metadata_updater.topic_references.add(topics)
        if new_topics:
            self._metadata_updater.request_update(new_topics, urgent=True)

    def remove_topics(self, topics: Iterable[str]) -> None:
        """Undo one `add_topics` of these topics."""
        self._metadata_updater.topic_references.remove(topics)

    @property
    def all_topics(self) -> bool:
        """True if refreshes include all topics, as for subscriptions by pattern; settable."""
        return self._metadata_updater.topic_references.all_topics

    @all_topics.setter
    def all_topics(self, wanted: bool) -> None:
        if self._metadata_updater.topic_references.set_all_topics(wanted):
            self._metadata_updater.request_update(urgent=True)

    def request_update(self) -> None:
        """Request a metadata refresh, which runs in the background after the retry backoff."""
        self._metadata_updater.request_update()

    def metrics(self) -> dict[str, int | float]:
        """Return counters of the connections since the start; names end in their unit.

        Gauges: `connections_open`. Totals: `connections_made_total`, `connections_lost_total`
        (not closed by this client), `requests_total`, `responses_total`, `bytes_sent_total`,
        `bytes_received_total`, `throttle_ms_total` (throttle time that brokers requested).
        `request_latency_ms_avg` and `request_latency_ms_max` include requests that a broker delays
        on purpose, such as long-polling fetches.
        """
        return self.broker_clients.metrics_snapshot()

    async def wait_update(self, after_version: int, deadline: float) -> bool:
        """Wait until `metadata.version` exceeds `after_version`; return False at the deadline."""
        return await self._metadata_updater.wait_update(after_version, deadline)

    def add_metadata_listener(self, callback: Callable[[MetadataUpdate], None]) -> None:
        """Call `callback` synchronously after each metadata change."""
        self._metadata_updater.add_listener(callback)

    async def topic_metadata(
        self, name: str, deadline: float, *, keep: bool = False
    ) -> TopicMetadata:
        """Return the metadata of a topic; wait until the topic exists.

        Args:
            name: The topic.
            deadline: End of the wait.
            keep: Keep the metadata fresh afterwards, as `add_topics` does.

        Raises:
            UnknownTopic: The topic does not exist at the deadline; sooner without
                `allow_auto_create_topics`.
            BrokerError: The name is invalid or not authorized.
            AuthenticationFailed: A broker rejected the credentials.
            RequestTimedOut: No broker returned metadata before the deadline.
        """
        names, topic_references = (name,), self._metadata_updater.topic_references
        new_topics = topic_references.add(names)
        try:
            topic = self.metadata.topics.get(name)
            if topic is None or not topic.partitions:
                self._metadata_updater.request_update(names, urgent=bool(new_topics))
                topic = await wait_topic(
                    self._metadata_updater,
                    name,
                    deadline,
                    auto_create=self.config.allow_auto_create_topics,
                )
        except BaseException:
            topic_references.remove(names)
            raise
        if not keep:
            topic_references.remove(names)
        return topic

    def update_leader(
        self,
        tp: TopicPartition,
        node_id: NodeId,
        leader_epoch: int,
        endpoint: tuple[str, int] | None = None,
    ) -> None:
        """Apply the new leader that a broker returned with an error (KIP-951)."""
        if endpoint is not None:
            self.add_node(node_id, *endpoint)
        self._metadata_updater.apply(self.metadata.with_leader(tp, node_id, leader_epoch))

    # --- nodes ---

    def add_node(self, node_id: NodeId, host: str, port: int) -> None:
        """Apply the address of a node that a response contained."""
        self._metadata_updater.apply(self.metadata.with_node(node_id, host, port))

    async def wait_nodes(self, deadline: float) -> None:
        """Wait for the first metadata, if the client started without `connect_on_start`.

        Raises:
            NoBrokerAvailable: No broker could be reached before the deadline.
        """
        await wait_nodes(self._metadata_updater, deadline)

    def broker_client(self, node_id: NodeId) -> BrokerClient:
        """Return the client of a node.

        Raises:
            ConnectionFailed: The metadata does not contain the node.
        """
        node = self._metadata_updater.metadata.nodes.get(node_id)
        if node is None:
            raise ConnectionFailed(
                f"the cluster metadata has no broker {node_id}", broker=str(node_id)
            )
        return self.broker_clients.for_node(node)

    async def find_coordinator(
        self, key: str, type: CoordinatorType = CoordinatorType.GROUP, *, deadline: float
    ) -> NodeId:
        """Return the coordinator of a group or transactional id, cached or by FindCoordinator.

        Raises:
            BrokerError: A broker returned an error that is not retriable.
            RequestTimedOut: No coordinator was found before the deadline.
        """
        route = ToCoordinator(key, type)
        known = self.coordinators.known.get(route)
        if known is not None and known in self.metadata.nodes:
            return known
        request, min_version = find_coordinator_request(route)
        attempt = 0
        error: KafkaError | None = None
        while True:
            attempt += 1
            try:
                response, broker = await self.request_with_broker(
                    request, to=ToAnyNode(), deadline=deadline, min_version=min_version
                )
            except KafkaError as failure:
                raise with_previous_reason(failure, error) from None
            coordinator = read_find_coordinator(response, key)
            code, reason = coordinator.error_code, coordinator.error_message
            if code == ErrorCode.NONE:
                self.add_node(coordinator.node_id, coordinator.host, coordinator.port)
                if coordinator.node_id in self.metadata.nodes:
                    self.coordinators.put(route, coordinator.node_id)
                    return coordinator.node_id
                node = f"broker {coordinator.node_id} at {coordinator.host!r}"
                reason = f"its address is invalid: {node}"
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            error = error_for(
                code, api="FindCoordinator", broker=broker, attempt=attempt, **route.context
            )
            if reason:
                error.reason += f" ({reason})"
            await self.retry_backoff.wait_or_raise(attempt, deadline, error)

    def coordinator_versions(self, route: ToCoordinator) -> NodeApiVersions | None:
        """Return the API versions of a coordinator; None unless it is known and connected."""
        client = self._known_client(route)
        return None if client is None else client.api_versions

    def finalized_feature_level(self, feature: str) -> int | None:
        """Return the finalized level of a cluster feature (KIP-584); None before a connection."""
        return self.broker_clients.finalized_feature_level(feature)

    def mark_coordinator_unknown(
        self, key: str, type: CoordinatorType = CoordinatorType.GROUP
    ) -> None:
        """Forget a coordinator that moved or is unreachable; the next request looks it up."""
        self.coordinators.forget(ToCoordinator(key, type))

    def replace_connection(self, node_id: NodeId, connection_kind: ConnectionKind) -> None:
        """Use a new connection to a node whose current one has been silent for too long."""
        if node_id in self.metadata.nodes:
            self.broker_client(node_id).close_connection(connection_kind)

    # --- requests ---

    async def request(
        self,
        message: Request[R] | VersionedRequest[R],
        *,
        to: Route,
        deadline: float,
        retry: bool = True,
        connection_kind: ConnectionKind | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> R:
        """Send a request to the broker of a route; retry until the deadline.

        Retried are connection failures and, for a controller or coordinator, responses that it
        moved or is not ready.

        Args:
            message: The request.
            to: Route to the broker.
            deadline: Time at which the call fails.
            retry: If False, make one attempt that may last until `deadline`, and return such
                responses. If True, each attempt lasts `request_timeout_ms` at most.
            connection_kind: Connection to use; by default the one for this API.
            min_version: Lowest version that can carry the request.
            max_version: Highest version that can carry the request.

        Raises:
            KafkaError: As `BrokerClient.request` does, for the last attempt.
        """
        response, _ = await self.request_with_broker(
            message,
            to=to,
            deadline=deadline,
            retry=retry,
            connection_kind=connection_kind,
            min_version=min_version,
            max_version=max_version,
        )
        return response

    async def request_with_broker(
        self,
        message: Request[R] | VersionedRequest[R],
        *,
        to: Route,
        deadline: float,
        retry: bool = True,
        connection_kind: ConnectionKind | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> tuple[R, str]:
        """Send a request as `request` does; return the response and the name of its broker."""
        attempt = 0
        error: KafkaError | None = None
        client: BrokerClient | None = None
        too_old: set[NodeId | None] = set()
        while True:
            attempt += 1
            until = deadline
            if retry:
                until = self._runtime.clock.now() + self.config.request_timeout_ms / 1_000
                until = min(until, deadline)
            try:
                while (client := self._known_client(to, too_old)) is None:
                    await self._wait_known(to, deadline)
                response = await client.request(
                    message,
                    deadline=until,
                    connection_kind=connection_kind,
                    min_version=min_version,
                    max_version=max_version,
                )
            except UnsupportedVersion:
                if client is None or not isinstance(to, ToAnyNode):
                    raise
                too_old.add(client.node_id)
                if too_old.issuperset(self.metadata.nodes):
                    raise
                # During a rolling upgrade, another node may support the version.
                continue
            except _ROUTE_FAILURES as failure:
                self._on_failure(failure, to, message.api_key, attempt)
                if not retry or not failure.retriable:
                    raise
                error = with_previous_reason(failure, error)
            else:
                code = self._check_route(response, to)
                if code is None or not retry:
                    return response, client.name
                api = APIS[ApiKey(message.api_key)].name
                error = error_for(code, api=api, broker=client.name, attempt=attempt)
            await self.retry_backoff.wait_or_raise(attempt, deadline, error)

    def submit(
        self,
        message: Request[R] | VersionedRequest[R],
        *,
        to: Route,
        deadline: float,
        on_done: Callable[[R | KafkaError, str], None],
        min_version: int = 0,
        max_version: int | None = None,
    ) -> bool:
        """Make the one attempt of `request_with_broker(..., retry=False)` if it need not wait.

        Takes the arguments of `request`, and `on_done`, which is called with the response or the
        error, and the name of the broker.

        Returns:
            False if the broker is unknown, not connected or throttles. Nothing is sent then.
        """
        try:
            client = self._known_client(to)
            if client is None:
                return False
            channel = client.ready_channel(CONNECTION_KINDS[message.api_key])
            if channel is None:
                return False
            request = client.submit(channel, message, deadline, min_version, max_version)
        except KafkaError:
            return False  # the caller gets the error from `request_with_broker`
        broker = client.name

        def done(request: Future[Any]) -> None:
            if request.error is None:
                response: Any = request.value
                self._check_route(response, to)
                on_done(response, broker)
                return
            assert isinstance(request.error, KafkaError)
            if isinstance(request.error, _ROUTE_FAILURES):
                self._on_failure(request.error, to, message.api_key, 1)
            on_done(request.error, broker)

        request.set_done_callback(done)
        return True

    def _on_failure(self, failure: KafkaError, to: Route, api_key: int, attempt: int) -> None:
        self._invalidate_route(to)
        failure.attempt = failure.attempt or attempt
        failure.api = failure.api or APIS[ApiKey(api_key)].name

    def _check_route(self, response: object, to: Route) -> int | None:
        """Return the error code that shows a wrong route; invalidate the route if it moved."""
        # The result that an `EncodedRequest` matched has no error code.
        code = routing_error_code(response, to) if isinstance(response, Response) else None
        if code is not None and code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._invalidate_route(to)
        return code

    # --- routing ---

    def _known_client(
        self, to: Route, excluded: Container[NodeId | None] = ()
    ) -> BrokerClient | None:
        """Return the client of a route's broker; None if the broker must be found first."""
        nodes = self._metadata_updater.metadata.nodes
        node_id: NodeId | None
        match to:
            case ToNode(node_id):
                return self.broker_client(node_id)
            case ToCoordinator():
                node_id = self.coordinators.known.get(to)
            case ToController():
                node_id = self.metadata.controller_id
            case ToAnyNode():
                if not nodes:
                    return None
                allowed = {key: node for key, node in nodes.items() if key not in excluded}
                loads = self.broker_clients.loads(allowed)
                node_id = least_loaded_node(loads, self._runtime.clock.now(), self._runtime.rng)
                if node_id is None:
                    raise NoBrokerAvailable("no broker of the cluster is known")
        node = None if node_id is None else nodes.get(node_id)
        return None if node is None else self.broker_clients.for_node(node)

    async def _wait_known(self, to: Route, deadline: float) -> None:
        """Wait until the broker of a route is known."""
        match to:
            case ToCoordinator(key, kind):
                await self.find_coordinator(key, kind, deadline=deadline)
            case ToController():
                await wait_controller(self._metadata_updater, deadline)
            case _:
                await self.wait_nodes(deadline)

    def _invalidate_route(self, to: Route) -> None:
        """Forget the coordinator of a failed route, and refresh the metadata."""
        # mutation: moved-coordinator-not-forgotten
        if isinstance(to, ToCoordinator):
            self.coordinators.forget(to)
        self._metadata_updater.request_update()
