"""`ping`: ask brokers now whether they answer, with nothing taken from what is cached."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from aiokafkawire.cluster.bootstrap import metadata_request
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
from aiokafkawire.types import NodeId, PingResult
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, Request, Response, error_for
from aiokafkawire.wire.messages.metadata import MetadataResponse
from aiokafkawire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

__all__ = ("NEXT_BROKER_AFTER_S", "Pinger")

NEXT_BROKER_AFTER_S = 0.25
"""A broker that has not answered for this long is not waited for alone: the next one is asked too.

Less where the timeout is short for the number of brokers, so that half of it is left for the last.
"""

FIRST_WITH_GROUP_ERROR = 2
"""Version of OffsetFetch from which the coordinator reports an error of the group as a whole."""

R = TypeVar("R", bound=Response)


class _Attempt(Generic[R]):
    """One request to one broker, sent by a task of the client. Ended when one of both is set."""

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
    def answer(self) -> R:
        """The response, which must be there."""
        assert self.response is not None
        return self.response


class _Ping:
    """One `ping`: its deadline, the tasks that it started, and the brokers that answered it."""

    def __init__(self, timeout_ms: float, deadline: float) -> None:
        self.timeout_ms = timeout_ms
        self.deadline = deadline
        self.changed = AutoResetEvent()
        self.attempts: list[_Attempt[Any]] = []
        self.answered: dict[str, float] = {}

    def note(self, attempt: _Attempt[Any]) -> None:
        """Count a broker as one that answered."""
        before = self.answered.get(attempt.name, 0.0)
        self.answered[attempt.name] = max(before, attempt.latency_s)

    def error_of(self, attempt: _Attempt[Any]) -> KafkaError:
        """Why an attempt gave no answer. Raises what is no `KafkaError`."""
        if isinstance(attempt.error, KafkaError):
            attempt.error.broker = attempt.name
            return attempt.error
        if attempt.error is not None:
            raise attempt.error
        return RequestTimedOut(
            f"no answer within {self.timeout_ms:g} ms", broker=attempt.name, api=attempt.api
        )

    def cancel(self) -> None:
        """End the tasks that still run."""
        for attempt in self.attempts:
            if attempt.task is not None and not attempt.done:
                attempt.task.cancel()


class Pinger:
    """Sends the requests of `ping`.

    They go out in tasks of the client, so that neither a cancellation nor a broker that hangs
    holds up the caller.
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
        """Return which brokers answered, or raise why one that had to did not."""
        if not timeout_ms >= 0:  # NaN is not either
            raise ValueError(f"timeout_ms must be at least 0, not {timeout_ms!r}")
        call = _Ping(timeout_ms, self._runtime.clock.now() + timeout_ms / 1_000)
        try:
            if topic is not None:
                await self._leaders(call, topic)
            if group is not None:
                await self._coordinator(call, group)
            if topic is None and group is None:
                call.note(await self._first_answer(call, _no_topics()))
        finally:
            call.cancel()
        return PingResult(tuple(call.answered), max(call.answered.values()) * 1_000)

    async def _leaders(self, call: _Ping, topic: str) -> None:
        """Ask for the leaders of a topic, then each of them."""
        found = await self._first_answer(call, metadata_request((topic,), allow_creation=False))
        snapshot = EMPTY_SNAPSHOT.with_response(found.answer, (topic,)).snapshot
        led = _led(snapshot, topic, found.name)
        attempts = {
            node_id: self._begin_at(call, snapshot.nodes[node_id], _no_topics()) for node_id in led
        }
        await self._all_ended(call, list(attempts.values()))
        errors: list[KafkaError] = []
        for node_id, attempt in attempts.items():
            if attempt.response is not None:
                call.note(attempt)
            else:
                error = call.error_of(attempt)
                if isinstance(error, ClientClosed):
                    raise error
                partitions = ", ".join(map(str, led[node_id]))
                error.reason += f"; broker {node_id} leads partition {partitions}"
                errors.append(error)
        if errors:
            raise _one_error(errors, topic)

    async def _coordinator(self, call: _Ping, group: str) -> None:
        """Ask for the coordinator of a group, then the coordinator whether it has the group."""
        request, min_version = find_coordinator_request(ToCoordinator(group))
        attempt = await self._first_answer(call, request, min_version)
        found = read_find_coordinator(attempt.answer, group)
        context: dict[str, Any] = {"broker": attempt.name, "group": group}
        if found.error_code != ErrorCode.NONE:
            error = error_for(found.error_code, api="FindCoordinator", **context)
            if found.error_message:
                error.reason += f" ({found.error_message})"
            raise error
        address = valid_address(found.host, found.port)
        if address is None:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, api="FindCoordinator", **context)
        node = NodeInfo(found.node_id, address)
        asked = self._begin_at(call, node, _no_offsets(group), FIRST_WITH_GROUP_ERROR)
        await self._all_ended(call, [asked])
        if isinstance(asked.error, UnsupportedVersion):
            asked = self._begin_at(call, node, _no_topics())
            await self._all_ended(call, [asked])
        if asked.response is None:
            failure = call.error_of(asked)
            failure.group = group
            raise failure
        call.note(asked)
        for code in error_codes(asked.response):
            raise error_for(code, api="OffsetFetch", broker=asked.name, group=group)

    # --- requests ---

    async def _first_answer(
        self, call: _Ping, message: Request[R] | VersionedRequest[R], min_version: int = 0
    ) -> _Attempt[R]:
        """Ask one broker after the other, without waiting long for each; the first answer counts.

        Raises `NoBrokerAvailable` with what is known of each, when all have failed or the deadline
        comes; `AuthenticationFailed` if that is why.
        """
        waiting = deque(self._candidates())
        now = self._runtime.clock.now
        next_at = now()
        step_s = min(NEXT_BROKER_AFTER_S, (call.deadline - next_at) / (2 * len(waiting)))
        attempts: list[_Attempt[R]] = []
        while True:
            for attempt in attempts:
                if attempt.response is not None:
                    return attempt
            ended = all(attempt.done for attempt in attempts)
            if (ended and not waiting) or now() >= call.deadline:
                raise _no_answer(call, attempts)
            if waiting and (ended or now() >= next_at):
                attempts.append(self._begin(call, waiting.popleft(), message, min_version))
                next_at = now() + step_s
            else:
                await call.changed.wait(min(next_at, call.deadline) if waiting else call.deadline)

    async def _all_ended(self, call: _Ping, attempts: Sequence[_Attempt[Any]]) -> None:
        """Wait until each attempt has an answer or has failed, or the deadline comes."""
        while not all(attempt.done for attempt in attempts):
            if not await call.changed.wait(call.deadline):
                return

    def _begin_at(
        self,
        call: _Ping,
        node: NodeInfo,
        message: Request[R] | VersionedRequest[R],
        min_version: int = 0,
    ) -> _Attempt[R]:
        """Ask a node that a broker has just named.

        Where the metadata has another address of it, or lacks it, the metadata stays as it is.
        """
        known = self._metadata_updater.metadata.nodes.get(node.node_id)
        if known is not None and known.address == node.address:
            client = self._broker_clients.for_node(known)
        else:
            client = self._broker_clients.for_address(node.address)
        return self._begin(call, client, message, min_version, node.node_id)

    def _begin(
        self,
        call: _Ping,
        client: BrokerClient,
        message: Request[R] | VersionedRequest[R],
        min_version: int = 0,
        node_id: NodeId | None = None,
    ) -> _Attempt[R]:
        attempt: _Attempt[R] = _Attempt(client, APIS[ApiKey(message.api_key)].name, node_id)
        call.attempts.append(attempt)
        if not self._supervisor.is_running:
            attempt.error = ClientClosed("the client is closed")
            return attempt
        attempt.task = self._supervisor.spawn(
            self._ask, call, attempt, message, min_version, name=f"ping {client.name}"
        )
        return attempt

    async def _ask(
        self,
        call: _Ping,
        attempt: _Attempt[R],
        message: Request[R] | VersionedRequest[R],
        min_version: int,
    ) -> None:
        now = self._runtime.clock.now
        began_at = now()
        try:
            response = await attempt.client.probe(
                message, deadline=call.deadline, min_version=min_version
            )
            if isinstance(response, MetadataResponse) and response.error_code != ErrorCode.NONE:
                raise error_for(response.error_code, api=attempt.api, broker=attempt.name)
            attempt.response, attempt.latency_s = response, now() - began_at
        except Exception as error:
            # The caller of `ping` raises it. A connection may end before this task when the client
            # does.
            attempt.error = (
                error if self._supervisor.is_running else ClientClosed("the client is closed")
            )
        except BaseException:
            attempt.error = ClientClosed("the client is closed")
            raise
        finally:
            call.changed.set()

    # --- brokers ---

    def _candidates(self) -> list[BrokerClient]:
        """Every known broker, the one most likely to answer first, then the bootstrap addresses."""
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


