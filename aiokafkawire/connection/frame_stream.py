"""Frames over the transport of one connection."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafkawire.connection.metrics import ConnectionMetrics
from aiokafkawire.runtime import AutoResetEvent, Buffer, Transport
from aiokafkawire.wire.frame import FrameReader

__all__ = ("FrameStream",)


class FrameStream:
    """Splits what a transport receives into frames, and writes frames.

    A frame is written at once as far as the transport accepts it. A task sends the rest, which goes
    before any other frame. So no interrupted caller leaves a partial frame.

    Args:
        transport: Connected transport.
        max_frame_bytes: Limit of the size of a received frame.
        metrics: Metrics to update.

    Attributes:
        reader: Receives into its buffer.
        is_writing: True while part of a frame is unsent; do not call `send` or `send_rest`.
        wakeup: Wakes the task that calls `send_rest`.
    """

    __slots__ = ("_metrics", "_unsent", "is_writing", "reader", "transport", "wakeup")

    def __init__(
        self, transport: Transport, max_frame_bytes: int, metrics: ConnectionMetrics
    ) -> None:
        self.transport = transport
        self.reader = FrameReader(max_frame_bytes)
        self.is_writing = False
        self.wakeup = AutoResetEvent()
        self._unsent: Sequence[Buffer] = ()
        self._metrics = metrics

    def send(self, buffers: Sequence[Buffer], requests: int, size_bytes: int) -> bool:
        """Write frames; return True if the transport accepted all of them.

        Raises:
            OSError: The connection was lost.
        """
        metrics = self._metrics
        metrics.requests += requests
        metrics.bytes_sent += size_bytes
        rest = self.transport.send_nowait(buffers)
        if not rest:
            return True
        self._unsent = rest
        self.is_writing = True
        self.wakeup.set()
        return False

    async def send_rest(self) -> bool:
        """Send what the transport did not accept; return False if there is nothing.

        Raises:
            OSError: The connection was lost.
        """
        rest, self._unsent = self._unsent, ()
        if not rest:
            return False
        await self.transport.send(rest)
        return True
