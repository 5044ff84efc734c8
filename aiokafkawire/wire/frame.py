"""Split a byte stream into frames: an int32 length followed by a message."""

import struct

from aiokafkawire.errors import MalformedFrame
from aiokafkawire.runtime.memory import allocate, allocate_reusable

__all__ = ("MIN_FRAME_BYTES", "FrameReader")

MIN_FRAME_BYTES = 4
"""Minimum size of a frame: a response with only a correlation id."""

RECEIVE_BUFFER_BYTES = 65_536
"""Size of the receive buffer for small frames."""

INITIAL_LARGE_BUFFER_BYTES = 1_048_576
"""Initial buffer size for a large frame; it then grows with the received data.

A hostile length alone therefore cannot allocate more. After a larger frame was received, its size
becomes the initial size: fetch responses follow each other, and every growth copies the data.
"""

_LENGTH = struct.Struct(">i")
_LENGTH_BYTES = _LENGTH.size  # looked up for each frame

LISTENER_SPEAKS_TLS = "the listener speaks TLS: set security_protocol to 'SSL' or 'SASL_SSL'"

_OTHER_PROTOCOLS = {
    b"HTTP": "the peer is an HTTP server, not a Kafka broker",
    b"\x15\x03\x01\x00": LISTENER_SPEAKS_TLS,
    b"\x15\x03\x03\x00": LISTENER_SPEAKS_TLS,
    b"SSH-": "the peer is an SSH server, not a Kafka broker",
}


class FrameReader:
    """Splits received bytes into frames of `min_frame_bytes` to `max_frame_bytes`.

    The interface is that of `asyncio.BufferedProtocol`: the caller receives into `get_buffer()`
    and then calls `buffer_updated(n)`; it must not write to the buffer after that. Once
    `MalformedFrame` is raised, every further call raises it again.

    Attributes:
        min_frame_bytes: Shorter frames are refused. May be changed between two frames.
    """

    def __init__(self, max_frame_bytes: int, min_frame_bytes: int = MIN_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self.min_frame_bytes = min_frame_bytes
        self._max_small_frame_bytes = min(max_frame_bytes, RECEIVE_BUFFER_BYTES - _LENGTH_BYTES)
        self._buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._buffered = 0
        self._large: _LargeFrame | None = None
        self._initial_large_bytes = INITIAL_LARGE_BUFFER_BYTES
        self._error: MalformedFrame | None = None

    @property
    def max_frame_bytes(self) -> int:
        """Limit of the size of a frame. May change between frames."""
        return self._max_frame_bytes

    @max_frame_bytes.setter
    def max_frame_bytes(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_small_frame_bytes = min(max_frame_bytes, RECEIVE_BUFFER_BYTES - _LENGTH_BYTES)

    @property
    def has_partial_frame(self) -> bool:
        """True if an incomplete frame is buffered."""
        return self._large is not None or self._buffered > 0

    def get_buffer(self) -> memoryview:
        """Return the buffer to receive into; it is never empty."""
        if self._error is not None:
            raise self._error
        if self._large is not None:
            return self._large.buffer()
        return self._buffer[self._buffered :] if self._buffered else self._buffer

    def buffer_updated(self, count: int) -> list[memoryview]:
        """Process `count` bytes received into the buffer; return the frames that are complete.

        Returns:
            Frames without their length, each in a separate buffer that the reader does not reuse.

        Raises:
            MalformedFrame: A frame length is out of bounds. Earlier frames of the same bytes are
                dropped.
        """
        if self._error is not None:
            raise self._error
        size = count - _LENGTH_BYTES
        if (
            self._large is None
            and not self._buffered
            and self.min_frame_bytes <= size <= self._max_small_frame_bytes
            and _LENGTH.unpack_from(self._buffer)[0] == size
        ):  # Fast path: the buffer holds exactly one frame.
            return [memoryview(bytes(self._buffer[_LENGTH_BYTES:count]))]
        free_bytes = (
            RECEIVE_BUFFER_BYTES - self._buffered if self._large is None else self._large.free_bytes
        )
        if not 0 <= count <= free_bytes:
            raise ValueError(f"count is {count}, but the buffer has {free_bytes} bytes")
        if self._large is None:
            self._buffered += count
            return self._split_frames()
        frame = self._large.buffer_updated(count)
        if frame is None:
            return []
        self._large = None
        self._initial_large_bytes = max(self._initial_large_bytes, len(frame))
        return [frame]

    def _split_frames(self) -> list[memoryview]:
        frames: list[memoryview] = []
        buffer, position = self._buffer, 0
        while self._buffered - position >= _LENGTH_BYTES:
            length: int = _LENGTH.unpack_from(buffer, position)[0]
            if not self.min_frame_bytes <= length <= self._max_frame_bytes:
                self._error = self._invalid_length(length, bytes(buffer[position : position + 4]))
                raise self._error
            start = position + _LENGTH_BYTES
            if self._buffered - start < length:
                self._large = _LargeFrame(
                    length, self._initial_large_bytes, buffer[start : self._buffered]
                )
                position = self._buffered
                break
            position = start + length
            frames.append(memoryview(bytes(buffer[start:position])))
        if position < self._buffered:
            remaining = bytes(buffer[position : self._buffered])
            self._buffered = len(remaining)
            buffer[: self._buffered] = remaining
        else:
            self._buffered = 0
        return frames

    def _invalid_length(self, length: int, first_bytes: bytes) -> MalformedFrame:
        hint = _OTHER_PROTOCOLS.get(first_bytes)
        if length < self.min_frame_bytes:
            reason = f"invalid frame length {length}"
        else:
            reason = f"frame of {length} bytes exceeds the limit of {self._max_frame_bytes}"
        error = MalformedFrame(f"{reason}: {hint}" if hint else reason)
        error.peer_speaks_tls = hint == LISTENER_SPEAKS_TLS
        return error


class _LargeFrame:
    """An incomplete frame that exceeds the receive buffer."""

    def __init__(self, length: int, initial_bytes: int, first_bytes: memoryview) -> None:
        self._length = length
        self._buffer = self._allocate(max(initial_bytes, len(first_bytes)))
        self._buffer[: len(first_bytes)] = first_bytes
        self._filled_bytes = len(first_bytes)

    def _allocate(self, size_bytes: int) -> memoryview:
        """Allocate a buffer for the frame or a part of it; only whole ones are worth reusing."""
        if size_bytes < self._length:
            return memoryview(allocate(size_bytes))
        return allocate_reusable(self._length)

    @property
    def free_bytes(self) -> int:
        return len(self._buffer) - self._filled_bytes

    def buffer(self) -> memoryview:
        return self._buffer[self._filled_bytes :]

    def buffer_updated(self, count: int) -> memoryview | None:
        self._filled_bytes += count
        if self._filled_bytes == self._length:
            return self._buffer
        if self._filled_bytes == len(self._buffer):
            # Grow in a new buffer: a view of the caller may still hold the old one.
            larger = self._allocate(2 * len(self._buffer))
            larger[: self._filled_bytes] = self._buffer
            self._buffer = larger
        return None
