from __future__ import annotations

import tracemalloc

import pytest

from aiokafkawire.runtime.memory import LARGE_BYTES, room_for


@pytest.mark.parametrize("size", [0, 1, LARGE_BYTES - 1, LARGE_BYTES, 3 * LARGE_BYTES + 1])
def test_memory_is_blank_of_the_size_asked_for_and_writable(size: int) -> None:
    with memoryview(room_for(size)) as view:
        assert view.nbytes == size
        assert bytes(view) == bytes(size)
        view[size // 2 :] = b"\x01" * (size - size // 2)
        assert bytes(view).count(1) == size - size // 2


def test_small_memory_can_be_made_smaller() -> None:
    room = room_for(LARGE_BYTES - 1)
    assert isinstance(room, bytearray)
    del room[10:]
    assert len(room) == 10


def test_large_memory_takes_none_before_it_is_written_to() -> None:
    before = _resident_bytes()
    held = room_for(256 * LARGE_BYTES)
    assert _resident_bytes() - before < 64 * LARGE_BYTES
    del held


def test_who_traces_memory_sees_large_memory_too() -> None:
    tracemalloc.start()
    try:
        room = room_for(LARGE_BYTES)
        assert tracemalloc.get_traced_memory()[0] >= len(room)
    finally:
        tracemalloc.stop()


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096
    except OSError:
        pytest.skip("only Linux tells what memory is in use")
