"""Keeps the metadata fresh: on age, on demand, with backoff, for the topics that are used."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from aiokafkawire.cluster.bootstrap import (
    metadata_request,
    no_broker_available,
    with_previous_reason,
)
from aiokafkawire.cluster.broker_clients import BrokerClients
from aiokafkawire.cluster.metadata import EMPTY_SNAPSHOT, MetadataSnapshot, MetadataUpdate, NodeInfo
from aiokafkawire.cluster.metadata_log import cluster_id_warning, log_change
from aiokafkawire.cluster.refresh_schedule import MissingTopicLog, RefreshSchedule, TopicReferences
from aiokafkawire.cluster.routing import least_loaded_node
from aiokafkawire.config import ClientConfig
from aiokafkawire.connection import Backoff, BrokerClient
from aiokafkawire.errors import (
    AuthenticationFailed,
    ClientClosed,
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

MAX_REMEMBERED_WARNINGS = 1_000
"""Remarks about metadata that are remembered so as not to be made again."""

NEXT_NODE_AFTER_S = 5.0
"""A node that keeps a metadata request for so long is passed over, while there are others."""

FIRST_CONNECT_TIMEOUT_S = 3.0
"""So long a connection to an address may take before the log says that there is none yet, and
another one is tried; what was begun there goes on."""

MAX_START_WARNINGS = 4
"""Different reasons why a client cannot start that the log tells of."""

RELEASES_WITH_PARTIAL_METADATA = ("0.8.0", "0.8.1", "0.8.2")
"""Releases whose metadata need not name every node."""

UNKNOWN_NODE: NodeId = -2
"""The number here of a broker whose own is not known yet."""


class MetadataUpdater:
    """Owns the metadata, and the one task that asks for it.

    `metadata` is the newest snapshot, `source` the broker that told it. Whoever waits for a change
    awaits `wait_update`.
    """

    def __init__(self, config: ClientConfig, runtime: Runtime, brokers: BrokerClients) -> None:
        self.metadata: MetadataSnapshot = EMPTY_SNAPSHOT
        self.source: str | None = None
        self.topic_references = TopicReferences()
        self.last_failure: KafkaError | None = None
        brokers.on_lost = self.request_update
        self._config = config
        self._who = config.client_id
        self._fields: Mapping[str, object] = log_fields(client_id=config.client_id)
        self._runtime = runtime
        self._broker_clients = brokers
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._schedule = RefreshSchedule(
            backoff=self._backoff,
            max_age_s=config.metadata_max_age_ms / 1_000,
            rebootstrap_s=config.metadata_recovery_rebootstrap_trigger_ms / 1_000,
        )
        self._wake = AutoResetEvent()
        self._changed: Future[None] = Future()
        self._listeners: list[Callable[[MetadataUpdate], None]] = []
        # Nodes that did not answer when they were last asked: all others are asked before.
        self._avoided: set[NodeId] = set()
        self._logged_warnings: set[str] = set()
        self._missing_topic_log = MissingTopicLog()
        self._answered_since = math.inf

    # --- for the rest of the room ---

    async def start(self, supervisor: Supervisor, deadline: float) -> None:
        """Find the cluster by its bootstrap addresses, then keep the metadata fresh in a task.

        Raises `NoBrokerAvailable` at the deadline, or at once if no address can ever do.
        """
        self._who, self._fields = supervisor.name, supervisor.fields
        attempt = 0
        failures: dict[Address, KafkaError] = {}
        told: list[str] = []
        clock = self._runtime.clock
        while True:
            try:
                self._schedule.begin(clock.now())
                patience_s = NEXT_NODE_AFTER_S if attempt else FIRST_CONNECT_TIMEOUT_S
                await self._refresh_from_bootstrap(deadline, failures, patience_s)
                break
            except NoBrokerAvailable as error:
                attempt += 1
                again_at = clock.now() + self._backoff.delay(attempt, self._runtime.rng)
                if not error.retriable or again_at >= deadline:
                    raise
                if error.reason not in told and len(told) < MAX_START_WARNINGS:
                    told.append(error.reason)
                    logger.warning(
                        "%s: %s; trying again",
                        self._who,
                        error.reason,
                        extra=log_fields(self._fields, error=error),
                    )
            # Outside of the handler: a Ctrl-C while waiting shall not show the error before it.
            await clock.sleep_until(again_at)
        self._answered_since = clock.now()
        self._schedule.succeeded(self._answered_since, self._runtime.rng)
        supervisor.spawn(self._run, name="metadata")

    def start_in_background(self, supervisor: Supervisor) -> None:
        """Find the cluster in the task that keeps the metadata fresh, which tries until it can."""
        self._who, self._fields = supervisor.name, supervisor.fields
        supervisor.spawn(self._run, name="metadata")

    def request_update(self, topics: Iterable[str] | None = None, *, urgent: bool = False) -> None:
        """The metadata, or that of `topics` alone, is stale; returns at once. `urgent`: for what
        was never asked before."""
        self._schedule.ask(topics, urgent=urgent)
        self._wake.set()

    async def wait_update(
        self, after_version: int, deadline: float, *, fail_early: bool = False
    ) -> bool:
        """Wait for a snapshot newer than `after_version`; False if the deadline came first.

        With `fail_early` an error of a refresh that trying again will not mend is raised at once.
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
        """Call back, synchronously, after each change."""
        self._listeners.append(callback)

    def apply(self, update: MetadataUpdate) -> None:
        """Take over a snapshot, if it is a new one."""
        for note in (*update.warnings, *cluster_id_warning(self.metadata, update.snapshot)):
            # Once, though it is told again and again.
            if note not in self._logged_warnings:
                if len(self._logged_warnings) >= MAX_REMEMBERED_WARNINGS:
                    self._logged_warnings.clear()
                self._logged_warnings.add(note)
                logger.warning("%s: metadata: %s", self._who, note, extra=dict(self._fields))
        if not update.changed:
            return
        log_change(self._who, self._fields, self.metadata, update.snapshot, update.topics)
        self.metadata = update.snapshot
        self._broker_clients.keep(update.snapshot.nodes)
        self._notify_waiters()
        for listener in self._listeners:
            listener(update)

    def _notify_waiters(self) -> None:
        changed, self._changed = self._changed, Future()
        changed.set_result(None)

    @property
    def _may_create(self) -> bool:
        return self._config.allow_auto_create_topics

    # --- the task ---

    async def _run(self) -> None:
        clock = self._runtime.clock
        try:
            while True:
                due = self._schedule.next_at()
                if due > clock.now():
                    await self._wake.wait(due)
                else:
                    await self._refresh()
        finally:
            self._changed.set_exception(ClientClosed("the client is closed"))

    async def _refresh(self) -> None:
        now = self._runtime.clock.now
        some = self._still_used(self._schedule.begin(now()))
        try:
            if not self.metadata.nodes or self._schedule.rebootstrap_due(now()):
                some = None
                await self._refresh_from_bootstrap(self._deadline(), {})
            else:
                await self._refresh_from_nodes_or_bootstrap(some)
        except KafkaError as error:
            self.last_failure = error
            self._answered_since = math.inf
            extra = log_fields(self._fields, error=error)
            logger.debug("%s: metadata refresh failed: %s", self._who, error, extra=extra)
            self._schedule.failed(now(), self._runtime.rng)
            if self._schedule.should_log(now()):
                logger.warning(
                    "%s: no broker can be reached: %s; trying again", self._who, error, extra=extra
                )
            if not error.retriable:
                self._notify_waiters()
        else:
            self.last_failure = None
            outage_s = self._schedule.outage_s(now())
            if self._schedule.succeeded(now(), self._runtime.rng, partial=some is not None):
                logger.info(
                    "%s: brokers can be reached again after %.3f s",
                    self._who,
                    outage_s,
                    extra=log_fields(self._fields, outage_ms=round(outage_s * 1_000)),
                )
            missing = self._missing(self.topic_references.users() if some is None else some)
            if missing:
                self._schedule.ask(missing)
            self._log_missing_topics()
            self._answered_since = min(self._answered_since, now())
            self._broker_clients.log_unreachable(self._answered_since)

    def _log_missing_topics(self) -> None:
        """Who waits for a topic whose name is wrong shall see why nothing happens."""
        reasons = {
            name: error_for(code)
            for name, code in self.metadata.errors.items()
            if self.topic_references.uses(name)
        }
        absent = [name for name, reason in reasons.items() if reason.retriable]
        for name in self._missing_topic_log.late(absent, self._runtime.clock.now()):
            logger.warning(
                "%s: topic %r does not exist or is not available: %s; trying again",
                self._who,
                name,
                reasons[name].reason,
                extra=log_fields(self._fields, error=reasons[name], topic=name),
            )

    def _deadline(self) -> float:
        return self._runtime.clock.now() + self._config.request_timeout_ms / 1_000

    async def _refresh_from_nodes_or_bootstrap(self, some: Sequence[str] | None) -> None:
        """Ask the known nodes; the bootstrap addresses too when no known node can be reached.

        The snapshot may be of a time when few nodes were up, and those may be down now, while
        others came back.
        """
        try:
            await self._refresh_from_nodes(self._deadline(), some)
        except (AuthenticationFailed, ClientClosed):
            raise
        except KafkaError:
            if not self._broker_clients.unreachable(self.metadata.nodes):
                raise
            logger.debug(
                "%s: no known broker can be reached: trying the bootstrap addresses",
                self._who,
                extra=dict(self._fields),
            )
            await self._refresh_from_bootstrap(self._deadline(), {})

    async def _refresh_from_nodes(self, deadline: float, some: Sequence[str] | None) -> None:
        """Ask one node after the other until one answers, or all have failed."""
        clock = self._runtime.clock
        left = dict(self.metadata.nodes)
        self._avoided.intersection_update(left)
        while True:
            loads = self._broker_clients.loads(left)
            fit = [load for load in loads if load.node_id not in self._avoided]
            node_id = least_loaded_node(fit or loads, clock.now(), self._runtime.rng)
            assert node_id is not None
            node = left.pop(node_id)
            until = min(deadline, clock.now() + NEXT_NODE_AFTER_S) if left else deadline
            self._avoided.add(node_id)
            try:
                await self._refresh_from_node(node, until, some)
            except (AuthenticationFailed, ClientClosed):
                raise
            except KafkaError as error:
                if not left or clock.now() >= deadline:
                    raise
                logger.debug(
                    "%s: asking another broker for metadata: %s",
                    self._who,
                    error,
                    extra=log_fields(self._fields, error=error),
                )
            else:
                self._avoided.discard(node_id)
                return

    async def _refresh_from_node(
        self, node: NodeInfo, deadline: float, some: Sequence[str] | None
    ) -> None:
        client = self._broker_clients.for_node(node)
        wanted = self.topic_references.wanted() if some is None else some
        request = metadata_request(wanted, allow_creation=self._may_create)
        response = await client.request(request, deadline=deadline)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            logger.info(
                "%s: broker %s asks for a rebootstrap (REBOOTSTRAP_REQUIRED): starting from the"
                " bootstrap addresses",
                self._who,
                client.name,
                extra=log_fields(self._fields, broker=client.name),
            )
            await self._refresh_from_bootstrap(deadline, {})
        else:
            self._take(response, wanted, client, partial=some is not None)

    async def _refresh_from_bootstrap(
        self,
        deadline: float,
        failures: dict[Address, KafkaError],
        patience_s: float = NEXT_NODE_AFTER_S,
    ) -> None:
        """Ask each bootstrap address in turn. `failures` has those of earlier rounds."""
        now = self._runtime.clock.now
        servers = self._config.bootstrap_addresses
        request_s = answer_s = self._config.request_timeout_ms / 1_000
        if len(servers) > 1 or patience_s < NEXT_NODE_AFTER_S:
            answer_s = min(request_s, NEXT_NODE_AFTER_S)
        else:
            patience_s = request_s
        for server in servers:
            address = Address(*server)
            client = self._broker_clients.for_address(address)
            wanted = self.topic_references.wanted()
            request = metadata_request(wanted, allow_creation=self._may_create)
            until = min(deadline, now() + min(patience_s, request_s))
            try:
                await client.ready(ApiKey.METADATA, until)
                until = min(deadline, now() + answer_s)
                response = await client.request(request, deadline=until)
                self._take(response, wanted, client)
            except (AuthenticationFailed, ClientClosed):
                raise
            except KafkaError as error:
                if isinstance(error, RequestTimedOut) and until < deadline:
                    error.reason = "no answer yet"
                failures[address] = with_previous_reason(error, failures.get(address))
            else:
                self._broker_clients.retire_bootstrap()
                return
        raise no_broker_available(list(failures.values()))

    def _take(
        self,
        response: MetadataResponse,
        wanted: Sequence[str] | None,
        client: BrokerClient,
        *,
        partial: bool = False,
    ) -> None:
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, api="Metadata", broker=client.name)
        unlisted = self._unlisted(response, client)
        update = self.metadata.with_response(response, wanted, partial=partial, unlisted=unlisted)
        self.source = client.name
        self.apply(update)
        if not update.usable:
            raise NoBrokerAvailable(
                "the broker answers with metadata that names no usable broker", broker=client.name
            )

    def _unlisted(
        self, response: MetadataResponse, client: BrokerClient
    ) -> Mapping[NodeId, NodeInfo]:
        """The nodes that a broker of 0.8 leaves out.

        0.8.0 and 0.8.1 name the nodes of the topics in the answer alone, and all of 0.8 name none
        before there is a topic: then the broker that answers has to do, under a number of our own.
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

    def _still_used(self, topics: Sequence[str] | None) -> list[str] | None:
        """The topics to ask for alone; None where all in use are to be asked for."""
        if topics is None or self.topic_references.all_topics or not self.metadata.nodes:
            return None
        return [name for name in topics if self.topic_references.uses(name)] or None

    def _missing(self, names: Iterable[str]) -> list[str]:
        """The topics in use of which something is still missing that may come soon."""
        return [
            name for name in names if self.topic_references.uses(name) and not self._complete(name)
        ]

    def _complete(self, name: str) -> bool:
        metadata = self.metadata
        topic = metadata.topics.get(name)
        if topic is None:
            code = metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return not error_for(code).retriable
        return all(p.leader_id in metadata.nodes for p in topic.partitions.values())
