"""Many brokers as one: bootstrap, metadata kept fresh, requests brought to the right node."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import TypeVar

import anyio

from aiokafkawire.cluster.bootstrap import telling
from aiokafkawire.cluster.brokers import Brokers
from aiokafkawire.cluster.coordinators import CoordinatorCache, find_request, read_found
from aiokafkawire.cluster.metadata import MetadataSnapshot, TopicMetadata, Update
from aiokafkawire.cluster.ping import Pinger
from aiokafkawire.cluster.refresher import Refresher
from aiokafkawire.cluster.routing import (
    AnyNode,
    Controller,
    Coordinator,
    CoordinatorType,
    Node,
    Route,
    least_loaded,
    misrouted,
    not_ready,
)
from aiokafkawire.config import ClientConfig
from aiokafkawire.connection import (
    PLAINTEXT,
    Backoff,
    BrokerClient,
    ByVersion,
    Handshake,
    Lane,
    Versions,
    parse_pin,
)
from aiokafkawire.errors import (
    ConnectionFailed,
    ConnectionLost,
    KafkaError,
    NoBrokerAvailable,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedVersion,
)
from aiokafkawire.runtime import Host, Promise, Runtime
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, Request, Response, error_for

__all__ = ("UNKNOWN_ANSWERS", "Cluster")

UNKNOWN_ANSWERS = 3
"""So often must a topic be unknown, where it is not to be made, before it counts as missing."""

R = TypeVar("R", bound=Response)


class Cluster:
    """A client's view of one Kafka cluster.

    All deadlines are absolute seconds of `runtime.clock`. Tasks run in `host`, which must be
    running from `start` on.
    """

    def __init__(
        self,
        config: ClientConfig,
        runtime: Runtime,
        host: Host,
        *,
        handshake: Handshake = PLAINTEXT,
    ) -> None:
        # Refused here, not in a task that connects later.
        parse_pin(config.api_version)
        self.config = config
        self._runtime = runtime
        self._host = host
        self._brokers = Brokers(config, runtime, host, handshake)
        self._refresher = Refresher(config, runtime, self._brokers)
        self.pinger = Pinger(config, runtime, host, self._brokers, self._refresher)
        self._coordinators = CoordinatorCache(host.fields)
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)

    async def start(self, deadline: float) -> None:
        """Find the cluster. Raises `NoBrokerAvailable`, `AuthenticationFailed`.

        Returns at once if `connect_on_start` is off.
        """
        if self.config.connect_on_start:
            await self._refresher.start(self._host, deadline)
        else:
            self._refresher.start_in_background(self._host)

    async def aclose(self) -> None:
        """Close every connection; whoever waits gets `ClientClosed`."""
        await self._brokers.aclose()

    # --- metadata ---

    @property
    def metadata(self) -> MetadataSnapshot:
        """The cluster as last told."""
        return self._refresher.metadata

    @property
    def metadata_source(self) -> str | None:
        """The broker that `metadata` is from: its address, with its number before it if known."""
        return self._refresher.told_by

    def add_topics(self, topics: Iterable[str]) -> None:
        """Keep the metadata of these topics fresh, once more for each call."""
        fresh = self._refresher.interest.add(topics)
        if fresh:
            self._refresher.request_update(fresh, urgent=True)

    def remove_topics(self, topics: Iterable[str]) -> None:
        """Take back one `add_topics` of these topics."""
        self._refresher.interest.remove(topics)

    @property
    def all_topics(self) -> bool:
        """Whether the metadata is of all topics, for patterns; may be set."""
        return self._refresher.interest.everything

    @all_topics.setter
    def all_topics(self, wanted: bool) -> None:
        if self._refresher.interest.set_everything(wanted):
            self._refresher.request_update(urgent=True)

    def request_update(self) -> None:
        """The metadata has shown itself to be stale; returns at once, with backoff inside."""
        self._refresher.request_update()

    def metrics(self) -> dict[str, int | float]:
        """What the connections have done since the start; the names end in their unit.

        Gauges: `connections_open`. Totals: `connections_made_total`, `connections_lost_total`
        (not closed by this client), `requests_total`, `responses_total`, `bytes_sent_total`,
        `bytes_received_total`, `throttle_ms_total` (silence that brokers asked for).
        `request_latency_ms_avg` and `_max` are of all requests, those that a broker holds back on
        purpose included.
        """
        return self._brokers.counters.snapshot()

    async def wait_update(self, after_version: int, deadline: float) -> bool:
        """Wait until `metadata.version` is over `after_version`; False at the deadline."""
        return await self._refresher.wait_update(after_version, deadline)

    def on_change(self, callback: Callable[[Update], None]) -> None:
        """Call back, synchronously, after each change of the metadata."""
        self._refresher.on_change(callback)

    async def topic(self, name: str, deadline: float, *, keep: bool = False) -> TopicMetadata:
        """A topic's metadata, waiting until it is known; with `keep` it stays fresh from then on,
        as after `add_topics`.

        Raises `UnknownTopic` at the deadline, or soon where topics are not to be made on demand;
        `BrokerError` for a name that is invalid or not authorised; at once what makes it useless to
        ask again, as `AuthenticationFailed`.
        """
        names, interest = (name,), self._refresher.interest
        fresh = interest.add(names)
        try:
            found = self.metadata.topics.get(name)
            if found is None or not found.partitions:
                self._refresher.request_update(names, urgent=bool(fresh))
                found = await self._wait_topic(name, deadline)
        except BaseException:
            interest.remove(names)
            raise
        if not keep:
            interest.remove(names)
        return found

    async def _wait_topic(self, name: str, deadline: float) -> TopicMetadata:
        version = self.metadata.version
        unknown_answers = 0
        while await self._refresher.wait_update(version, deadline, fail_early=True):
            metadata = self.metadata
            version = metadata.version
            found = metadata.topics.get(name)
            if found is not None and found.partitions:
                return found
            code = metadata.errors.get(name)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                unknown_answers += 1
                if not self.config.allow_auto_create_topics and unknown_answers >= UNKNOWN_ANSWERS:
                    raise UnknownTopic(
                        f"topic {name!r} does not exist, and allow_auto_create_topics is off",
                        topic=name,
                    )
            elif code is not None and not (error := self._topic_error(name, code)).retriable:
                raise error
            self._refresher.request_update((name,))
        raise self._no_topic(name)

    def _topic_error(self, name: str, code: int) -> KafkaError:
        return error_for(code, api="Metadata", broker=self._refresher.told_by, topic=name)

    def _no_topic(self, name: str) -> KafkaError:
        code = self.metadata.errors.get(name)
        failure = self._refresher.last_failure
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return UnknownTopic(
                f"topic {name!r} does not exist, and no broker made it before the deadline (is"
                " auto.create.topics.enable off?)",
                topic=name,
            )
        if code is not None:
            return UnknownTopic(
                f"topic {name!r} was not ready before the deadline: {error_for(code).reason}",
                topic=name,
            )
        why = f": {failure.reason}" if failure is not None else ""
        return RequestTimedOut(
            f"nothing was learnt of topic {name!r} before the deadline{why}",
            sent=False,
            topic=name,
            api="Metadata",
        )

    def leader_hint(
        self,
        tp: TopicPartition,
        node_id: NodeId,
        leader_epoch: int,
        endpoint: tuple[str, int] | None = None,
    ) -> None:
        """A broker named a new leader in an error (KIP-951)."""
        if endpoint is not None:
            self._refresher.apply(self.metadata.with_node(node_id, *endpoint))
        self._refresher.apply(self.metadata.with_leader(tp, node_id, leader_epoch))

    # --- nodes ---

    def broker(self, node_id: NodeId) -> BrokerClient:
        """The client of a node. Raises `ConnectionFailed` if the metadata does not list it."""
        node = self._refresher.metadata.nodes.get(node_id)
        if node is None:
            raise ConnectionFailed(f"the cluster lists no broker {node_id}", broker=str(node_id))
        return self._brokers.of_node(node)

    async def coordinator(
        self, key: str, type: CoordinatorType = CoordinatorType.GROUP, *, deadline: float
    ) -> NodeId:
        """The node that coordinates a group or transaction, asked for if it is not known.

        Raises `BrokerError` for what waiting does not mend, `RequestTimedOut` at the deadline.
        """
        route = Coordinator(key, type)
        known = self._coordinators.get(route)
        if known is not None and known in self.metadata.nodes:
            return known
        request, min_version = find_request(route)
        attempt = 0
        error: KafkaError | None = None
        while True:
            attempt += 1
            try:
                response, broker = await self.exchange(
                    request, to=AnyNode(), deadline=deadline, min_version=min_version
                )
            except KafkaError as failure:
                raise telling(failure, error) from None
            found = read_found(response, key)
            code, reason = found.error_code, found.error_message
            if code == ErrorCode.NONE:
                self._refresher.apply(
                    self.metadata.with_node(found.node_id, found.host, found.port)
                )
                if found.node_id in self.metadata.nodes:
                    self._coordinators.put(route, found.node_id)
                    return found.node_id
                reason = f"the coordinator is said to be {found.node_id} at {found.host!r}"
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            error = error_for(code, api="FindCoordinator", broker=broker, attempt=attempt)
            if reason:
                error.reason += f" ({reason})"
            await self._pause(attempt, deadline, error)

    def known_versions(self, route: Coordinator) -> Versions | None:
        """What a coordinator speaks, while it is known and connected."""
        node_id = self._coordinators.get(route)
        known = node_id is not None and node_id in self.metadata.nodes
        return self.broker(node_id).versions if known and node_id is not None else None

    def finalized(self, feature: str) -> int | None:
        """The level of a feature of the whole cluster, by the newest that a node has told; None
        before the first connection."""
        return self._brokers.finalized(feature)

    def coordinator_failed(self, key: str, type: CoordinatorType = CoordinatorType.GROUP) -> None:
        """The coordinator has moved or cannot be reached: ask anew next time."""
        self._coordinators.forget(Coordinator(key, type))

    def leave_connection(self, node_id: NodeId, lane: Lane) -> None:
        """A node has answered nothing there for too long: take another connection from now on."""
        if node_id in self.metadata.nodes:
            self.broker(node_id).leave(lane)

    # --- requests ---

    async def request(
        self,
        message: Request[R] | ByVersion[R],
        *,
        to: Route,
        deadline: float,
        retry: bool = True,
        lane: Lane | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> R:
        """Send a request to where it belongs, and again until the deadline while that can help.

        Repeated are failures of the connection and, on the way to the controller or a coordinator,
        answers that it is elsewhere or not ready; each attempt has request_timeout_ms. With
        `retry=False` there is one attempt, which may last until `deadline`, and such answers are
        given back. Raises as `BrokerClient.request` does.
        """
        response, _ = await self.exchange(
            message,
            to=to,
            deadline=deadline,
            retry=retry,
            lane=lane,
            min_version=min_version,
            max_version=max_version,
        )
        return response

    async def exchange(
        self,
        message: Request[R] | ByVersion[R],
        *,
        to: Route,
        deadline: float,
        retry: bool = True,
        lane: Lane | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> tuple[R, str]:
        """As `request`; gives with the response the name of the broker that it is from."""
        api = APIS[ApiKey(message.api_key)].name
        attempt = 0
        error: KafkaError | None = None
        too_old: set[NodeId | None] = set()
        while True:
            attempt += 1
            until = deadline if not retry else self._attempt_until(deadline)
            try:
                client = await self._locate(to, deadline, too_old)
                response = await client.request(
                    message,
                    deadline=until,
                    lane=lane,
                    min_version=min_version,
                    max_version=max_version,
                )
            except UnsupportedVersion:
                if not isinstance(to, AnyNode):
                    raise
                too_old.add(client.node_id)
                if too_old.issuperset(self.metadata.nodes):
                    raise
                # While a cluster is upgraded another node may have what this one lacks.
                continue
            except (ConnectionFailed, ConnectionLost, RequestTimedOut) as failure:
                self._note_failure(failure, to, attempt, api)
                if not retry or not failure.retriable:
                    raise
                error = telling(failure, error)
            else:
                code = self._note_answer(response, to)
                if code is None or not retry:
                    return response, client.name
                error = error_for(code, api=api, broker=client.name, attempt=attempt)
            await self._pause(attempt, deadline, error)

    def submit(
        self,
        message: Request[R] | ByVersion[R],
        *,
        to: Coordinator,
        deadline: float,
        told: Callable[[R | KafkaError, str], None],
        min_version: int = 0,
        max_version: int | None = None,
    ) -> bool:
        """Send a request once, as `exchange` without `retry`, if that needs no waiting: the
        coordinator is known and connected. False if not; then nothing is done.

        `told` gets what `exchange` gives or raises, or what a `RawRequest` made of the answer, and
        the name of the broker.
        """
        node_id = self._coordinators.get(to)
        if node_id is None or node_id not in self.metadata.nodes:
            return False
        client = self.broker(node_id)
        try:
            promise = client.submit(
                message, deadline=deadline, min_version=min_version, max_version=max_version
            )
        except KafkaError:
            return False  # whoever waits for it hears it
        if promise is None:
            return False

        def done(promise: Promise[R]) -> None:
            error = promise.error
            if error is None:
                response = promise.result()
                if isinstance(response, Response):  # not what a `RawRequest` has found in order
                    self._note_answer(response, to)
                told(response, client.name)
                return
            assert isinstance(error, KafkaError)
            if isinstance(error, ConnectionFailed | ConnectionLost | RequestTimedOut):
                self._note_failure(error, to, 1, APIS[ApiKey(message.api_key)].name)
            told(error, client.name)

        promise.when_done(done)
        return True

    def _note_failure(self, failure: KafkaError, to: Route, attempt: int, api: str) -> None:
        self._lost(to)
        failure.attempt = failure.attempt or attempt
        failure.api = failure.api or api

    def _note_answer(self, response: Response, to: Route) -> int | None:
        """The code by which a node says that another one should have been asked, or later."""
        code = misrouted(response, to)
        if code is not None and code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._lost(to)
        return code

    async def to_all(
        self, message: Request[R] | ByVersion[R], *, deadline: float
    ) -> dict[NodeId, R | KafkaError]:
        """Send a request to every node at once; each one's response, or why there is none.

        A node that is not ready to coordinate anything is asked again until the deadline. Raises
        `NoBrokerAvailable` if no node is known by then.
        """
        answers: dict[NodeId, R | KafkaError] = {}

        async def ask(node_id: NodeId) -> None:
            attempt = 0
            try:
                while True:
                    attempt += 1
                    response, broker = await self.exchange(
                        message, to=Node(node_id), deadline=deadline
                    )
                    code = not_ready(response)
                    if code is None:
                        answers[node_id] = response
                        return
                    api = APIS[ApiKey(message.api_key)].name
                    error = error_for(code, api=api, broker=broker, attempt=attempt)
                    await self._pause(attempt, deadline, error)
            except KafkaError as error:
                answers[node_id] = error

        await self._nodes_known(deadline)
        nodes = sorted(self.metadata.nodes)
        async with anyio.create_task_group() as group:
            for node_id in nodes:
                group.start_soon(ask, node_id)
        return {node_id: answers[node_id] for node_id in nodes}

    # --- routing ---

    async def _locate(
        self, to: Route, deadline: float, but_for: Container[NodeId | None] = ()
    ) -> BrokerClient:
        match to:
            case Node(node_id):
                return self.broker(node_id)
            case Coordinator(key, kind):
                return self.broker(await self.coordinator(key, kind, deadline=deadline))
            case Controller():
                return self.broker(await self._controller(deadline))
            case AnyNode():
                await self._nodes_known(deadline)
                now = self._runtime.clock.now()
                nodes = {
                    node_id: node
                    for node_id, node in self.metadata.nodes.items()
                    if node_id not in but_for
                }
                loads = self._brokers.loads(nodes)
                chosen = least_loaded(loads, now, self._runtime.rng)
                if chosen is None:
                    raise NoBrokerAvailable("no broker of the cluster is known")
                return self.broker(chosen)

    async def _nodes_known(self, deadline: float) -> None:
        """Wait for the first metadata, if the client was started without it."""
        while not self.metadata.nodes:
            if not await self._refresher.wait_update(
                self.metadata.version, deadline, fail_early=True
            ):
                failure = self._refresher.last_failure
                why = f": {failure.reason}" if failure is not None else ""
                raise NoBrokerAvailable(f"no broker was reached before the deadline{why}")

    async def _controller(self, deadline: float) -> NodeId:
        while self.metadata.controller_id not in self.metadata.nodes:
            version = self.metadata.version
            self._refresher.request_update()
            if not await self._refresher.wait_update(version, deadline, fail_early=True):
                raise RequestTimedOut(
                    "the cluster named no controller before the deadline", sent=False
                )
        return self.metadata.controller_id

    def _lost(self, to: Route) -> None:
        """What was known of a way has proved wrong."""
        # mutation: moved-coordinator-not-forgotten
        if isinstance(to, Coordinator):
            self._coordinators.forget(to)
        self._refresher.request_update()

    def _attempt_until(self, deadline: float) -> float:
        return min(deadline, self._runtime.clock.now() + self.config.request_timeout_ms / 1_000)

    async def _pause(self, attempt: int, deadline: float, error: KafkaError) -> None:
        """Wait before the next attempt; raise `error` if it cannot help or would be too late."""
        if not error.retriable:
            raise error
        clock = self._runtime.clock
        again_at = clock.now() + self._backoff.delay(attempt, self._runtime.rng)
        if again_at >= deadline:
            raise error
        await clock.sleep_until(again_at)
