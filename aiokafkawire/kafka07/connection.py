"""A connection to a Kafka 0.7 broker, with one request in flight at a time."""

from __future__ import annotations

import logging

import anyio

from aiokafkawire.errors import (
    ClientClosed,
    ConnectionLost,
    KafkaError,
    MalformedFrame,
    RequestTimedOut,
)
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import Future, Supervisor, TaskHandle, Transport, copy_error
from aiokafkawire.wire.frame import FrameReader
from aiokafkawire.wire.kafka07 import MIN_FRAME_BYTES

__all__ = ("Kafka07Connection",)

logger = logging.getLogger("aiokafkawire.kafka07")


class Kafka07Connection:
    """A connection that sends request frames and receives response frames in a reader task.

    Responses carry no correlation id. Anything that could assign a response to the wrong request
    therefore aborts the connection: a cancelled or timed-out call, an unexpected response, a
    malformed frame.

    Attributes:
        error: The reason why the connection ended; None while it is open.
        unconfirmed_requests: Requests without a response (PRODUCE, MULTIPRODUCE) written since the
            last response. The broker handles requests in order, so a response confirms all
            requests before it.
    """

    def __init__(self, transport: Transport, name: str, max_frame_bytes: int) -> None:
        self.name = name
        self.error: KafkaError | None = None
        self.unconfirmed_requests = 0
        self._transport = transport
        self._frames = FrameReader(max_frame_bytes, MIN_FRAME_BYTES)
        self._waiter: Future[memoryview] | None = None
        self._task: TaskHandle | None = None

    def start(self, supervisor: Supervisor) -> None:
        self._task = supervisor.spawn(self._read, name=f"read {self.name}")

    async def send(self, frame: bytes, api: str, deadline: float) -> None:
        """Write a request that has no response."""
        # Counted before the write: a partial write may still reach the broker.
        self.unconfirmed_requests += 1
        await self._send_and_wait(frame, None, api, deadline)

    async def request(self, frame: bytes, api: str, deadline: float) -> memoryview:
        """Write a request and return the frame of its response."""
        waiter: Future[memoryview] = Future()
        await self._send_and_wait(frame, waiter, api, deadline)
        return waiter.result()

    async def _send_and_wait(
        self, frame: bytes, waiter: Future[memoryview] | None, api: str, deadline: float
    ) -> None:
        if self.error is not None:
            raise copy_error(self.error)
        self._waiter = waiter
        completed = False
        try:
            with anyio.CancelScope(deadline=deadline):
                await self._transport.send([frame])
                if waiter is not None:
                    await waiter.wait()
                completed = True
                return
            raise RequestTimedOut(
                "request not written before the deadline: the broker does not read from the"
                " connection, or the network is slow"
                if waiter is None
                else "no response before the deadline",
                broker=self.name,
                api=api,
            )
        except OSError as error:
            if isinstance(error, KafkaError):
                raise
            self.abort(ConnectionLost(f"connection lost: {error}", broker=self.name))
            raise ConnectionLost(f"connection lost: {error}", broker=self.name, api=api) from error
        except KafkaError as error:
            error.api = api
            raise
        finally:
            self._waiter = None
            if not completed:
                self.abort(
                    ConnectionLost(
                        f"connection closed because a {api} call was cancelled or timed out: its"
                        " response could be taken for that of the next request",
                        broker=self.name,
                    )
                )

    def abort(self, error: KafkaError) -> None:
        """Close the connection and fail the pending call with `error`; keep the first error."""
        if self.error is not None:
            return
        self.error = error
        self._transport.abort()
        if self._waiter is not None:
            self._waiter.set_exception(error)

    async def aclose(self) -> None:
        """Close the connection and wait until the transport is closed."""
        self.abort(ClientClosed("the client is closed"))
        if self._task is not None:
            await self._task.wait()

    async def _read(self) -> None:
        try:
            while self.error is None:
                count = await self._transport.receive_into(self._frames.get_buffer())
                if not count:
                    self.abort(self._connection_lost("the broker closed the connection"))
                    break
                for frame in self._frames.buffer_updated(count):
                    self._on_frame(frame)
        except OSError as error:
            self.abort(self._connection_lost(f"connection lost: {error}"))
        except KafkaError as error:
            error.broker = self.name
            logger.warning("%s: %s", self.name, error, extra=log_fields(error=error))
            self.abort(error)
        finally:
            self.abort(ClientClosed("the client is closing"))
            with anyio.CancelScope(shield=True):
                await self._transport.aclose()

    def _on_frame(self, frame: memoryview) -> None:
        if self._waiter is None or self._waiter.done:
            raise MalformedFrame("received a response without a pending request")
        self.unconfirmed_requests = 0
        self._waiter.set_result(frame)

    def _connection_lost(self, reason: str) -> ConnectionLost:
        if self._waiter is not None:
            reason += (
                "; a 0.7 broker closes the connection on a request that it rejects: check the topic"
                " name, the partition and the broker's size limits"
            )
        return ConnectionLost(reason, broker=self.name)
