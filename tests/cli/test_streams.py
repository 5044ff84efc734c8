from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.cli import streams
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.streams import (
    CHUNK_BYTES,
    MAX_CHUNKS,
    InputStream,
    OutputStream,
    RecordSplitter,
)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            assert end in ends  # the test has closed it


async def test_chunks_come_as_they_are_written(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    stdin = InputStream(source)
    for data in (b"one", b"two"):
        os.write(sink, data)
        assert await stdin.read() == data
    os.close(sink)
    assert await stdin.read() == b""
    assert await stdin.read() == b""


async def test_an_input_that_cannot_be_read_raises(pipe: tuple[int, int]) -> None:
    with pytest.raises(OSError):
        await InputStream(pipe[1]).read()


async def test_reading_ahead_is_bounded(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "big", os.O_RDWR | os.O_CREAT)
    try:
        os.truncate(descriptor, CHUNK_BYTES * (MAX_CHUNKS + 10))
        stdin = InputStream(descriptor)
        total = 0
        while chunk := await stdin.read():
            total += len(chunk)
            await anyio.wait_all_tasks_blocked()
            ahead = os.lseek(descriptor, 0, os.SEEK_CUR) - total
            assert ahead <= CHUNK_BYTES * (MAX_CHUNKS + 1)
        assert total == CHUNK_BYTES * (MAX_CHUNKS + 10)
    finally:
        os.close(descriptor)


async def test_a_wait_for_input_can_be_cancelled(pipe: tuple[int, int]) -> None:
    stdin = InputStream(pipe[0])
    with anyio.move_on_after(0) as scope:
        await stdin.read()
    assert scope.cancelled_caught
    os.write(pipe[1], b"late")
    assert await stdin.read() == b"late"
    # A thread that goes on reading would take what the next test writes to the same descriptor.
    os.close(pipe[1])
    assert await stdin.read() == b""


async def test_output_is_written_whole(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    data = os.urandom(1_000_000)
    seen = bytearray()

    async def read() -> None:
        stdin = InputStream(source)
        while chunk := await stdin.read():
            seen.extend(chunk)

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        output = OutputStream(sink)
        await output.write(data)
        await output.write(b"")
        await output.write(b"end")
        os.close(sink)
    assert seen == data + b"end"


async def test_a_broken_pipe_is_raised(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    os.close(source)
    with pytest.raises(BrokenPipeError):
        await OutputStream(sink).write(b"x")


async def test_a_blocked_reader_does_not_block_others(pipe: tuple[int, int]) -> None:
    size = 1_000_000
    with anyio.move_on_after(0.05) as scope:
        await OutputStream(pipe[1]).write(bytes(size))
    assert scope.cancelled_caught
    # What was begun is written to its end.
    while size:
        size -= len(os.read(pipe[0], size))


@given(
    pieces=st.lists(st.binary(max_size=6)),
    delimiter=st.sampled_from([b"\n", b"ab", b"\0\0"]),
    size=st.integers(1, 7),
)
def test_splitting_does_not_depend_on_the_chunks(
    pieces: list[bytes], delimiter: bytes, size: int
) -> None:
    text = b"".join(piece + delimiter for piece in pieces)
    splitter = RecordSplitter(delimiter)
    split = [
        piece
        for start in range(0, len(text), size)
        for piece in splitter.feed(text[start : start + size])
    ]
    whole = text.split(delimiter)
    if not whole[-1]:
        whole.pop()
    assert [*split, *splitter.finish()] == whole


def test_the_last_piece_needs_no_delimiter() -> None:
    splitter = RecordSplitter(b"\n")
    assert splitter.feed(b"a\n\nb") == [b"a", b""]
    assert splitter.finish() == [b"b"]
    assert splitter.finish() == []


def test_an_input_without_its_delimiter_is_not_collected_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "MAX_RECORD_BYTES", 10)
    splitter = RecordSplitter(b"\n")
    splitter.feed(b"12345")
    with pytest.raises(CommandFailed, match="set it with -D"):
        splitter.feed(b"678901")


async def test_a_terminal_that_another_process_made_nonblocking_takes_all(
    pipe: tuple[int, int],
) -> None:
    source, sink = pipe
    os.set_blocking(sink, False)
    data = bytes(300_000)
    received = bytearray()

    def drain() -> None:
        while len(received) < len(data):
            received.extend(os.read(source, 65_536))

    async with anyio.create_task_group() as group:
        group.start_soon(OutputStream(sink).write, data)
        group.start_soon(anyio.to_thread.run_sync, drain)
    assert received == data
