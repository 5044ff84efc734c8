"""Refreshes the metadata of the topics in use: by age and on request, with backoff."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from aiokafkawire.cluster.bootstrap import (
    fetch_metadata,
    no_broker_available,
    with_previous_reason,
)
from aiokafkawire.cluster.broker_clients import BrokerClients
from aiokafkawire.cluster.metadata import EMPTY_SNAPSHOT, MetadataSnapshot, MetadataUpdate, NodeInfo
from aiokafkawire.cluster.metadata_log import MetadataLog
from aiokafkawire.cluster.refresh_schedule import RefreshSchedule, TopicReferences
from aiokafkawire.cluster.routing import least_loaded_node
from aiokafkawire.config import ClientConfig
from aiokafkawire.connection import (
    CHECK_INTERVAL_S,
    SILENT_AFTER_S,
    SILENT_SERVER,
    Backoff,
    BrokerClient,
    BrokerOutage,
    ExpectedNode,
)
from aiokafkawire.errors import (
    AuthenticationFailed,
    ClientClosed,
    ConnectionFailed,
    ConnectionLost,
    KafkaError,
    NoBrokerAvailable,
    RequestTimedOut,
)
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import Address, AutoResetEvent, Future, Runtime, Supervisor, copy_error
from aiokafkawire.types import NodeId
from aiokafkawire.wire import ApiKey, ErrorCode, error_for
from aiokafkawire.wire.messages.metadata import MetadataResponse

__all__ = ("NEXT_NODE_AFTER_S", "MetadataUpdater")

logger = logging.getLogger("aiokafkawire.cluster")

NEXT_NODE_AFTER_S = 5.0
"""Time without a response after which a Metadata request goes to another node, if possible."""

FIRST_CONNECT_TIMEOUT_S = 3.0
"""Time in which the first connection to an address should be open.

