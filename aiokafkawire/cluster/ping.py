"""`ping`: check now that brokers respond, without cached results."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from aiokafkawire.cluster.bootstrap import metadata_request, reason_with_broker
from aiokafkawire.cluster.broker_clients import BrokerClients
from aiokafkawire.cluster.coordinators import find_coordinator_request, read_find_coordinator
from aiokafkawire.cluster.metadata import EMPTY_SNAPSHOT, MetadataSnapshot, NodeInfo, valid_address
from aiokafkawire.cluster.metadata_updater import MetadataUpdater
from aiokafkawire.cluster.routing import NodeLoad, ToCoordinator, error_codes
from aiokafkawire.config import ClientConfig
from aiokafkawire.connection import BrokerClient, VersionedRequest
from aiokafkawire.errors import (
    AuthenticationFailed,
    ClientClosed,
    KafkaError,
    NoBrokerAvailable,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedVersion,
)
from aiokafkawire.runtime import (
    Address,
    AutoResetEvent,
    Runtime,
    Supervisor,
    TaskHandle,
    copy_error,
)
from aiokafkawire.types import NodeId, PingResult, require_timeout
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, Request, Response, error_for
from aiokafkawire.wire.messages.metadata import MetadataResponse
from aiokafkawire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

__all__ = ("NEXT_BROKER_AFTER_S", "Pinger")

NEXT_BROKER_AFTER_S = 0.25
"""Time without a response after which the next broker gets the request too.