def _no_topics() -> VersionedRequest[Any]:
    """Metadata of no topic: the least that shows that a broker handles requests.

    Version 0 (Kafka 0.8 and 0.9) cannot ask for none, and lists all.
    """
    return metadata_request((), allow_creation=False)


def _no_offsets(group: str) -> VersionedRequest[OffsetFetchResponse]:
    """OffsetFetch of no partition: a broker refuses it unless it coordinates the group now."""

    def build(version: int) -> OffsetFetchRequest:
        if version >= 8:
            return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[])])
        return OffsetFetchRequest(group_id=group, topics=[])

    return VersionedRequest(ApiKey.OFFSET_FETCH, build)


def _led(snapshot: MetadataSnapshot, topic: str, broker: str) -> dict[int, list[int]]:
    """The partitions of a topic by their leader. Raises what the broker says instead."""
    found = snapshot.topics.get(topic)
    if found is None or not found.partitions:
        code = snapshot.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopic(
                f"topic {topic!r} does not exist", broker=broker, api="Metadata", topic=topic
            )
        raise error_for(code, broker=broker, api="Metadata", topic=topic)
    led: dict[int, list[int]] = {}
    for partition in found.partitions.values():
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


def _one_error(errors: Sequence[KafkaError], topic: str) -> KafkaError:
    """The error of the first leader that does not answer, which names the others too."""
    error = copy_error(errors[0])
    error.topic = topic
    others = "; ".join(f"{other.broker}: {other.reason}" for other in errors[1:])
    if others:
        error.reason += f"; also {others}"
    return error


def _no_answer(call: _Ping, attempts: Sequence[_Attempt[Any]]) -> KafkaError:
    """Why no broker answered: the one reason that matters, or that of each."""
    errors = [call.error_of(attempt) for attempt in attempts]
    for error in errors:
        if isinstance(error, ClientClosed | AuthenticationFailed):
            return error
    reasons = "; ".join(
        error.reason
        if error.broker is None or error.reason.startswith(f"{error.broker}: ")
        else f"{error.broker}: {error.reason}"
        for error in errors
    )
    # If every attempt has failed before, the time that the call had is no reason.
    timed_out = not errors or any(isinstance(error, RequestTimedOut) for error in errors)
    within = f" within {call.timeout_ms:g} ms" if timed_out else ""
    return NoBrokerAvailable(
        f"no broker answered{within}" + (f": {reasons}" if reasons else ""),
        api=attempts[0].api if attempts else None,
        retriable=not errors or any(error.retriable for error in errors),
    )
