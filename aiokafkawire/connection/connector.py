"""From a host name and a port to a connection that is ready for requests."""

from __future__ import annotations

import logging
from typing import Any

import anyio

from aiokafkawire._version import __version__
from aiokafkawire.config import ClientConfig
from aiokafkawire.connection.channel import Channel, Limits
from aiokafkawire.connection.counters import Counters
from aiokafkawire.connection.handshake import PLAINTEXT, Handshake
from aiokafkawire.connection.negotiation import (
    SILENCE_S,
    Answered,
    Ask,
    Closed,
    Connection,
    Event,
    Failed,
    Negotiation,
    Settled,
    Silent,
)
from aiokafkawire.connection.versions import Versions, parse_pin
from aiokafkawire.errors import (
    AuthenticationFailed,
    ClientClosed,
    ConnectionFailed,
    ConnectionLost,
    KafkaError,
    ProtocolError,
    RequestTimedOut,
)
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import Address, Runtime, Supervisor, Transport
from aiokafkawire.wire import Request, Response

__all__ = ("LISTENERS", "MAX_IN_FLIGHT", "Connector", "dial")

logger = logging.getLogger("aiokafkawire.connection")

MAX_IN_FLIGHT = 100
"""Unanswered requests on one connection; callers that need fewer count their own."""

SOFTWARE = "aiokafkawire"

LISTENERS = "advertised.listeners"
"""The broker's setting that names the addresses in the metadata."""

UNKNOWN_NAME = f"check bootstrap_servers, or the broker's {LISTENERS}"