It is shorter if the timeout is short for the number of brokers: half of the timeout is left for
the last one.
"""

FIRST_WITH_GROUP_ERROR = 2
"""OffsetFetch version from which the coordinator reports an error of the whole group."""

R = TypeVar("R", bound=Response)


class _Attempt(Generic[R]):
    """One request to one broker, sent by a task. It is done once `response` or `error` is set."""

    def __init__(self, client: BrokerClient, api: str, node_id: NodeId | None) -> None:
        self.client = client
        self.name = client.name if node_id is None else f"{node_id} at {client.address}"
        self.api = api
        self.response: R | None = None
        self.error: Exception | None = None
        self.latency_s = 0.0
        self.task: TaskHandle | None = None

    @property
    def done(self) -> bool:
        return self.response is not None or self.error is not None

    @property
    def result(self) -> R:
        """Response of a successful attempt."""
        assert self.response is not None
        return self.response


class _Ping:
    """State of one `ping`: deadline, tasks, and the brokers that responded."""

    def __init__(self, timeout_ms: float, deadline: float) -> None:
        self.timeout_ms = timeout_ms
        self.deadline = deadline
        self.changed = AutoResetEvent()
        self.attempts: list[_Attempt[Any]] = []
        self.latencies_s: dict[str, float] = {}

    def record(self, attempt: _Attempt[Any]) -> None:
        """Record the latency of a broker that responded."""
        before = self.latencies_s.get(attempt.name, 0.0)
        self.latencies_s[attempt.name] = max(before, attempt.latency_s)

    def error_of(self, attempt: _Attempt[Any]) -> KafkaError:
        """Return the error of a failed or late attempt; raise it unless it is a `KafkaError`."""
        if isinstance(attempt.error, KafkaError):
            attempt.error.broker = attempt.name
            return attempt.error
        if attempt.error is not None:
            raise attempt.error
        return RequestTimedOut(
            f"no response within {self.timeout_ms:g} ms", broker=attempt.name, api=attempt.api
        )

    def cancel(self) -> None:
        """Cancel the tasks that still run."""
        for attempt in self.attempts:
            if attempt.task is not None and not attempt.done:
                attempt.task.cancel()


class Pinger:
    """Sends the requests of `ping`.

    Each request runs in a task of the client, so that neither a cancellation nor a hanging broker
    blocks the caller.
    """

    def __init__(
        self,
        config: ClientConfig,
        runtime: Runtime,
        supervisor: Supervisor,
        brokers: BrokerClients,
        metadata_updater: MetadataUpdater,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._supervisor = supervisor
        self._broker_clients = brokers
        self._metadata_updater = metadata_updater

    async def ping(
        self, timeout_ms: float, *, topic: str | None = None, group: str | None = None
    ) -> PingResult:
        """Return the brokers that responded; raise an error if a required broker did not.

        Args:
            timeout_ms: Time for all requests, in milliseconds.
            topic: Require all leaders of this topic.
            group: Require the coordinator of this group.
        """
        require_timeout("timeout_ms", timeout_ms)
        if timeout_ms < 0:
            raise ValueError(f"timeout_ms must be at least 0, not {timeout_ms!r}")
        ping = _Ping(timeout_ms, self._runtime.clock.now() + timeout_ms / 1_000)
        try:
            if topic is not None:
                await self._ping_leaders(ping, topic)
            if group is not None:
                await self._ping_coordinator(ping, group)
            if topic is None and group is None:
                ping.record(await self._first_response(ping, _empty_metadata_request()))
        finally:
            ping.cancel()
        return PingResult(tuple(ping.latencies_s), max(ping.latencies_s.values()) * 1_000)

    async def _ping_leaders(self, ping: _Ping, topic: str) -> None:
        """Look up the leaders of a topic and ping each."""
        metadata = await self._first_response(
            ping, metadata_request((topic,), allow_creation=False)
        )
        snapshot = EMPTY_SNAPSHOT.with_response(metadata.result, (topic,)).snapshot
        led = _partitions_by_leader(snapshot, topic, metadata.name)
        attempts = {
            node_id: self._start_at_node(ping, snapshot.nodes[node_id], _empty_metadata_request())
            for node_id in led
        }
        await self._wait_done(ping, list(attempts.values()))
        errors: list[KafkaError] = []
        for node_id, attempt in attempts.items():
            if attempt.response is not None:
                ping.record(attempt)
            else:
                error = ping.error_of(attempt)
                if isinstance(error, ClientClosed):
                    raise error
                partitions = ", ".join(map(str, led[node_id]))
                error.reason += f"; broker {node_id} leads partition {partitions}"
                errors.append(error)
        if errors:
            raise _merged_error(errors, topic)

    async def _ping_coordinator(self, ping: _Ping, group: str) -> None:
        """Find the coordinator of a group and verify that it coordinates the group."""
        request, min_version = find_coordinator_request(ToCoordinator(group))
        attempt = await self._first_response(ping, request, min_version)
        coordinator = read_find_coordinator(attempt.result, group)
        context: dict[str, Any] = {"broker": attempt.name, "group": group}
        if coordinator.error_code != ErrorCode.NONE:
            error = error_for(coordinator.error_code, api="FindCoordinator", **context)
            if coordinator.error_message:
                error.reason += f" ({coordinator.error_message})"
            raise error
        address = valid_address(coordinator.host, coordinator.port)
        if address is None:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, api="FindCoordinator", **context)
        node = NodeInfo(coordinator.node_id, address)
        verification = self._start_at_node(
            ping, node, _empty_offset_fetch_request(group), FIRST_WITH_GROUP_ERROR
        )
        await self._wait_done(ping, [verification])
        if isinstance(verification.error, UnsupportedVersion):
            verification = self._start_at_node(ping, node, _empty_metadata_request())
            await self._wait_done(ping, [verification])
        if verification.response is None:
            failure = ping.error_of(verification)
            failure.group = group
            raise failure
        ping.record(verification)
        for code in error_codes(verification.response):
            raise error_for(code, api="OffsetFetch", broker=verification.name, group=group)

    # --- requests ---

    async def _first_response(
        self, ping: _Ping, message: Request[R] | VersionedRequest[R], min_version: int = 0
    ) -> _Attempt[R]:
        """Send a request to one broker after the other; return the first successful attempt.

        Raises:
            NoBrokerAvailable: All attempts failed or the deadline came; with the reason of each.
            AuthenticationFailed: A broker rejected the credentials.
        """
        waiting = deque(self._candidates())
        now = self._runtime.clock.now
        next_at = now()
        step_s = min(NEXT_BROKER_AFTER_S, (ping.deadline - next_at) / (2 * len(waiting)))
        attempts: list[_Attempt[R]] = []
        while True:
            for attempt in attempts:
                if attempt.response is not None:
                    return attempt
            ended = all(attempt.done for attempt in attempts)
            if (ended and not waiting) or now() >= ping.deadline:
                raise _no_response_error(ping, attempts)
            if waiting and (ended or now() >= next_at):
                attempts.append(self._start(ping, waiting.popleft(), message, min_version))
                next_at = now() + step_s
            else:
                await ping.changed.wait(min(next_at, ping.deadline) if waiting else ping.deadline)

    async def _wait_done(self, ping: _Ping, attempts: Sequence[_Attempt[Any]]) -> None:
        """Wait until all attempts are done or the deadline comes."""
        while not all(attempt.done for attempt in attempts):
            if not await ping.changed.wait(ping.deadline):
                return

    def _start_at_node(
        self,
        ping: _Ping,
        node: NodeInfo,
        message: Request[R] | VersionedRequest[R],
        min_version: int = 0,
    ) -> _Attempt[R]:
        """Start an attempt at a node from a response.

        The cached metadata does not change if it lacks the node or has another address for it.
        """
        known = self._metadata_updater.metadata.nodes.get(node.node_id)
        if known is not None and known.address == node.address:
            client = self._broker_clients.for_node(known)
        else:
            client = self._broker_clients.for_address(node.address)
        return self._start(ping, client, message, min_version, node.node_id)

    def _start(
        self,
        ping: _Ping,
        client: BrokerClient,
        message: Request[R] | VersionedRequest[R],
        min_version: int = 0,
        node_id: NodeId | None = None,
    ) -> _Attempt[R]:
        attempt: _Attempt[R] = _Attempt(client, APIS[ApiKey(message.api_key)].name, node_id)
        ping.attempts.append(attempt)
        if not self._supervisor.is_running:
            attempt.error = ClientClosed("the client is closed")
            return attempt
        attempt.task = self._supervisor.spawn(
            self._send, ping, attempt, message, min_version, name=f"ping {client.name}"
        )
        return attempt

    async def _send(
        self,
        ping: _Ping,
        attempt: _Attempt[R],
        message: Request[R] | VersionedRequest[R],
        min_version: int,
    ) -> None:
        now = self._runtime.clock.now
        started_at = now()
        try:
            response = await attempt.client.probe(
                message, deadline=ping.deadline, min_version=min_version
            )
            if isinstance(response, MetadataResponse) and response.error_code != ErrorCode.NONE:
                raise error_for(response.error_code, api=attempt.api, broker=attempt.name)
            attempt.response, attempt.latency_s = response, now() - started_at
        except Exception as error:
            # `ping` raises it in the calling task. When the client closes, the connection may end
            # before this task is cancelled.
            attempt.error = (
                error if self._supervisor.is_running else ClientClosed("the client is closed")
            )
        except BaseException:
            attempt.error = ClientClosed("the client is closed")
            raise
        finally:
            ping.changed.set()

    # --- brokers ---

    def _candidates(self) -> list[BrokerClient]:
        """Return the known brokers, least loaded first, then the bootstrap addresses."""
        nodes = self._metadata_updater.metadata.nodes
        loads = self._broker_clients.loads(nodes)
        self._runtime.rng.shuffle(loads)
        loads.sort(key=_rank)
        clients = [self._broker_clients.for_node(nodes[load.node_id]) for load in loads]
        known = {client.address for client in clients}
        servers = [Address(*server) for server in self._config.bootstrap_addresses]
        clients += [
            self._broker_clients.for_address(server) for server in servers if server not in known
        ]
        return clients


def _rank(load: NodeLoad) -> tuple[bool, float, int]:
    return not load.connected, load.ready_at, load.requests


def _empty_metadata_request() -> VersionedRequest[Any]:
    """Build a Metadata request without topics, the cheapest request that a broker handles.

    v0 (Kafka 0.8 and 0.9) cannot request no topics, so it requests all.
    """
    return metadata_request((), allow_creation=False)


def _empty_offset_fetch_request(group: str) -> VersionedRequest[OffsetFetchResponse]:
    """Build an OffsetFetch request without partitions: only the current coordinator accepts it."""

    def build(version: int) -> OffsetFetchRequest:
        if version >= 8:
            return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[])])
        return OffsetFetchRequest(group_id=group, topics=[])

    return VersionedRequest(ApiKey.OFFSET_FETCH, build)


def _partitions_by_leader(
    snapshot: MetadataSnapshot, topic: str, broker: str
) -> dict[int, list[int]]:
    """Return the partitions of a topic by leader; raise if the topic or a leader is missing."""
    topic_metadata = snapshot.topics.get(topic)
    if topic_metadata is None or not topic_metadata.partitions:
        code = snapshot.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopic(
                f"topic {topic!r} does not exist", broker=broker, api="Metadata", topic=topic
            )
        raise error_for(code, broker=broker, api="Metadata", topic=topic)
    led: dict[int, list[int]] = {}
    for partition in topic_metadata.partitions.values():
        if partition.leader_id not in snapshot.nodes:
            raise error_for(
                ErrorCode.LEADER_NOT_AVAILABLE,
                broker=broker,
                api="Metadata",
                topic=topic,
                partition=partition.partition,
            )
        led.setdefault(partition.leader_id, []).append(partition.partition)
    return led


def _merged_error(errors: Sequence[KafkaError], topic: str) -> KafkaError:
    """Return the error of the first failed leader, with the reasons of the others appended."""
    error = copy_error(errors[0])
    error.topic = topic
    others = "; ".join(map(reason_with_broker, errors[1:]))
    if others:
        error.reason += f"; also {others}"
    return error


def _no_response_error(ping: _Ping, attempts: Sequence[_Attempt[Any]]) -> KafkaError:
    """Return the error for a request without a response from any broker."""
    errors = [ping.error_of(attempt) for attempt in attempts]
    for error in errors:
        if isinstance(error, ClientClosed | AuthenticationFailed):
            return error
    reasons = [*map(reason_with_broker, errors)]
    # If all attempts failed before the deadline, the timeout is not the reason.
    timed_out = not errors or any(isinstance(error, RequestTimedOut) for error in errors)
    within = f" within {ping.timeout_ms:g} ms" if timed_out else ""
    return NoBrokerAvailable(
        f"no broker responded{within}" + (f": {'; '.join(reasons)}" if reasons else ""),
        reasons=reasons,
        api=attempts[0].api if attempts else None,
        retriable=not errors or any(error.retriable for error in errors),
    )
