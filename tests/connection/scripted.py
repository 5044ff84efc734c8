"""A server that does what a test says: real sockets, one task a connection."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel

from aiokafkawire import config
from aiokafkawire.connection import BrokerClient, Channel, ChannelLimits, ConnectionMetrics
from aiokafkawire.errors import ClientClosed, KafkaError
from aiokafkawire.runtime import Address, RealRuntime, Supervisor, Transport
from aiokafkawire.wire import APIS, ApiKey, Request, Response
from aiokafkawire.wire.frame import FrameReader
from aiokafkawire.wire.header import RequestHeader, decode_request, encode_response
from aiokafkawire.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tests.brokers.process import HOST, free_ports

LOOPBACK = Address("127.0.0.1", 0)


class Hangup(Exception):
    """An answer that closes the connection."""


class ServerConnection:
    """One accepted connection."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._reader = FrameReader(2**31 - 1)
        self._frames: list[memoryview] = []

    async def receive(self) -> memoryview | None:
        """The next frame; None at the end of the stream."""
        while not self._frames:
            count = await self.transport.receive_into(self._reader.get_buffer())
            if not count:
                return None
            self._frames = self._reader.buffer_updated(count)
        return self._frames.pop(0)

    async def next_request(self) -> tuple[RequestHeader, Request[Any]]:
        frame = await self.receive()
        if frame is None:
            raise Hangup
        return decode_request(frame)

    async def respond(self, header: RequestHeader, response: Response) -> None:
        version = header.api_version
        if isinstance(response, ApiVersionsResponse) and response.error_code == 35:
            version = 0
        await self.transport.send(encode_response(response, version, header.correlation_id))


Handler = Callable[[ServerConnection], Awaitable[None]]
Answer = Callable[[RequestHeader, Any], Awaitable[Response | None]]


class Server:
    """Accepts connections at `address` and counts them."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.accepted = 0
        self.open = 0


def closed_address() -> Address:
    """Return an address where nobody listens, nor will: servers of other tests use port 0."""
    return Address(HOST, free_ports(1)[0])


@contextlib.asynccontextmanager
async def serve(handler: Handler, address: Address = LOOPBACK) -> AsyncIterator[Server]:
    """Run `handler` for each connection; it is closed when the handler returns."""
    runtime = RealRuntime()
    listener = await runtime.listen(address)
    server = Server(listener.address)

    async def handle(transport: Transport) -> None:
        server.open += 1
        try:
            with contextlib.suppress(OSError, Hangup):
                await handler(ServerConnection(transport))
        finally:
            server.open -= 1
            with anyio.CancelScope(shield=True):
                await transport.aclose()

    async def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                transport = await listener.accept()
                server.accepted += 1
                group.start_soon(handle, transport)

    async with anyio.create_task_group() as group:
        group.start_soon(accept)
        try:
            yield server
        finally:
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await listener.aclose()


def speaks(ranges: Mapping[ApiKey, tuple[int, int]] | None = None) -> ApiVersionsResponse:
    """Return an ApiVersions response with all versions of the client, or just `ranges`."""
    if ranges is None:
        ranges = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in ranges.items()
        ],
    )


class ScriptedBroker:
    """Answers each API with a function, one request of a connection at a time, as Kafka does.

    A function gives the response, None for none, or raises `Hangup`. An API without a function
    hangs up.
    """

    def __init__(self, answers: Mapping[ApiKey, Answer] | None = None) -> None:
        self.answers: dict[ApiKey, Answer] = {ApiKey.API_VERSIONS: self._api_versions}
        self.answers.update(answers or {})
        self.seen: list[RequestHeader] = []

    async def _api_versions(self, _: RequestHeader, __: Any) -> Response | None:
        return speaks()

    async def __call__(self, connection: ServerConnection) -> None:
        while True:
            header, request = await connection.next_request()
            self.seen.append(header)
            answer = self.answers.get(header.api_key)
            if answer is None:
                raise Hangup
            response = await answer(header, request)
            if response is not None:
                await connection.respond(header, response)


def make_config(**options: Any) -> config.ClientConfig:
    options.setdefault("bootstrap_servers", "127.0.0.1:1")
    return config.make_config(config.ClientConfig, options)


@contextlib.asynccontextmanager
async def hosted(
    expected: list[Exception] | None = None,
) -> AsyncIterator[tuple[RealRuntime, Supervisor]]:
    """A running host. A task of it that raises fails the test, or is `expected` and kept there."""
    crashes: list[Exception] = []
    kept = crashes if expected is None else expected
    supervisor = Supervisor("test", lambda _, error: kept.append(error))
    runtime = RealRuntime()
    await supervisor.start()
    try:
        yield runtime, supervisor
    finally:
        await supervisor.stop()
    if crashes:
        raise crashes[0]


@contextlib.asynccontextmanager
async def client_of(address: Address, **options: Any) -> AsyncIterator[BrokerClient]:
    """A client of one broker."""
    async with hosted() as (runtime, supervisor):
        client = BrokerClient(address, make_config(**options), runtime, supervisor)
        try:
            yield client
        finally:
            with anyio.CancelScope(shield=True):
                await client.aclose()


@contextlib.asynccontextmanager
async def channel_to(
    address: Address, crashes: list[Exception] | None = None, **limits: Any
) -> AsyncIterator[Channel]:
    """A connection without negotiation; `crashes` takes what its tasks raise, if they may."""
    bounds = {
        "max_in_flight": 100,
        "request_timeout_s": 30.0,
        "max_idle_s": 540.0,
        "max_frame_bytes": 1024 * 1024,
    }
    async with hosted(crashes) as (runtime, supervisor):
        channel = Channel(
            await runtime.connect(address),
            name="1 at test",
            client_id="tests",
            clock=runtime.clock,
            limits=ChannelLimits(**{**bounds, **limits}),
            metrics=ConnectionMetrics(),
        )
        channel.start(supervisor)
        try:
            yield channel
        finally:
            channel.close(ClientClosed("the test is over"))
            with anyio.CancelScope(shield=True):
                await channel.wait_closed()


async def outcome_of(awaitable: Awaitable[Any]) -> Any:
    """Return the response of a request or its error."""
    try:
        return await awaitable
    except KafkaError as error:
        return error


async def gather(*awaitables: Awaitable[Any]) -> list[Any]:
    """The outcomes of requests that run at the same time, started in their order."""
    outcomes: list[Any] = [None] * len(awaitables)

    async def run(index: int, awaitable: Awaitable[Any]) -> None:
        outcomes[index] = await outcome_of(awaitable)

    async with anyio.create_task_group() as group:
        for index, awaitable in enumerate(awaitables):
            group.start_soon(run, index, awaitable)
            # trio starts tasks in no fixed order.
            await anyio.lowlevel.checkpoint()
    return outcomes