class Connector:
    """Makes ready connections to one broker."""

    def __init__(
        self,
        address: Address,
        name: str,
        config: ClientConfig,
        *,
        runtime: Runtime,
        supervisor: Supervisor,
        handshake: Handshake = PLAINTEXT,
        counters: Counters | None = None,
    ) -> None:
        self.address = address
        self.name = name
        self._config = config
        self._runtime = runtime
        self._supervisor = supervisor
        self._handshake = handshake
        self._counters = counters or Counters()
        self._pin = parse_pin(config.api_version)
        self._limits = Limits(
            max_in_flight=MAX_IN_FLIGHT,
            request_timeout_s=config.request_timeout_ms / 1_000,
            max_idle_s=config.connections_max_idle_ms / 1_000,
            max_frame_bytes=config.max_frame_bytes,
        )

    async def establish(self, known: Versions | None, timeout_s: float, attempt: int) -> Channel:
        """Resolve, connect, shake hands, negotiate.

        `known` are versions found by probing that still hold; they are not sought again. Raises
        `ConnectionFailed` with the reason of the last step, `AuthenticationFailed`.
        """
        deadline = self._runtime.clock.now() + timeout_s
        ready: Channel | None = None
        try:
            with anyio.CancelScope(deadline=deadline):
                if known is not None:
                    ready = await self._open()
                    ready.versions = known
                else:
                    ready = await self._negotiate(min(SILENCE_S * attempt, timeout_s / 4))
        except KafkaError as error:
            error.broker, error.attempt = self.name, attempt
            raise
        if ready is None:
            raise ConnectionFailed(
                f"no connection was ready within {timeout_s:g} s: the host does not answer, or what"
                " listens there is stopped or no Kafka broker",
                broker=self.name,
                attempt=attempt,
            )
        return ready

    async def _negotiate(self, silence_s: float) -> Channel:
        machine = Negotiation(
            self._pin, software=SOFTWARE, software_version=__version__, silence_s=silence_s
        )
        kept = await self._open()
        latest = kept
        try:
            step = machine.begin()
            while isinstance(step, Ask):
                if step.connection is Connection.FRESH:
                    _drop(kept)
                    kept = latest = await self._open()
                elif step.connection is Connection.BESIDE:
                    latest = await self._open()
                step = machine.handle(await self._ask(latest, step))
        except BaseException:
            _drop(kept)
            _drop(latest)
            raise
        if isinstance(step, Failed):
            _drop(kept)
            _drop(latest)
            raise step.error
        return self._settle(step, kept, latest)

    def _settle(self, step: Settled, kept: Channel, latest: Channel) -> Channel:
        if step.versions.release is not None:
            logger.debug(
                "Broker %s does not answer ApiVersions: treated as Kafka %s",
                self.name,
                step.versions.release,
                extra=log_fields(self._supervisor.fields, broker=self.name),
            )
        chosen, other = (latest, kept) if step.beside else (kept, latest)
        if other is not chosen:
            _drop(other)
        chosen.versions = step.versions
        return chosen

    async def _ask(self, channel: Channel, ask: Ask) -> Event:
        deadline = self._runtime.clock.now() + ask.timeout_s
        try:
            return Answered(await channel.request(ask.request, ask.version, deadline=deadline))
        except RequestTimedOut:
            return Silent()
        except ConnectionLost as error:
            return Closed(error.reason)
        except ProtocolError as error:
            raise ConnectionFailed(
                f"what listens there does not speak Kafka's protocol: {error.reason}",
                api=error.api,
                retriable=False,
            ) from error

    async def _open(self) -> Channel:
        """A connection after its handshake, with running tasks."""
        transport = await dial(self._runtime, self.address, UNKNOWN_NAME)
        try:
            transport = await self._handshake.wrap(transport, self.address)
        except BaseException as error:
            await _let_go(transport)
            if isinstance(error, OSError):
                raise ConnectionFailed(f"the TLS handshake failed: {error}") from error
            raise
        if not self._supervisor.is_running:
            # It ended in the moment in which the connection was there.
            await _let_go(transport)
            raise ClientClosed("the client is closed")
        channel = Channel(
            transport,
            name=self.name,
            client_id=self._config.client_id,
            clock=self._runtime.clock,
            limits=self._limits,
            counters=self._counters,
            fields=self._supervisor.fields,
        )
        channel.start(self._supervisor)
        try:
            await self._authenticate(channel)
        except BaseException:
            _drop(channel)
            raise
        return channel

    async def _authenticate(self, channel: Channel) -> None:
        async def exchange(request: Request[Any], version: int) -> Response:
            deadline = self._runtime.clock.now() + self._limits.request_timeout_s
            response: Response = await channel.request(request, version, deadline=deadline)
            return response

        try:
            await self._handshake.authenticate(exchange)
        except (OSError, KafkaError) as error:
            if isinstance(error, AuthenticationFailed):
                raise
            raise ConnectionFailed(f"authentication was cut short: {error}") from error


async def dial(runtime: Runtime, address: Address, advice: str) -> Transport:
    """Try each address of the name, each with its share of the time that is left.

    Raises `ConnectionFailed`, with `advice` where the name is not known.
    """
    name, port = address
    try:
        found = await runtime.resolve(name, port)
    except OSError as error:
        raise ConnectionFailed(
            f"the name {name!r} cannot be resolved ({error.strerror or error}): {advice}"
        ) from error
    failures: list[str] = []
    for number, each in enumerate(found):
        transport: Transport | None = None
        try:
            with anyio.CancelScope(deadline=_share(runtime.clock.now(), len(found) - number)):
                transport = await runtime.connect(each)
        except OSError as error:
            failures.append(f"{each}: {_why(error)}")
        else:
            if transport is not None:
                return transport
            failures.append(f"{each}: no answer")
    raise ConnectionFailed("; ".join(failures) or f"the name {name!r} has no address")


def _share(now: float, addresses_left: int) -> float:
    return now + max(0.0, anyio.current_effective_deadline() - now) / addresses_left


async def _let_go(transport: Transport) -> None:
    transport.abort()
    with anyio.CancelScope(shield=True):
        await transport.aclose()


def _drop(channel: Channel) -> None:
    channel.close(ConnectionLost("this connection was for negotiation only"))


def _why(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; nothing listens there: check host and port"
    return error.strerror or str(error)
