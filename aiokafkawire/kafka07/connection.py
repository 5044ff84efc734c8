"""One live connection to a broker of 0.7: a request at a time."""

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
from aiokafkawire.logs import fields_of
from aiokafkawire.runtime import Host, Promise, TaskHandle, Transport, copy_of
from aiokafkawire.wire.frame import FrameReader
from aiokafkawire.wire.kafka07 import MIN_FRAME_BYTES

__all__ = ("Kafka07Connection",)

logger = logging.getLogger("aiokafkawire.kafka07")


class Kafka07Connection:
    """Sends frames and receives what answers them; a reader task notices the connection's end.

    Answers bear no mark of what they answer, so whatever does not go as it should poisons the
    connection: a call that is cancelled or meets its deadline, an answer that nobody waits for, a
    frame that is none. `unconfirmed_requests` counts the requests without an answer that were
    written since the last answer came: the broker works in order, so what it answers proves those
    before it.
    """

    def __init__(self, transport: Transport, name: str, max_frame_bytes: int) -> None:
        self.name = name
        self.error: KafkaError | None = None
        self.unconfirmed_requests = 0
        self._transport = transport
        self._frames = FrameReader(max_frame_bytes, MIN_FRAME_BYTES)
        self._waiter: Promise[memoryview] | None = None
        self._task: TaskHandle | None = None

    def start(self, host: Host) -> None:
        self._task = host.spawn(self._read, name=f"read {self.name}")

    async def send(self, frame: bytes, api: str, deadline: float) -> None:
        """Write a request that has no answer."""
        # Some of it may arrive, so it counts before it is written.
        self.unconfirmed_requests += 1
        await self._send_and_wait(frame, None, api, deadline)

    async def request(self, frame: bytes, api: str, deadline: float) -> memoryview:
        """Write a request, and give the frame that answers it."""
        waiter: Promise[memoryview] = Promise()
        await self._send_and_wait(frame, waiter, api, deadline)
        return waiter.result()

    async def _send_and_wait(
        self, frame: bytes, waiter: Promise[memoryview] | None, api: str, deadline: float
    ) -> None:
        if self.error is not None:
            raise copy_of(self.error)
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
                "not written before the deadline: the broker does not read, or the network is slow"
                if waiter is None
                else "no answer before the deadline",
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
                        f"it was given up in the middle of a {api}: its answer could be taken for"
                        " that of another request",
                        broker=self.name,
                    )
                )

    def abort(self, error: KafkaError) -> None:
        """End the connection; who waits hears why. Later errors are ignored."""
        if self.error is not None:
            return
        self.error = error
        self._transport.abort()
        if self._waiter is not None:
            self._waiter.fail(error)

    async def aclose(self) -> None:
        """End the connection, and wait until it is released."""
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
                for frame in self._frames.received(count):
                    self._on_frame(frame)
        except OSError as error:
            self.abort(self._connection_lost(f"connection lost: {error}"))
        except KafkaError as error:
            error.broker = self.name
            logger.warning("%s: %s", self.name, error, extra=fields_of(error=error))
            self.abort(error)
        finally:
            self.abort(ClientClosed("the client is closing"))
            with anyio.CancelScope(shield=True):
                await self._transport.aclose()

    def _on_frame(self, frame: memoryview) -> None:
        if self._waiter is None or self._waiter.done:
            raise MalformedFrame("an answer came that nothing was asked for")
        self.unconfirmed_requests = 0
        self._waiter.resolve(frame)

    def _connection_lost(self, reason: str) -> ConnectionLost:
        if self._waiter is not None:
            reason += (
                "; 0.7 does so for a request that it cannot carry out: a topic or a partition that"
                " it cannot have, or a limit of its own"
            )
        return ConnectionLost(reason, broker=self.name)
