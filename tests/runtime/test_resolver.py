from __future__ import annotations

import threading

import anyio
import pytest

from aiokafkawire.runtime import Address
from aiokafkawire.runtime.resolver import MAX_THREADS, Resolver


async def test_an_ip_literal_needs_no_lookup():
    def lookup(host: str, port: int) -> list[Address]:
        raise AssertionError("not to be called")

    resolver = Resolver(lookup)
    assert await resolver.resolve("127.0.0.1", 1) == [Address("127.0.0.1", 1)]
    assert await resolver.resolve("::1", 2) == [Address("::1", 2)]


async def test_localhost_is_found():
    found = await Resolver().resolve("localhost", 9092)
    assert {address.host for address in found} & {"127.0.0.1", "::1"}
    assert all(address.port == 9092 for address in found)


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "bad\udcffname"])
async def test_an_invalid_name_is_an_os_error(host: str):
    with pytest.raises(OSError):
        await Resolver().resolve(host, 1)


async def test_a_thread_that_cannot_start_is_an_os_error(
    monkeypatch: pytest.MonkeyPatch,
):
    def lookup(_: str, __: int) -> list[Address]:
        raise ValueError("embedded null character")

    resolver = Resolver(lookup)
    for _ in range(MAX_THREADS + 1):
        with anyio.fail_after(5), pytest.raises(OSError, match="embedded null"):
            await resolver.resolve("bad.example", 1)

    def no_thread(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    for _ in range(MAX_THREADS + 1):
        with anyio.fail_after(5), pytest.raises(OSError, match="new thread"):
            await resolver.resolve("bad.example", 1)


async def test_an_unresponsive_name_server_does_not_block_the_program():
    release = threading.Event()

    def lookup(host: str, port: int) -> list[Address]:
        release.wait(30)
        return [Address("127.0.0.1", port)]

    resolver = Resolver(lookup)
    for _ in range(MAX_THREADS):
        with anyio.move_on_after(0.01) as scope:
            await resolver.resolve("silent.example", 1)
        assert scope.cancelled_caught
    # All threads are stuck: the next one waits for a place, and can be cancelled too.
    with anyio.move_on_after(0.01) as scope:
        await resolver.resolve("one-more.example", 1)
    assert scope.cancelled_caught
    stuck = [thread for thread in threading.enumerate() if thread.name.endswith("silent.example")]
    assert len(stuck) == MAX_THREADS
    release.set()
    assert await resolver.resolve("awake.example", 3) == [Address("127.0.0.1", 3)]


def test_a_lookup_after_the_end_of_the_loop_is_ignored():
    release = threading.Event()

    def lookup(host: str, port: int) -> list[Address]:
        release.wait(30)
        return []

    async def leave_early() -> None:
        with anyio.move_on_after(0.01):
            await Resolver(lookup).resolve("gone.example", 1)

    for backend in ("asyncio", "trio"):
        anyio.run(leave_early, backend=backend)
    release.set()
    for thread in threading.enumerate():
        if thread.name.endswith("gone.example"):
            thread.join(5)
            assert not thread.is_alive()
