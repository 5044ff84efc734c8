"""Connection of a 0.7 client: requests are handled one after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from aiokafkawire.broker.authentication import BrokerListener
from aiokafkawire.broker.kafka07.logs import Logs
from aiokafkawire.broker.request_context import Disconnect
from aiokafkawire.broker.server import NodeInterface
from aiokafkawire.errors import MalformedFrame
from aiokafkawire.runtime import NEVER, Transport
from aiokafkawire.wire.frame import FrameReader
from aiokafkawire.wire.kafka07 import MIN_FRAME_BYTES

__all__ = ("Kafka07ServerConnection", "connection_to")

logger = logging.getLogger("aiokafkawire.broker")


class Kafka07ServerConnection:
    """Handles one request at a time: it reads the next one after sending the response."""

    def __init__(self, logs: Logs, node: NodeInterface, transport: Transport, number: int) -> None:
        self._logs = logs
        self._node = node
        self._transport = transport
        self.idle_since = node.state.clock.now()
        self.name = f"0.7 port: connection {number} from {transport.peer}"

    async def run(self) -> None:
        """Serve until the client disconnects, is idle for too long, or violates the protocol."""
        try:
            await self._serve()
        except (Disconnect, MalformedFrame) as reason:
            logger.warning("%s: closed: %s", self.name, reason)
        except OSError as error:
            logger.debug("%s: connection lost: %s", self.name, error)
        except Exception:
            # A bug in a handler must close this connection, not stop the broker.
            logger.exception("%s: closed: a request handler failed", self.name)
        finally:
            self._transport.abort()
            with anyio.CancelScope(shield=True):
                await self._transport.aclose()

    def close_when_idle(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    async def _serve(self) -> None:
        reader = FrameReader(self._node.state.options.max_request_bytes, MIN_FRAME_BYTES)
        while count := await self._receive(reader):
            for frame in reader.buffer_updated(count):
                await self._node.wait_until_resumed()
                reply = self._logs.handle(frame, self._node.state.clock.wall_ms())
                if reply is None:
                    continue
                await self._transport.send([reply.data])
                if reply.closes:
                    return

    async def _receive(self, reader: FrameReader) -> int:
        self.idle_since = self._node.state.clock.now()
        count = await self._transport.receive_into(reader.get_buffer())
        self.idle_since = NEVER
        return count


def connection_to(
    logs: Logs,
) -> Callable[[NodeInterface, Transport, int, BrokerListener], Kafka07ServerConnection]:
    """Return the factory with which a node serves each accepted connection."""

    def serve(
        node: NodeInterface, transport: Transport, number: int, listener: BrokerListener
    ) -> Kafka07ServerConnection:
        del listener
        return Kafka07ServerConnection(logs, node, transport, number)

    return serve
