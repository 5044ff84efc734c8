"""Requests of one call of the admin client: targets, retries and the deadline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import anyio

from aiokafkawire.admin.items import ItemRequest, response_error
from aiokafkawire.admin.locations import (
    forget_locations,
    locate,
    locate_brokers,
    require_brokers,
)
from aiokafkawire.admin.releases import add_release
from aiokafkawire.admin.routing import RETRIED_CODES, TARGETS, Target
from aiokafkawire.cluster import Cluster, Route, ToAnyNode, ToController
from aiokafkawire.cluster.all_nodes import request_all_nodes
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import (
    BrokerError,
    KafkaError,
    ProtocolError,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.runtime import Runtime
from aiokafkawire.types import NodeId
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, Request, Response

__all__ = ("MAX_PARALLEL_REQUESTS", "Requester")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
R = TypeVar("R", bound=Response)

MAX_PARALLEL_REQUESTS = 64
"""Requests of one call that are in flight at the same time."""

MAX_TIMEOUT_MS = 2**31 - 1
"""Largest timeout that a request can carry; a deadline may be later, or infinite."""

_MISSING = object()
"""Result of an item until the response has one."""


class Requester:
    """Sends the requests of one call until `deadline`, in seconds of the runtime's clock."""

    def __init__(self, cluster: Cluster, runtime: Runtime, deadline: float) -> None:
        self.cluster = cluster
        self.runtime = runtime
        self.deadline = deadline

    @property
    def left_ms(self) -> int:
        """Milliseconds until the deadline, at least 1 and at most `MAX_TIMEOUT_MS`."""
        left_ms = (self.deadline - self.runtime.clock.now()) * 1_000
        return max(int(min(left_ms, MAX_TIMEOUT_MS)), 1)

    @property
    def timeout_ms(self) -> int:
        """Milliseconds that a broker may take: until the deadline or the request timeout."""
        return min(self.left_ms, self.cluster.config.request_timeout_ms)

    @property
    def uses_controllers(self) -> bool:
        """True if all requests go to the active controller (KIP-919)."""
        return self.cluster.config.uses_controllers

    # --- one request ---

    async def request(
        self,
        message: Request[R] | VersionedRequest[R],
        *,
        to: Route | None = None,
        min_version: int = 0,
        max_version: int | None = None,
        retried: frozenset[ErrorCode] = RETRIED_CODES,
        context: Mapping[str, Any] | None = None,
    ) -> R:
        """Send a request and return the response; retry until the deadline.

        Args:
            message: The request.
            to: Defaults to any broker or the controller, as `TARGETS` has it.
            min_version: Lowest version that can carry the request.
            max_version: Highest version that the caller can read.
            retried: Codes in the response's own `error_code` after which it is sent again.
            context: Attributes of `KafkaError`, for the error of the response.

        Raises:
            BrokerError: The response has an error code of its own.
            UnsupportedVersion: The brokers are too old; the text names the release needed.
            KafkaError: As `Cluster.request`.
        """
        if to is None:
            to = self.default_route(ApiKey(message.api_key))
        attempt = 0
        while True:
            attempt += 1
            response, broker = await self._send(
                message, to, retry=True, min_version=min_version, max_version=max_version
            )
            error = self._own_error(response, message.api_key, broker, attempt, context)
            if error is None:
                return response
            if error.code not in retried or not await self.cluster.retry_backoff.wait(
                attempt, self.deadline
            ):
                raise error

    async def request_all(
        self, message: Request[R] | VersionedRequest[R]
    ) -> dict[NodeId, R | KafkaError]:
        """Send a request to all brokers; return the response or the error of each."""
        require_brokers(self, ApiKey(message.api_key))
        results = await request_all_nodes(self.cluster, message, deadline=self.deadline)
        for node_id, result in results.items():
            if isinstance(result, UnsupportedVersion):
                add_release(result, message.api_key)
            if not isinstance(result, KafkaError):
                error = self._own_error(result, message.api_key, str(node_id), None, None)
                results[node_id] = result if error is None else error
        return results

    async def request_nodes(
        self, messages: Mapping[NodeId, Request[R] | VersionedRequest[R]]
    ) -> dict[NodeId, R | KafkaError]:
        """Send a request of its own to each of some brokers; return its response or error."""
        results: dict[NodeId, R | KafkaError] = {}

        async def send(node_id: NodeId, route: Route | KafkaError) -> None:
            message = messages[node_id]
            try:
                if isinstance(route, KafkaError):
                    raise route
                results[node_id] = await self.request(message, to=route)
            except KafkaError as error:
                results[node_id] = error

        for message in messages.values():
            require_brokers(self, ApiKey(message.api_key))
        routes = await locate_brokers(self, {node_id: node_id for node_id in messages})
        await self.run_parallel(send, list(routes.items()))
        return {node_id: results[node_id] for node_id in messages}

    def default_route(self, api_key: ApiKey) -> Route:
        """Return the route of an API whose target is any broker or the controller."""
        target = TARGETS[api_key]
        if target is Target.CONTROLLER or self.uses_controllers:
            return ToController()
        assert target is Target.ANY_BROKER, f"{api_key.name} is sent to {target.value}"
        return ToAnyNode()

    async def _send(
        self,
        message: Request[R] | VersionedRequest[R],
        to: Route,
        *,
        retry: bool,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> tuple[R, str]:
        deadline = self.deadline
        if not retry:
            request_timeout_s = self.cluster.config.request_timeout_ms / 1_000
            deadline = min(deadline, self.runtime.clock.now() + request_timeout_s)
        try:
            await self._check_controller(message.api_key, to, max_version)
            return await self.cluster.request_with_broker(
                message,
                to=to,
                deadline=deadline,
                retry=retry,
                min_version=min_version,
                max_version=max_version,
            )
        except UnsupportedVersion as error:
            if self.uses_controllers:
                error.reason += "; with bootstrap_servers, brokers may"
            else:
                add_release(error, message.api_key, min_version)
            raise

    async def _check_controller(self, api_key: int, to: Route, max_version: int | None) -> None:
        """Raise `UnsupportedVersion` if brokers too old to name a controller lack an API."""
        metadata = self.cluster.metadata
        if to == ToController() and metadata.controller_id not in metadata.nodes and metadata.nodes:
            anyone = self.cluster.broker_client(min(metadata.nodes))
            versions = await anyone.get_api_versions(self.deadline)
            versions.latest_usable_version(api_key, max_version)

    def _own_error(
        self,
        response: Response,
        api_key: int,
        broker: str,
        attempt: int | None,
        context: Mapping[str, Any] | None,
    ) -> BrokerError | None:
        """Return the error of the response itself."""
        return response_error(
            getattr(response, "error_code", ErrorCode.NONE),
            getattr(response, "error_message", None),
            api=APIS[ApiKey(api_key)].name,
            **{"broker": broker, "attempt": attempt, **(context or {})},
        )

    # --- many items ---

    async def request_items(
        self, request: ItemRequest[K, V], keys: Iterable[K]
    ) -> dict[K, V | KafkaError]:
        """Send the requests of an operation; return the result or error of each item.

        Items are grouped by broker, and the requests run in parallel. Items with an error that is
        retried are located again, and sent again after the backoff until the deadline.
        """

        async def attempt(pending: Sequence[K], number: int) -> dict[K, V | KafkaError]:
            located = await locate(self, request, pending)
            results: dict[K, V | KafkaError] = dict(located.failed)
            batches: list[tuple[Route, Sequence[K]]] = []
            for route, some in located.by_route.items():
                size = request.max_items or len(some)
                batches += [(route, some[at : at + size]) for at in range(0, len(some), size)]

            async def send(route: Route, some: Sequence[K]) -> None:
                results.update(await self._send_items(request, route, some, number))

            await self.run_parallel(send, batches)
            forget_locations(self.cluster, request, results)
            return results

        return await self.retry_items(keys, attempt, request.is_final)

    async def _send_items(
        self, request: ItemRequest[K, V], to: Route, keys: Sequence[K], attempt: int
    ) -> dict[K, V | KafkaError]:
        """Send one request; return the result or error of each item."""

        def build(version: int) -> Request[Any]:
            return request.build(keys, version, self.timeout_ms)

        try:
            response, broker = await self._send(
                VersionedRequest(request.api_key, build),
                to,
                retry=False,
                min_version=request.min_version,
                max_version=request.max_version,
            )
            error = self._own_error(response, request.api_key, broker, attempt, None)
            if error is not None:
                raise error
            return self._read_items(request, response, keys, broker, attempt)
        except KafkaError as failure:
            return dict.fromkeys(keys, failure)

    def _read_items(
        self,
        request: ItemRequest[K, V],
        response: Response,
        keys: Sequence[K],
        broker: str,
        attempt: int,
    ) -> dict[K, V | KafkaError]:
        """Return the result or error of each item in a response."""
        api = APIS[request.api_key].name

        def context(key: K) -> dict[str, Any]:
            known = {"api": api, "broker": broker, "attempt": attempt}
            return {**known, **request.error_context(key)}

        results: dict[K, Any] = dict.fromkeys(keys, _MISSING)
        for key, value, code, message in request.read(response):
            if results.get(key) is _MISSING:
                results[key] = response_error(code, message, **context(key)) if code else value
            elif key in results:
                text = f"the {api} response has more than one result for {key}"
                results[key] = ProtocolError(text, **context(key))
        for key, result in results.items():
            if result is _MISSING:
                text = f"the {api} response lacks a result for {key}"
                results[key] = ProtocolError(text, **context(key))
        return results

    async def retry_items(
        self,
        keys: Iterable[K],
        attempt: Callable[[Sequence[K], int], Awaitable[Mapping[K, V | KafkaError]]],
        is_final: Callable[[KafkaError, int], bool],
    ) -> dict[K, V | KafkaError]:
        """Call `attempt` until each item has a result, a final error, or the deadline comes.

        The results are in the order of the items.

        Args:
            keys: The items; duplicates count once.
            attempt: Gets the items and the number of the attempt; returns a result for each.
            is_final: Gets an error, and how many times its item has had an error with that code;
                see `ItemRequest.is_final`.
        """
        results: dict[K, Any] = dict.fromkeys(keys)
        pending = list(results)
        counts: Counter[tuple[K, object]] = Counter()
        number = 0
        while pending:
            number += 1
            found = await attempt(pending, number)
            again: list[K] = []
            for key in pending:
                result = found[key]
                if isinstance(result, KafkaError):
                    if number > 1 and isinstance(result, RequestTimedOut):
                        # A timeout at the deadline says less than the error before it.
                        result = results[key]
                    code = getattr(result, "code", None)
                    counts[key, code] += 1
                    if not is_final(result, counts[key, code]):
                        again.append(key)
                results[key] = result
            pending = again
            if pending and not await self.cluster.retry_backoff.wait(number, self.deadline):
                break
        return results

    async def run_parallel(
        self,
        function: Callable[..., Awaitable[None]],
        arguments: Sequence[tuple[Any, ...]],
    ) -> None:
        """Call a function with each of the arguments, `MAX_PARALLEL_REQUESTS` at a time.

        The function must not raise a `KafkaError`.
        """
        if len(arguments) == 1:
            await function(*arguments[0])
            return
        limiter = anyio.CapacityLimiter(MAX_PARALLEL_REQUESTS)

        async def call(*some: Any) -> None:
            async with limiter:
                await function(*some)

        async with anyio.create_task_group() as group:
            for some in arguments:
                group.start_soon(call, *some)
