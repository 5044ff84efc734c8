"""Throttling of requests and connections.

A client that exceeds a quota learns the throttle time from the response. Its connection is then
muted for that time (KIP-219); before 2.0 the response was delayed instead. A throttled Fetch
response has no records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from aiokafkawire.broker.quotas.controller_mutations import STRICT_SINCE, MutationQuota
from aiokafkawire.broker.quotas.entities import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from aiokafkawire.broker.request_context import ClientConnection, RequestContext
from aiokafkawire.runtime import AutoResetEvent, Clock
from aiokafkawire.wire import ApiKey, ErrorCode, Response
from aiokafkawire.wire.messages.fetch import FetchRequest, FetchResponse

__all__ = ("ConnectionThrottle", "handle_within_quotas")

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
"""Epochs of Fetch requests outside an incremental session."""

NO_SESSION = 0

PERCENT = 100

CONTROLLER = -1
"""Stands for the controller, whichever node it is, in `BrokerState.quota_manager`."""

FIRST_WITH_MUTATION_QUOTA = "2.7"

EXEMPT = frozenset(
    {
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
    }
)
"""APIs without request quota: those of the cluster, and of the authentication."""


class ConnectionThrottle:
    """Mutes a connection until a time."""

    def __init__(self, clock: Clock, connection: ClientConnection) -> None:
        self._clock = clock
        self._connection = connection
        self._until = -1.0

    def mute(self, throttle_s: float) -> None:
        """Mute the connection from now on."""
        self._until = max(self._until, self._clock.now() + throttle_s)

    async def wait(self) -> None:
        """Wait until the connection is not muted, or closed."""
        if self._until <= self._clock.now():
            return
        signal = AutoResetEvent()
        self._connection.on_close.add(signal.set)
        try:
            while self._until > self._clock.now() and not self._connection.is_closed:
                await signal.wait(self._until)
        finally:
            self._connection.on_close.remove(signal.set)


async def handle_within_quotas(
    context: RequestContext,
    request: Any,
    api_key: ApiKey,
    size_bytes: int,
    handle: Callable[[RequestContext, Any], Awaitable[Response | None]],
) -> tuple[Response | None, float]:
    """Call a handler, and measure it against the quotas of its client.

    Returns:
        The response, and the throttle time in seconds.
    """
    manager = context.quota_manager
    if not manager.quotas or context.is_from_broker or api_key in EXEMPT:
        return await handle(context, request), 0.0
    clock, user, client = context.state.clock, context.user, context.client_id
    mutations: MutationQuota | None = None
    if api_key in STRICT_SINCE and context.release.since(FIRST_WITH_MUTATION_QUOTA):
        is_strict = context.version >= STRICT_SINCE[api_key]
        controller = context.state.quota_manager(CONTROLLER)
        mutations = controller.mutation_quota(user, client, clock.now, is_strict=is_strict)
        context = dataclasses.replace(context, mutation_quota=mutations)
    timed = _Timed(handle(context, request), clock.now)
    response = await timed
    now = clock.now()
    percent = timed.used_s * PERCENT
    throttle_s = manager.record(REQUEST_PERCENTAGE, user, client, percent, now)
    if mutations is not None:
        throttle_s = max(throttle_s, mutations.throttle_s)
    if api_key is ApiKey.PRODUCE:
        throttle_s = max(
            throttle_s, manager.record(PRODUCER_BYTE_RATE, user, client, size_bytes, now)
        )
    elif isinstance(response, FetchResponse):
        fetched = _size_bytes(response)
        throttle_s = max(throttle_s, manager.record(CONSUMER_BYTE_RATE, user, client, fetched, now))
        if throttle_s:
            manager.unrecord(CONSUMER_BYTE_RATE, user, client, fetched, now)
            response = _without_records(request, response)
    if response is not None and throttle_s and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = min(round(throttle_s * 1000), 2**31 - 1)
    return response, throttle_s


def _size_bytes(response: FetchResponse) -> int:
    return sum(
        len(partition.records or b"")
        for topic in response.responses
        for partition in topic.partitions
    )


def _without_records(request: FetchRequest, response: FetchResponse) -> FetchResponse:
    """Return a response without partitions; a new session has not begun."""
    is_full = request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}
    return FetchResponse(
        error_code=ErrorCode.NONE,
        session_id=NO_SESSION if is_full else response.session_id,
        responses=[],
    )


class _Timed:
    """An awaitable whose own running time is measured, without the time in which it waits."""

    def __init__(self, awaitable: Awaitable[Response | None], now: Callable[[], float]) -> None:
        self.used_s = 0.0
        self._awaitable = awaitable
        self._now = now

    def __await__(self) -> Generator[Any, Any, Response | None]:
        steps = self._awaitable.__await__()
        value: Any = None
        failure: BaseException | None = None
        while True:
            began = self._now()
            try:
                waited_for = steps.send(value) if failure is None else steps.throw(failure)
            except StopIteration as done:
                result: Response | None = done.value
                return result
            finally:
                self.used_s += self._now() - began
            try:
                value, failure = (yield waited_for), None
            except BaseException as error:
                failure = error
