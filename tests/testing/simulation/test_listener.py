"""Listening ports: what waits there to be accepted."""

from __future__ import annotations

import errno

import pytest

from aiokafkawire.runtime import Address
from aiokafkawire.testing.simulation.listener import MAX_BACKLOG, SimulatedListener

PORT = Address("10.0.0.1", 9092)


class Waiting:
    """A transport that only records its closing."""

    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_a_backlog_has_a_bound() -> None:
    listener = SimulatedListener(PORT, lambda _: None)
    for _ in range(MAX_BACKLOG):
        assert not listener.is_full
        listener.offer(Waiting())  # type: ignore[arg-type]
    assert listener.is_full


async def test_the_first_is_accepted_first() -> None:
    listener = SimulatedListener(PORT, lambda _: None)
    first, second = Waiting(), Waiting()
    listener.offer(first)  # type: ignore[arg-type]
    listener.offer(second)  # type: ignore[arg-type]
    accepted = [await listener.accept(), await listener.accept()]
    assert [id(each) for each in accepted] == [id(first), id(second)]


async def test_closing_the_listener() -> None:
    closed: list[SimulatedListener] = []
    listener = SimulatedListener(PORT, closed.append)
    waiting = Waiting()
    listener.offer(waiting)  # type: ignore[arg-type]
    await listener.aclose()
    assert waiting.aborted
    assert closed == [listener]
    with pytest.raises(ConnectionResetError, match="closed"):
        await listener.accept()


async def test_an_error_comes_after_what_waits() -> None:
    listener = SimulatedListener(PORT, lambda _: None)
    listener.offer(Waiting())  # type: ignore[arg-type]
    listener.fail(ConnectionResetError(errno.ECONNRESET, "the host crashed"))
    await listener.accept()
    with pytest.raises(ConnectionResetError, match="crashed"):
        await listener.accept()
