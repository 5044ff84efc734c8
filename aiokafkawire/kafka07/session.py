"""A client's one connection, made anew when it has ended, and its callers' turns on it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from aiokafkawire.connection import dial
from aiokafkawire.errors import (
    ClientClosed,
    ConnectionFailed,
    ConnectionLost,
    KafkaError,
    RecordTooLarge,
    RequestTimedOut,
)
from aiokafkawire.kafka07.connection import Kafka07Connection
from aiokafkawire.kafka07.options import Kafka07Config
from aiokafkawire.logs import fields_of
from aiokafkawire.runtime import NEVER, Address, Host, Runtime, Session, Transport
from aiokafkawire.wire import kafka07

__all__ = ("MAX_WAITING_CALLS", "Kafka07Session")

logger = logging.getLogger("aiokafkawire.kafka07")

MAX_WAITING_CALLS = 1_000
"""Calls that wait for their turn on the connection; more are refused."""

UNKNOWN_HOST_HINT = "check the server's name"


class Kafka07Session(Session):
    """What a client has between starting and stopping.

    Every call has a deadline, and makes one attempt. What was produced on a connection that ended
    before a later answer is remembered until `raise_if_produces_lost` has told of it.
    """

    __slots__ = (
        "_address",
        "_config",
        "_connection",
        "_host",
        "_lock",
        "_lost_produces",
        "_lost_reason",
        "_probe_topic",
        "_waiting",
        "runtime",
    )

    def __init__(
        self, config: Kafka07Config, address: Address, runtime: Runtime, host: Host
    ) -> None:
        self.runtime = runtime
        self._config = config
        self._address = address
        self._host = host
        self._lock = anyio.Lock()
        self._waiting = 0
        self._connection: Kafka07Connection | None = None
        self._lost_produces = 0
        self._lost_reason = ""
        # A topic that was written to: asking for its end tells how far the broker has got.
        self._probe_topic = ""

    @property
    def name(self) -> str:
        """The broker as errors name it."""
        return str(self._address)

    def deadline(self) -> float:
        """When a call that begins now must have ended."""
        return self.runtime.clock.now() + self._config.request_timeout_ms / 1_000

    def broken(self, failure: KafkaError) -> None:
        if self._connection is not None:
            self._connection.abort(failure)

    def lost(self, error: ClientClosed) -> None:
        self.broken(error)

    # --- calls -------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Make the first connection. Raises `ConnectionFailed`."""
        async with self._exclusive_connection("connect", NEVER):
            await self._ensure_connected("connect", NEVER)

    async def request(self, request: kafka07.Request, api: str, deadline: float) -> memoryview:
        """Send a request, and give the frame that answers it."""
        frame = self._encode(request, api)
        async with self._exclusive_connection(api, deadline):
            connection = await self._ensure_connected(api, deadline)
            return await connection.request(frame, api, deadline)

    async def send(self, request: kafka07.Request, api: str, topic: str, deadline: float) -> None:
        """Send a request without an answer; `topic` is one that it writes to."""
        frame = self._encode(request, api)
        async with self._exclusive_connection(api, deadline):
            connection = await self._ensure_connected(api, deadline)
            self.raise_if_produces_lost(sent=False)
            self._probe_topic = topic
            try:
                await connection.send(frame, api, deadline)
            except KafkaError:
                # This is told now.
                connection.unconfirmed_requests -= 1
                raise

    async def flush(self, deadline: float) -> None:
        """Hear that what was produced is carried out; else raise as `raise_if_produces_lost`."""
        if self._connection is None or not self._connection.unconfirmed_requests:
            self.raise_if_produces_lost()
            return
        request = kafka07.OffsetsRequest(
            topic=self._probe_topic, partition=0, time=kafka07.LATEST, max_number=1
        )
        frame = self._encode(request, "OFFSETS")
        async with self._exclusive_connection("OFFSETS", deadline):
            await self._confirm(frame, deadline)
        self.raise_if_produces_lost()

    async def _confirm(self, frame: bytes, deadline: float) -> None:
        # Whoever had the turn before may have heard of it, or lost the connection.
        connection = self._connection
        if (
            connection is None
            or connection.error is not None
            or not connection.unconfirmed_requests
        ):
            return
        try:
            await connection.request(frame, "OFFSETS", deadline)
        except ConnectionLost as error:
            # What was produced is what this is about.
            logger.debug("%s", error, extra=fields_of(error=error))

    def raise_if_produces_lost(self, *, sent: bool = True) -> None:
        """Raise `ConnectionLost` for what was produced before a connection ended; once.

        `sent=False` says of the call that raises it that nothing of its own was sent.
        """
        self._discard_lost_connection()
        count, self._lost_produces = self._lost_produces, 0
        if count:
            own = "" if sent else "; of this call nothing was sent"
            raise ConnectionLost(
                f"{self._lost_reason}; what {count} earlier call(s) produced may be in the log or"
                f" not{own}",
                sent=sent,
                broker=self.name,
                api="PRODUCE",
            )

    async def aclose(self) -> None:
        """End the connection, and keep count of what it leaves open."""
        if self._connection is not None:
            await self._connection.aclose()
            self._discard_lost_connection()

    # --- inside ------------------------------------------------------------------------------

    @asynccontextmanager
    async def _exclusive_connection(self, api: str, deadline: float) -> AsyncIterator[None]:
        if self._waiting >= MAX_WAITING_CALLS:
            raise KafkaError(
                f"{MAX_WAITING_CALLS} calls wait for this connection already",
                broker=self.name,
                api=api,
                retriable=True,
            )
        self._waiting += 1
        acquired = False
        try:
            with anyio.CancelScope(deadline=deadline):
                await self._lock.acquire()
                acquired = True
        finally:
            self._waiting -= 1
        if not acquired:
            raise self._not_sent_error("earlier requests are unanswered", api)
        try:
            yield
        finally:
            self._lock.release()

    async def _ensure_connected(self, api: str, deadline: float) -> Kafka07Connection:
        """The connection, after connecting where it has ended."""
        if not self._host.running:
            raise ClientClosed("the client is closed", broker=self.name, api=api)
        self._discard_lost_connection()
        if self._connection is not None:
            return self._connection
        setup_s = self._config.socket_connection_setup_timeout_ms / 1_000
        setup_deadline = self.runtime.clock.now() + setup_s
        transport: Transport | None = None
        try:
            with anyio.CancelScope(deadline=min(deadline, setup_deadline)):
                transport = await dial(self.runtime, self._address, UNKNOWN_HOST_HINT)
        except ConnectionFailed as error:
            error.broker, error.api = self.name, api
            raise
        if transport is None and deadline < setup_deadline:
            raise self._not_sent_error("there was no connection", api)
        if transport is None:
            raise ConnectionFailed("no connection in time", broker=self.name, api=api)
        connection = Kafka07Connection(transport, self.name, self._config.max_response_bytes)
        connection.start(self._host)
        self._connection = connection
        return connection

    def _not_sent_error(self, why: str, api: str) -> RequestTimedOut:
        text = f"not sent before the deadline: {why}"
        return RequestTimedOut(text, sent=False, broker=self.name, api=api)

    def _discard_lost_connection(self) -> None:
        """Forget a connection that has ended, but not what was not confirmed on it."""
        connection = self._connection
        if connection is None or connection.error is None:
            return
        self._connection = None
        if connection.unconfirmed_requests:
            self._lost_produces += connection.unconfirmed_requests
            self._lost_reason = connection.error.reason

    def _encode(self, request: kafka07.Request, api: str) -> bytes:
        frame = kafka07.encode_request(request)
        limit = self._config.max_request_size_bytes
        if len(frame) - 4 > limit:
            raise RecordTooLarge(
                f"a request is over max_request_size_bytes ({limit}): the broker would end the"
                " connection",
                size_bytes=len(frame) - 4,
                api=api,
            )
        return frame