After it, the log says that there is none yet, and the next address is tried. The first attempt
goes on in the background.
"""

OUTAGE_CHECK_INTERVAL_S = 0.5
"""Time between two checks during an outage, so that its logged duration is exact."""

NO_RESPONSE_YET = "no response yet"
"""Reason of the error if an address is left for the next one."""

MAX_START_WARNINGS = 4
"""Limit of warnings with different reasons while the client cannot start."""

RELEASES_WITH_PARTIAL_METADATA = ("0.8.0", "0.8.1", "0.8.2")
"""Releases whose Metadata responses may lack nodes."""

UNKNOWN_NODE: NodeId = -2
"""Node id that stands for a broker whose own id is unknown."""


class MetadataUpdater:
    """Owns the metadata and the task that refreshes it.

    `metadata` is the newest snapshot, `source` the broker that returned it.
    """

    def __init__(self, config: ClientConfig, runtime: Runtime, brokers: BrokerClients) -> None:
        self.metadata: MetadataSnapshot = EMPTY_SNAPSHOT
        self.source: str | None = None
        self.topic_references = TopicReferences()
        self.last_failure: KafkaError | None = None
        brokers.on_lost = self.request_update
        brokers.on_misrouted = self._rebootstrap
        self._config = config
        self._log = MetadataLog(config.client_id, log_fields(client_id=config.client_id))
        self._runtime = runtime
        self._broker_clients = brokers
        self._schedule = RefreshSchedule(
            backoff=Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms),
            max_age_s=config.metadata_max_age_ms / 1_000,
            rebootstrap_s=config.metadata_recovery_rebootstrap_trigger_ms / 1_000,
        )
        self._wake = AutoResetEvent()
        self._changed: Future[None] = Future()
        self._listeners: list[Callable[[MetadataUpdate], None]] = []
        # Nodes whose last metadata request failed; all others are preferred.
        self._avoided: set[NodeId] = set()
        self._responding_since = math.inf
        self._responded_at = -math.inf

    # --- interface of the package ---

    async def start(self, supervisor: Supervisor, deadline: float) -> None:
        """Fetch the first metadata from the bootstrap addresses, then refresh it in a task.

        Raises:
            NoBrokerAvailable: No address returned metadata before the deadline, or none of the
                failures is retriable, or all refused for `bootstrap_refused_timeout_ms`.
        """
        self._log = MetadataLog(supervisor.name, supervisor.fields)
        attempt = 0
        failures: dict[Address, KafkaError] = {}
        logged: list[str] = []
        clock = self._runtime.clock
        refused_until = self._refused_until()
        while True:
            try:
                self._schedule.begin(clock.now())
                connect_timeout_s = NEXT_NODE_AFTER_S if attempt else FIRST_CONNECT_TIMEOUT_S
                await self._refresh_from_bootstrap(deadline, failures, connect_timeout_s)
                break
            except NoBrokerAvailable as error:
                attempt += 1
                # mutation: bootstrap-without-backoff
                retry_at = clock.now() + self._schedule.backoff.delay(attempt, self._runtime.rng)
                limit = min(deadline, refused_until) if _all_refused(failures) else deadline
                if not error.retriable or retry_at >= limit:
                    raise
                # It takes longer to find out that a server responds to nothing.
                reason = error.reason.replace(SILENT_SERVER, NO_RESPONSE_YET)
                if reason not in logged and len(logged) < MAX_START_WARNINGS:
                    logged.append(reason)
                    self._log.start_failed(error)
            # Outside the handler, so that the traceback of a Ctrl-C does not include the error.
            await clock.sleep_until(retry_at)
        self._responding_since = clock.now()
        self._schedule.succeeded(self._responding_since, self._runtime.rng)
        self._spawn_tasks(supervisor)

    def _refused_until(self) -> float:
        """Return the end of a start during which all addresses refuse connections."""
        timeout_ms = self._config.bootstrap_refused_timeout_ms
        return math.inf if timeout_ms is None else self._runtime.clock.now() + timeout_ms / 1_000

    def start_in_background(self, supervisor: Supervisor) -> None:
        """Start the task that refreshes the metadata, beginning with the bootstrap addresses."""
        self._log = MetadataLog(supervisor.name, supervisor.fields)
        self._spawn_tasks(supervisor)

    def _spawn_tasks(self, supervisor: Supervisor) -> None:
        supervisor.spawn(self._run, name="metadata")
        supervisor.spawn(self._watch_brokers, name="outages")

    def request_update(self, topics: Iterable[str] | None = None, *, urgent: bool = False) -> None:
        """Request a refresh in the background.

        Args:
            topics: Refresh only these topics (KIP-526). Default: all topics in use.
            urgent: Skip the backoff, for topics that were never requested before.
        """
        self._schedule.request(topics, urgent=urgent)
        self._wake.set()

    async def wait_update(
        self, after_version: int, deadline: float, *, fail_early: bool = False
    ) -> bool:
        """Wait for a snapshot newer than `after_version`; return False at the deadline.

        With `fail_early`, raise the error of a failed refresh if it is not retriable.
        """
        while self.metadata.version <= after_version:
            try:
                await self._changed.wait(deadline)
            except TimeoutError:
                return False
            failure = self.last_failure
            if fail_early and failure is not None and not failure.retriable:
                raise copy_error(failure)
        return True

    def add_listener(self, callback: Callable[[MetadataUpdate], None]) -> None:
        """Call `callback` synchronously after each change."""
        self._listeners.append(callback)

    def apply(self, update: MetadataUpdate) -> None:
        """Replace the snapshot if it changed, and log warnings."""
        self._log.warn(self.metadata, update)
        if not update.changed:
            return
        self._log.changed(self.metadata, update)
        self.metadata = update.snapshot
        self._broker_clients.cluster_id = update.snapshot.cluster_id
        self._broker_clients.keep(update.snapshot.nodes)
        self._notify_waiters()
        for listener in self._listeners:
            listener(update)

    def _notify_waiters(self) -> None:
        changed, self._changed = self._changed, Future()
        changed.set_result(None)

    # --- the task ---

    async def _run(self) -> None:
        clock = self._runtime.clock
        try:
            while True:
                due = self._schedule.next_refresh_at()
                if due > clock.now():
                    await self._wake.wait(due)
                else:
                    await self._refresh()
        finally:
            self._changed.set_exception(ClientClosed("the client is closed"))

    async def _refresh(self) -> None:
        now = self._runtime.clock.now
        topics = self._partial_topics(self._schedule.begin(now()))
        try:
            if not self.metadata.nodes or self._schedule.rebootstrap_due(now()):
                topics = None
                await self._refresh_from_bootstrap(self._deadline(), {})
            else:
                await self._refresh_from_nodes_or_bootstrap(topics)
        except KafkaError as error:
            self.last_failure = error
            self._responding_since = math.inf
            extra = log_fields(self._log.fields, error=error)
            logger.debug("%s: metadata refresh failed: %s", self._log.prefix, error, extra=extra)
            self._schedule.failed(now(), self._runtime.rng)
            # A refresh that closing interrupts is no outage.
            if not isinstance(error, ClientClosed) and self._schedule.outage_log_due(now()):
                self._log.unreachable(error)
            if not error.retriable:
                self._notify_waiters()
        else:
            self.last_failure = None
            outage_s = self._schedule.outage_s(now())
            if self._schedule.succeeded(now(), self._runtime.rng, partial=topics is not None):
                self._log.reachable(outage_s)
            missing = self._incomplete_topics(
                self.topic_references.topics() if topics is None else topics
            )
            if missing:
                self._schedule.request(missing)
            in_use = self.topic_references
            errors = self.metadata.errors
            self._log.missing_topics(
                {name: code for name, code in errors.items() if in_use.contains(name)}, now()
            )
            self._responded_at = now()
            self._responding_since = min(self._responding_since, self._responded_at)
            self._broker_clients.log_unreachable(self._responding_since)

    async def _watch_brokers(self) -> None:
        """Log brokers that leave requests unanswered, long before these time out."""
        clock = self._runtime.clock
        interval_s = CHECK_INTERVAL_S
        while True:
            await clock.sleep_until(clock.now() + interval_s)
            has_outage = self._check_brokers(clock.now())
            interval_s = OUTAGE_CHECK_INTERVAL_S if has_outage else CHECK_INTERVAL_S

    def _check_brokers(self, now: float) -> bool:
        """Log brokers that do not respond; return True if there is one."""
        nodes = self.metadata.nodes
        outages = self._broker_clients.outages(nodes, now)
        if outages and len(outages) == len(nodes):
            self._check_outage(outages.values(), now)
        else:
            self._broker_clients.log_silence(outages, now)
        return bool(outages)

    def _check_outage(self, outages: Collection[BrokerOutage], now: float) -> None:
        latest = max(outages, key=lambda outage: outage.since)
        if now - latest.since < SILENT_AFTER_S or self._responded_at > latest.since:
            return
        # A refresh logs that no connection can be opened, after it has tried all addresses.
        if not any(outage.is_silent for outage in outages):
            return
        self._schedule.mark_unreachable(latest.since)
        if self._schedule.outage_log_due(now):
            self._log.unreachable(latest.error)
            # Its response is the end of the outage.
            self.request_update()

    def _rebootstrap(self, refused: ExpectedNode) -> None:
        """Close all connections, and take the nodes from the bootstrap addresses (KIP-1242)."""
        node = self.metadata.nodes.get(refused.node_id)
        is_current = self.metadata.cluster_id == refused.cluster_id and (
            node is not None and node.address == refused.address
        )
        if not is_current or not self._schedule.require_rebootstrap():
            return
        logger.info(
            "%s: the server at %s is not node %s of cluster %s (REBOOTSTRAP_REQUIRED): closing all"
            " connections and trying the bootstrap addresses",
            self._log.prefix,
            refused.address,
            refused.node_id,
            refused.cluster_id,
            extra=log_fields(self._log.fields, broker=f"{refused.node_id} at {refused.address}"),
        )
        self._broker_clients.disconnect_nodes(
            ConnectionLost("the client bootstraps again after a misrouted connection")
        )
        self.request_update()

    def _deadline(self) -> float:
        return self._runtime.clock.now() + self._config.request_timeout_ms / 1_000

    async def _refresh_from_nodes_or_bootstrap(self, topics: Sequence[str] | None) -> None:
        """Refresh from the known nodes; from the bootstrap addresses if all nodes are unreachable.

        The snapshot may date from a time when few nodes were up; others may be up now.
        """
        try:
            await self._refresh_from_nodes(self._deadline(), topics)
        except (AuthenticationFailed, ClientClosed):
            raise
        except KafkaError:
            if not self._broker_clients.unreachable(self.metadata.nodes):
                raise
            logger.debug(
                "%s: no known broker can be reached; trying the bootstrap addresses",
                self._log.prefix,
                extra=dict(self._log.fields),
            )
            await self._refresh_from_bootstrap(self._deadline(), {})

    async def _refresh_from_nodes(self, deadline: float, topics: Sequence[str] | None) -> None:
        """Request metadata from one node after the other until one responds or all have failed."""
        clock = self._runtime.clock
        left = dict(self.metadata.nodes)
        self._avoided.intersection_update(left)
        while True:
            loads = self._broker_clients.loads(left)
            preferred = [load for load in loads if load.node_id not in self._avoided]
            node_id = least_loaded_node(preferred or loads, clock.now(), self._runtime.rng)
            assert node_id is not None
            node = left.pop(node_id)
            until = min(deadline, clock.now() + NEXT_NODE_AFTER_S) if left else deadline
            self._avoided.add(node_id)
            try:
                await self._refresh_from_node(node, until, topics)
            except (AuthenticationFailed, ClientClosed):
                raise
            except KafkaError as error:
                if not left or clock.now() >= deadline:
                    raise
                logger.debug(
                    "%s: metadata request failed, trying another broker: %s",
                    self._log.prefix,
                    error,
                    extra=log_fields(self._log.fields, error=error),
                )
            else:
                self._avoided.discard(node_id)
                return

    async def _refresh_from_node(
        self, node: NodeInfo, deadline: float, topics: Sequence[str] | None
    ) -> None:
        client = self._broker_clients.for_node(node)
        wanted = self.topic_references.topics_to_request() if topics is None else topics
        response = await fetch_metadata(client, wanted, self._config, deadline)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            logger.info(
                "%s: broker %s requires a rebootstrap (REBOOTSTRAP_REQUIRED); trying the bootstrap"
                " addresses",
                self._log.prefix,
                client.name,
                extra=log_fields(self._log.fields, broker=client.name),
            )
            await self._refresh_from_bootstrap(deadline, {})
        else:
            self._apply_response(response, wanted, client, partial=topics is not None)

    async def _refresh_from_bootstrap(
        self,
        deadline: float,
        failures: dict[Address, KafkaError],
        connect_timeout_s: float = NEXT_NODE_AFTER_S,
    ) -> None:
        """Request metadata from the bootstrap addresses in order, until one responds.

        Args:
            deadline: Limit for all attempts.
            failures: Last failure of each address, also of earlier calls.
            connect_timeout_s: Limit for the connection to one address. Less than
                `NEXT_NODE_AFTER_S` in the first round, which soon reports that no address responds.
        """
        now = self._runtime.clock.now
        servers = self._config.bootstrap_addresses
        request_timeout_s = response_timeout_s = self._config.request_timeout_ms / 1_000
        if len(servers) > 1 or connect_timeout_s < NEXT_NODE_AFTER_S:
            response_timeout_s = min(request_timeout_s, NEXT_NODE_AFTER_S)
        else:
            connect_timeout_s = request_timeout_s
        for server in servers:
            address = Address(*server)
            client = self._broker_clients.for_address(address)
            wanted = self.topic_references.topics_to_request()
            attempt_deadline = min(deadline, now() + min(connect_timeout_s, request_timeout_s))
            try:
                await client.ready(ApiKey.METADATA, attempt_deadline)
                attempt_deadline = min(deadline, now() + response_timeout_s)
                response = await fetch_metadata(client, wanted, self._config, attempt_deadline)
                self._apply_response(response, wanted, client)
            except (AuthenticationFailed, ClientClosed):
                raise
            except KafkaError as error:
                if isinstance(error, RequestTimedOut) and attempt_deadline < deadline:
                    error.reason = NO_RESPONSE_YET
                failures[address] = with_previous_reason(error, failures.get(address))
            else:
                self._schedule.bootstrapped()
                self._broker_clients.retire_bootstrap()
                return
        raise no_broker_available(list(failures.values()))

    def _apply_response(
        self,
        response: MetadataResponse,
        wanted: Sequence[str] | None,
        client: BrokerClient,
        *,
        partial: bool = False,
    ) -> None:
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, api="Metadata", broker=client.name)
        unlisted = self._unlisted_nodes(response, client)
        update = self.metadata.with_response(response, wanted, partial=partial, unlisted=unlisted)
        self.source = client.name
        self.apply(update)
        if not update.usable:
            raise NoBrokerAvailable(
                "the Metadata response has no broker with a valid address", broker=client.name
            )

    def _unlisted_nodes(
        self, response: MetadataResponse, client: BrokerClient
    ) -> Mapping[NodeId, NodeInfo]:
        """Return the nodes that the response of a 0.8 broker may lack.

        0.8.0 and 0.8.1 list only the nodes of the topics in the response. 0.8 lists no node before
        a topic exists; then the responding broker is used, as `UNKNOWN_NODE`.
        """
        release = client.api_versions.release if client.api_versions is not None else None
        if release not in RELEASES_WITH_PARTIAL_METADATA:
            return {}
        nodes = self.metadata.nodes
        if not response.brokers:
            return nodes or {UNKNOWN_NODE: NodeInfo(UNKNOWN_NODE, client.address)}
        if release == "0.8.2":
            return {}
        return {node_id: node for node_id, node in nodes.items() if node_id != UNKNOWN_NODE}

    def _partial_topics(self, topics: Sequence[str] | None) -> list[str] | None:
        """Return the topics of a partial refresh; None if all topics in use are requested."""
        if topics is None or self.topic_references.all_topics or not self.metadata.nodes:
            return None
        return [name for name in topics if self.topic_references.contains(name)] or None

    def _incomplete_topics(self, names: Iterable[str]) -> list[str]:
        """Return the topics in use whose metadata is incomplete but may soon be complete."""
        return [
            name
            for name in names
            if self.topic_references.contains(name) and not self._is_complete(name)
        ]

    def _is_complete(self, name: str) -> bool:
        metadata = self.metadata
        topic = metadata.topics.get(name)
        if topic is None:
            code = metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return not error_for(code).retriable
        return all(p.leader_id in metadata.nodes for p in topic.partitions.values())


def _all_refused(failures: Mapping[Address, KafkaError]) -> bool:
    """Return True if the last connection to each address was refused."""
    return all(isinstance(each, ConnectionFailed) and each.refused for each in failures.values())
