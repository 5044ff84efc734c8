"""Frames: each message on a connection comes after its length, a signed 32-bit integer."""

import struct

from aiokafkawire.errors import MalformedFrame
from aiokafkawire.runtime.memory import room_again, room_for

__all__ = ("MIN_FRAME_BYTES", "FrameReader")

MIN_FRAME_BYTES = 4
"""The smallest frame: a response with nothing but its correlation id."""

RECEIVE_BUFFER_BYTES = 65_536
"""What is received at once while frames are small."""

INITIAL_LARGE_BUFFER_BYTES = 1_048_576
"""Memory taken on the word of a frame's length alone; beyond it, memory grows with the data.

As much as the largest frame before had is taken at once, too: fetches bring one large frame after
the other, and growing costs a copy each time.
"""

_LENGTH = struct.Struct(">i")
_LENGTH_BYTES = _LENGTH.size  # looked up for each frame

_OTHER_PROTOCOLS = {
    b"HTTP": "the peer speaks HTTP, not Kafka",
    b"\x15\x03\x01\x00": "the peer wants TLS",
    b"\x15\x03\x03\x00": "the peer wants TLS",
    b"SSH-": "the peer speaks SSH, not Kafka",
}


class FrameReader:
    """Cuts what a connection receives into frames of `min_frame_bytes` to `max_frame_bytes`.

    The caller receives into `get_buffer()` and says with `received(n)` how much came; it writes to
    a buffer only until then. After `MalformedFrame` the connection is of no further use, and every
    call raises it again.
    """

    def __init__(self, max_frame_bytes: int, min_frame_bytes: int = MIN_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._min_frame_bytes = min_frame_bytes
        self._max_small_frame_bytes = min(max_frame_bytes, RECEIVE_BUFFER_BYTES - _LENGTH_BYTES)
        self._buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._buffered = 0
        self._large: _LargeFrame | None = None
        self._initial_large_bytes = INITIAL_LARGE_BUFFER_BYTES
        self._error: MalformedFrame | None = None

    @property
    def has_partial_frame(self) -> bool:
        """Whether part of a frame has come: an end of the stream now would cut it."""
        return self._large is not None or self._buffered > 0

    def get_buffer(self) -> memoryview:
        """Where to receive into; it is never empty."""
        if self._error is not None:
            raise self._error
        if self._large is not None:
            return self._large.buffer()
        return self._buffer[self._buffered :] if self._buffered else self._buffer

    def buffer_updated(self, count: int) -> list[memoryview]:
        """Take note of `count` bytes in the buffer, and give the frames that they complete.

        Frames come without their length, each in a buffer of its own, which the reader forgets.
        Raises `MalformedFrame` for a length out of bounds; frames before it in the same bytes
        are lost with the connection.
        """
        if self._error is not None:
            raise self._error
        size = count - _LENGTH_BYTES
        if (
            self._large is None
            and not self._buffered
            and self._min_frame_bytes <= size <= self._max_small_frame_bytes
            and _LENGTH.unpack_from(self._buffer)[0] == size
        ):  # one whole frame, as mostly
            return [memoryview(bytes(self._buffer[_LENGTH_BYTES:count]))]
        free_bytes = (
            RECEIVE_BUFFER_BYTES - self._buffered if self._large is None else self._large.free_bytes
        )
        if not 0 <= count <= free_bytes:
            raise ValueError(f"{count} bytes cannot have been received into the buffer")
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
            if not self._min_frame_bytes <= length <= self._max_frame_bytes:
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
        if length < self._min_frame_bytes:
            reason = f"a frame length of {length} is impossible"
        else:
            reason = f"a frame of {length} bytes is over the limit of {self._max_frame_bytes}"
        return MalformedFrame(f"{reason}: {hint}" if hint else reason)


class _LargeFrame:
    """A frame that has not all come yet."""

    def __init__(self, length: int, initial_bytes: int, first_bytes: memoryview) -> None:
        self._length = length
        self._buffer = self._allocate(max(initial_bytes, len(first_bytes)))
        self._buffer[: len(first_bytes)] = first_bytes
        self._filled_bytes = len(first_bytes)

    def _allocate(self, size_bytes: int) -> memoryview:
        """Room for the frame, or for so much of it; only whole ones are worth to be kept."""
        if size_bytes < self._length:
            return memoryview(room_for(size_bytes))
        return room_again(self._length)

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
            # Doubled in a new buffer: the old one may still be held by a view of the caller's.
            larger = self._allocate(2 * len(self._buffer))
            larger[: self._filled_bytes] = self._buffer
            self._buffer = larger
        return None
