from __future__ import annotations

import importlib.util
import sys
import threading
import tracemalloc
from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Any

import pytest

from aiokafkawire.runtime import memory
from aiokafkawire.runtime.memory import (
    MAX_POOLED_BYTES,
    MMAP_THRESHOLD_BYTES,
    allocate,
    allocate_reusable,
)

MIB = 1024 * 1024


@pytest.mark.parametrize(
    "size", [0, 1, MMAP_THRESHOLD_BYTES - 1, MMAP_THRESHOLD_BYTES, 3 * MMAP_THRESHOLD_BYTES + 1]
)
def test_memory_is_zeroed_writable_and_of_the_requested_size(size: int) -> None:
    with memoryview(allocate(size)) as view:
        assert view.nbytes == size
        assert bytes(view) == bytes(size)
        view[size // 2 :] = b"\x01" * (size - size // 2)
        assert bytes(view).count(1) == size - size // 2


def test_small_memory_can_shrink() -> None:
    room = allocate(MMAP_THRESHOLD_BYTES - 1)
    assert isinstance(room, bytearray)
    del room[10:]
    assert len(room) == 10


def test_large_memory_is_committed_when_it_is_written() -> None:
    before = _resident_bytes()
    held = allocate(256 * MMAP_THRESHOLD_BYTES)
    assert _resident_bytes() - before < 64 * MMAP_THRESHOLD_BYTES
    del held


def test_tracemalloc_sees_large_memory() -> None:
    tracemalloc.start()
    try:
        room = allocate(MMAP_THRESHOLD_BYTES)
        assert tracemalloc.get_traced_memory()[0] >= len(room)
    finally:
        tracemalloc.stop()


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_pool", memory._pool.__class__())


def filled(size_bytes: int, mark: int) -> memoryview:
    view = allocate_reusable(size_bytes)
    assert view.nbytes == size_bytes
    view[:] = bytes((mark,)) * size_bytes
    return view


@pytest.mark.usefixtures("nothing_kept")
def test_unreferenced_memory_is_reused():
    filled(3 * MIB, 7)
    again = allocate_reusable(3 * MIB - 5)
    assert bytes(again) == b"\x07" * (3 * MIB - 5)
    assert len(memory._pool) == 1


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("part", [slice(0, 1), slice(5, 9), slice(-1, None)])
def test_memory_with_a_view_of_a_part_is_not_reused(part: slice):
    held = filled(MIB, 7)[part]
    read_only = filled(MIB, 8)[part].toreadonly()
    filled(MIB, 9)
    assert set(held) == {7}
    assert set(read_only) == {8}


@pytest.mark.usefixtures("nothing_kept")
def test_no_two_views_ever_share_their_memory():
    chance = Random(5)
    held: dict[int, memoryview] = {}
    for number in range(400):
        if len(held) > 6:
            del held[chance.choice(list(held))]
        held[number] = filled(chance.randrange(100_000, 3 * MIB), number % 251)
        for mark, view in held.items():
            assert view[0] == view[-1] == mark % 251
        assert sum(map(len, memory._pool)) <= MAX_POOLED_BYTES


@pytest.mark.usefixtures("nothing_kept")
def test_threads_do_not_get_the_same_memory():
    wrong: list[int] = []

    def fill(mark: int) -> None:
        for _ in range(300):
            view = filled(MIB, mark)
            if view[0] != mark or view[-1] != mark or view[MIB // 2] != mark:
                wrong.append(mark)

    threads = [threading.Thread(target=fill, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("size_bytes", [0, 100_000, MAX_POOLED_BYTES])
def test_neither_small_nor_huge_memory_is_pooled(size_bytes: int):
    assert allocate_reusable(size_bytes).nbytes == size_bytes
    assert not memory._pool


class Miscounted:
    """`sys.getrefcount` that is right when it is first called, and wrong from then on."""

    def __init__(self, wrong: Callable[[int], int]) -> None:
        self.calls = 0
        self._wrong = wrong
        self._count = sys.getrefcount

    def __call__(self, thing: object) -> int:
        self.calls += 1
        count = self._count(thing) - 1  # the argument of this function
        return count if self.calls == 1 else self._wrong(count)


@pytest.mark.parametrize(
    "wrong",
    [lambda count: count - 1, lambda count: count + 1, lambda _: 2, lambda _: 3],
    ids=["too low", "too high", "always free", "always held"],
)
def test_memory_is_new_where_references_are_miscounted(
    wrong: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    miscounted = Miscounted(wrong)
    monkeypatch.setattr(sys, "getrefcount", miscounted)
    fresh = fresh_copy_of(memory)
    assert miscounted.calls > 1
    assert not fresh._CAN_REUSE
    held = fresh.allocate_reusable(MIB)
    held[:] = bytes(MIB)
    view = fresh.allocate_reusable(MIB)
    view[:] = b"\x01" * MIB
    assert not any(held)
    assert not fresh._pool


@pytest.mark.skipif(
    not hasattr(sys, "getrefcount") or not getattr(sys, "_is_gil_enabled", lambda: True)(),
    reason="this interpreter does not count all references at once",
)
def test_memory_is_reused_wherever_references_are_counted() -> None:
    assert memory._CAN_REUSE
    # The interpreter compiles code another way once it has run often.
    for _ in range(10_000):
        assert memory._detects_references()


def fresh_copy_of(module: ModuleType) -> Any:
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    return fresh


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096
    except OSError:
        pytest.skip("only Linux reports the memory in use")
