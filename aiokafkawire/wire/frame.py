"""Frames: each message on a connection comes after its length, a signed 32-bit integer."""

import struct

from aiokafkawire.errors import MalformedFrame
from aiokafkawire.runtime.memory import room_again, room_for

__all__ = ("MIN_FRAME_BYTES", "FrameReader")

MIN_FRAME_BYTES = 4
"""The smallest frame: a response with nothing but its correlation id."""

CHUNK_BYTES = 65_536
"""What is received at once while frames are small."""

EAGER_BYTES = 1_048_576
"""Memory taken on the word of a frame's length alone; beyond it, memory grows with the data.

As much as the largest frame before had is taken at once, too: fetches bring one large frame after
the other, and growing costs a copy each time.
"""

_LENGTH = struct.Struct(">i")
_LENGTH_BYTES = _LENGTH.size  # looked up for each frame

_NOT_KAFKA = {
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
        self._small = min(max_frame_bytes, CHUNK_BYTES - _LENGTH_BYTES)
        self._chunk = memoryview(bytearray(CHUNK_BYTES))
        self._held = 0
        self._large: _LargeFrame | None = None
        self._eager_bytes = EAGER_BYTES
        self._error: MalformedFrame | None = None

    @property
    def inside_frame(self) -> bool:
        """Whether part of a frame has come: an end of the stream now would cut it."""
        return self._large is not None or self._held > 0

    def get_buffer(self) -> memoryview:
        """Where to receive into; it is never empty."""
        if self._error is not None:
            raise self._error
        if self._large is not None:
            return self._large.buffer()
        return self._chunk[self._held :] if self._held else self._chunk

    def received(self, count: int) -> list[memoryview]:
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
            and not self._held
            and self._min_frame_bytes <= size <= self._small
            and _LENGTH.unpack_from(self._chunk)[0] == size
        ):  # one whole frame, as mostly
            return [memoryview(bytes(self._chunk[_LENGTH_BYTES:count]))]
        room = CHUNK_BYTES - self._held if self._large is None else self._large.room_bytes
        if not 0 <= count <= room:
            raise ValueError(f"{count} bytes cannot have been received into the buffer")
        if self._large is None:
            self._held += count
            return self._split()
        frame = self._large.received(count)
        if frame is None:
            return []
        self._large = None
        self._eager_bytes = max(self._eager_bytes, len(frame))
        return [frame]

    def _split(self) -> list[memoryview]:
        frames: list[memoryview] = []
        chunk, position = self._chunk, 0
        while self._held - position >= _LENGTH_BYTES:
            length: int = _LENGTH.unpack_from(chunk, position)[0]
            if not self._min_frame_bytes <= length <= self._max_frame_bytes:
                self._error = self._impossible(length, bytes(chunk[position : position + 4]))
                raise self._error
            start = position + _LENGTH_BYTES
            if self._held - start < length:
                self._large = _LargeFrame(length, self._eager_bytes, chunk[start : self._held])
                position = self._held
                break
            position = start + length
            frames.append(memoryview(bytes(chunk[start:position])))
        if position < self._held:
            rest = bytes(chunk[position : self._held])
            self._held = len(rest)
            chunk[: self._held] = rest
        else:
            self._held = 0
        return frames

    def _impossible(self, length: int, beginning: bytes) -> MalformedFrame:
        hint = _NOT_KAFKA.get(beginning)
        if length < self._min_frame_bytes:
            reason = f"a frame length of {length} is impossible"
        else:
            reason = f"a frame of {length} bytes is over the limit of {self._max_frame_bytes}"
        return MalformedFrame(f"{reason}: {hint}" if hint else reason)


class _LargeFrame:
    """A frame that has not all come yet."""

    def __init__(self, length: int, eager_bytes: int, beginning: memoryview) -> None:
        self._length = length
        self._memory = self._room(max(eager_bytes, len(beginning)))
        self._memory[: len(beginning)] = beginning
        self._filled = len(beginning)

    def _room(self, size_bytes: int) -> memoryview:
        """Room for the frame, or for so much of it; only whole ones are worth to be kept."""
        if size_bytes < self._length:
            return memoryview(room_for(size_bytes))
        return room_again(self._length)

    @property
    def room_bytes(self) -> int:
        return len(self._memory) - self._filled

    def buffer(self) -> memoryview:
        return self._memory[self._filled :]

    def received(self, count: int) -> memoryview | None:
        self._filled += count
        if self._filled == self._length:
            return self._memory
        if self._filled == len(self._memory):
            # Doubled in a new buffer: the old one may still be held by a view of the caller's.
            larger = self._room(2 * len(self._memory))
            larger[: self._filled] = self._memory
            self._memory = larger
        return None
