"""The outside world of one host of a simulation (`runtime.Runtime`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import anyio

from aiokafkawire.runtime import Address, Clock, Listener, Transport, checkpoint
from aiokafkawire.testing.simulation.network import Network

__all__ = ("EPOCH_MS", "SimulatedClock", "SimulatedRuntime")

EPOCH_MS = 1_600_000_000_000
"""The wall clock when a simulation begins."""

T = TypeVar("T")


class SimulatedClock:
    """The virtual time of the event loop."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self.now() * 1_000)

    async def sleep_until(self, deadline: float) -> None:
        await anyio.sleep_until(deadline)


class SimulatedRuntime:
    """One host's network, clock and randomness. Work is never offloaded to a thread."""

    def __init__(self, host: str, network: Network, clock: Clock, rng: random.Random) -> None:
        self.host = host
        self.clock = clock
        self.rng = rng
        self._network = network

    async def resolve(self, host: str, port: int) -> list[Address]:
        return await self._network.resolve(host, port)

    async def connect(self, address: Address) -> Transport:
        return await self._network.connect(self.host, address)

    async def listen(self, address: Address) -> Listener:
        return await self._network.listen(self.host, address)

    async def offload(self, function: Callable[[], T]) -> T:
        await checkpoint()
        return function()
