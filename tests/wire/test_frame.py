import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.errors import MalformedFrame
from aiokafkawire.wire import frame
from aiokafkawire.wire.frame import FrameReader


def feed(reader: FrameReader, data: bytes, step: int | None = None) -> list[bytes]:
    frames: list[bytes] = []
    position = 0
    while position < len(data):
        buffer = reader.get_buffer()
        size = min(len(buffer), len(data) - position, step or len(data))
        buffer[:size] = data[position : position + size]
        frames += map(bytes, reader.buffer_updated(size))
        position += size
    return frames


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.binary(min_size=4, max_size=40)
        | st.integers(4, 3 * frame.RECEIVE_BUFFER_BYTES).map(lambda n: b"\xab" * n),
        max_size=4,
    ),
    st.integers(1, 2 * frame.RECEIVE_BUFFER_BYTES),
    st.booleans(),
)
def test_frames_round_trip(bodies: list[bytes], step: int, small: bool) -> None:
    reader = FrameReader(4 * frame.RECEIVE_BUFFER_BYTES)
    if small and sum(map(len, bodies)) < 1_000:
        step = min(step, 3)
    assert feed(reader, framed(*bodies), step) == bodies
    assert not reader.has_partial_frame


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 3, 101, 2**31 - 1])
def test_reader_fails_for_good_after_an_invalid_length(length: int) -> None:
    reader = FrameReader(100)
    with pytest.raises(MalformedFrame, match=str(length)):
        feed(reader, struct.pack(">i", length) + b"12345678")
    with pytest.raises(MalformedFrame, match=str(length)):
        reader.get_buffer()
    with pytest.raises(MalformedFrame, match=str(length)):
        reader.buffer_updated(0)


@pytest.mark.parametrize("length", [4, 100])
def test_lengths_at_the_limits_are_allowed(length: int) -> None:
    assert feed(FrameReader(100), framed(b"x" * length)) == [b"x" * length]


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    ],
)
def test_other_protocols_are_recognised(answer: bytes, hint: str) -> None:
    with pytest.raises(MalformedFrame, match=hint):
        feed(FrameReader(100 * 1024 * 1024), answer)


def test_memory_grows_with_the_received_data() -> None:
    body = bytes(range(256)) * (5 * frame.INITIAL_LARGE_BUFFER_BYTES // 256)
    reader = FrameReader(1_000 * frame.INITIAL_LARGE_BUFFER_BYTES)
    feed(reader, struct.pack(">i", 900 * frame.INITIAL_LARGE_BUFFER_BYTES))
    assert len(reader.get_buffer()) <= frame.INITIAL_LARGE_BUFFER_BYTES
    assert reader.has_partial_frame
    reader = FrameReader(len(body))
    assert feed(reader, framed(body, b"next")) == [body, b"next"]


def test_frames_have_separate_buffers() -> None:
    reader = FrameReader(100)
    data = framed(b"first", b"second")
    buffer = reader.get_buffer()
    buffer[: len(data)] = data
    first, second = reader.buffer_updated(len(data))
    reader.get_buffer()[:20] = b"\xff" * 20
    assert (bytes(first), bytes(second)) == (b"first", b"second")


def test_has_partial_frame() -> None:
    reader = FrameReader(100)
    assert not reader.has_partial_frame
    assert feed(reader, b"\x00\x00") == []
    assert reader.has_partial_frame
    assert feed(reader, b"\x00\x04ab") == []
    assert reader.has_partial_frame
    assert feed(reader, b"cd") == [b"abcd"]
    assert not reader.has_partial_frame


def test_count_is_limited_by_the_buffer() -> None:
    reader = FrameReader(100)
    for count in (-1, frame.RECEIVE_BUFFER_BYTES + 1):
        with pytest.raises(ValueError, match="but the buffer has"):
            reader.buffer_updated(count)


def test_min_frame_bytes() -> None:
    reader = FrameReader(100, min_frame_bytes=2)
    raw = b"\x00\x00\x00\x02\x00\x03"
    reader.get_buffer()[: len(raw)] = raw
    assert [bytes(frame) for frame in reader.buffer_updated(len(raw))] == [b"\x00\x03"]
    reader.get_buffer()[:4] = b"\x00\x00\x00\x01"
    with pytest.raises(MalformedFrame, match="invalid frame length 1"):
        reader.buffer_updated(4)


def test_initial_size_of_large_buffers_follows_the_largest_frame() -> None:
    large = 5 * frame.INITIAL_LARGE_BUFFER_BYTES
    reader = FrameReader(1_000 * frame.INITIAL_LARGE_BUFFER_BYTES)
    assert feed(reader, framed(bytes(large))) == [bytes(large)]
    feed(reader, struct.pack(">i", 900 * frame.INITIAL_LARGE_BUFFER_BYTES))
    assert len(reader.get_buffer()) == large
