"""State of a running Kafka 0.7 client: its connection, reconnected on demand."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from aiokafkawire.connection import open_transport
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
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import NEVER, Address, Runtime, Session, Supervisor, Transport
from aiokafkawire.wire import kafka07

__all__ = ("MAX_WAITING_CALLS", "Kafka07Session")

logger = logging.getLogger("aiokafkawire.kafka07")

MAX_WAITING_CALLS = 1_000
"""Maximum number of calls that wait for the connection; further calls fail."""

UNKNOWN_HOST_HINT = "check the host name of `server`"


class Kafka07Session(Session):
    """The running state of a `Client`: one connection, used by one call at a time.

    Every call makes one attempt and has a deadline. Produce requests without confirmation on a lost
    connection are counted until `raise_if_produces_lost` reports them.
    """

    __slots__ = (
        "_address",
        "_config",
        "_connection",
        "_lock",
        "_lost_produces",
        "_lost_reason",
        "_probe_topic",
        "_supervisor",
        "_waiting",
        "runtime",
    )

    def __init__(
        self, config: Kafka07Config, address: Address, runtime: Runtime, supervisor: Supervisor
    ) -> None:
        self.runtime = runtime
        self._config = config
        self._address = address
        self._supervisor = supervisor
        self._lock = anyio.Lock()
        self._waiting = 0
        self._connection: Kafka07Connection | None = None
        self._lost_produces = 0
        self._lost_reason = ""
        # The last topic produced to. flush() sends OFFSETS for it, because the broker handles
        # requests in order: the response confirms the produce requests before it.
        self._probe_topic = ""

    @property
    def name(self) -> str:
        """Address of the broker, as used in error texts."""
        return str(self._address)

    def deadline(self) -> float:
        """Return the deadline of a call that starts now, on the runtime's clock, in seconds."""
        return self.runtime.clock.now() + self._config.request_timeout_ms / 1_000

    def on_task_failed(self, failure: KafkaError) -> None:
        if self._connection is not None:
            self._connection.abort(failure)

    def on_tasks_cancelled(self, error: ClientClosed) -> None:
        self.on_task_failed(error)

    # --- calls -------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Open the connection. Raises `ConnectionFailed`."""
        async with self._exclusive_connection("connect", NEVER):
            await self._ensure_connected("connect", NEVER)

    async def request(self, request: kafka07.Request, api: str, deadline: float) -> memoryview:
        """Send a request and return the frame of its response."""
        frame = self._encode(request, api)
        async with self._exclusive_connection(api, deadline):
            connection = await self._ensure_connected(api, deadline)
            return await connection.request(frame, api, deadline)

    async def send(self, request: kafka07.Request, api: str, topic: str, deadline: float) -> None:
        """Send a request without a response that writes to `topic`."""
        frame = self._encode(request, api)
        async with self._exclusive_connection(api, deadline):
            connection = await self._ensure_connected(api, deadline)
            self.raise_if_produces_lost(sent=False)
            self._probe_topic = topic
            try:
                await connection.send(frame, api, deadline)
            except KafkaError:
                # Raised to this caller, so it must not be reported as lost again.
                connection.unconfirmed_requests -= 1
                raise

    async def flush(self, deadline: float) -> None:
        """Wait until the broker confirms all produce requests.

        Raises:
            ConnectionLost: A connection was lost before the confirmation.
            RequestTimedOut: The deadline passed.
        """
        if self._connection is None or not self._connection.unconfirmed_requests:
            self.raise_if_produces_lost()
            return
        request = kafka07.Kafka07OffsetRequest(
            topic=self._probe_topic, partition=0, time=kafka07.LATEST, max_number=1
        )
        frame = self._encode(request, "OFFSETS")
        async with self._exclusive_connection("OFFSETS", deadline):
            await self._confirm(frame, deadline)
        self.raise_if_produces_lost()

    async def _confirm(self, frame: bytes, deadline: float) -> None:
        # The call that held the lock before may have got a response or lost the connection.
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
            # The caller reports the lost produce requests, not this OFFSETS request.
            logger.debug("%s", error, extra=log_fields(error=error))

    def raise_if_produces_lost(self, *, sent: bool = True) -> None:
        """Raise `ConnectionLost` once for produce requests whose connection was lost.

        Args:
            sent: Whether the calling API sent a request of its own; the value of the error's
                `sent`.
        """
        self._discard_closed_connection()
        count, self._lost_produces = self._lost_produces, 0
        if count:
            suffix = "" if sent else "; this call sent nothing"
            raise ConnectionLost(
                f"{self._lost_reason}; messages of {count} earlier produce call(s) may or may not"
                f" be in the log{suffix}",
                sent=sent,
                broker=self.name,
                api="PRODUCE",
            )

    async def aclose(self) -> None:
        """Close the connection; produce requests that no later response confirmed count as lost."""
        if self._connection is not None:
            await self._connection.aclose()
            self._discard_closed_connection()

    # --- connection --------------------------------------------------------------------------

    @asynccontextmanager
    async def _exclusive_connection(self, api: str, deadline: float) -> AsyncIterator[None]:
        if self._waiting >= MAX_WAITING_CALLS:
            raise KafkaError(
                f"{MAX_WAITING_CALLS} calls are already waiting for the connection; start fewer"
                " concurrent calls",
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
            raise self._not_sent_error("earlier requests have no response yet", api)
        try:
            yield
        finally:
            self._lock.release()

    async def _ensure_connected(self, api: str, deadline: float) -> Kafka07Connection:
        """Return the open connection; connect if there is none."""
        if not self._supervisor.is_running:
            raise ClientClosed("the client is closed", broker=self.name, api=api)
        self._discard_closed_connection()
        if self._connection is not None:
            return self._connection
        setup_s = self._config.socket_connection_setup_timeout_ms / 1_000
        setup_deadline = self.runtime.clock.now() + setup_s
        transport: Transport | None = None
        try:
            with anyio.CancelScope(deadline=min(deadline, setup_deadline)):
                transport = await open_transport(self.runtime, self._address, UNKNOWN_HOST_HINT)
        except ConnectionFailed as error:
            error.broker, error.api = self.name, api
            raise
        if transport is None and deadline < setup_deadline:
            raise self._not_sent_error("not connected", api)
        if transport is None:
            timeout_ms = self._config.socket_connection_setup_timeout_ms
            raise ConnectionFailed(
                f"not connected within socket_connection_setup_timeout_ms ({timeout_ms})",
                broker=self.name,
                api=api,
            )
        connection = Kafka07Connection(transport, self.name, self._config.max_response_bytes)
        connection.start(self._supervisor)
        self._connection = connection
        return connection

    def _not_sent_error(self, why: str, api: str) -> RequestTimedOut:
        text = f"request not sent before the deadline: {why}"
        return RequestTimedOut(text, sent=False, broker=self.name, api=api)

    def _discard_closed_connection(self) -> None:
        """Drop a closed connection, counting its unconfirmed produce requests as lost."""
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
                f"the request exceeds max_request_size_bytes ({limit}): the broker would close the"
                " connection",
                size_bytes=len(frame) - 4,
                api=api,
            )
        return frame
