"""The outside world of one host of a simulation (`runtime.Runtime`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from aiokafkawire.runtime import Address, Listener, Transport, checkpoint
from aiokafkawire.testing.simulation.clock import SimulatedClock
from aiokafkawire.testing.simulation.network import Network

__all__ = ("SimulatedRuntime",)

T = TypeVar("T")


class SimulatedThreads:
    """Runs functions in the calling task: they take no virtual time."""

    async def run(self, function: Callable[[], T]) -> T:
        await checkpoint()
        return function()


class SimulatedRuntime:
    """One host's network, clock and randomness. Work is never offloaded to a thread."""

    def __init__(
        self, host: str, network: Network, clock: SimulatedClock, rng: random.Random
    ) -> None:
        self.host = host
        self.clock = clock
        self.rng = rng
        self._network = network

    async def resolve(self, host: str, port: int) -> list[Address]:
        return await self._network.resolve(self.host, host, port)

    async def connect(self, address: Address) -> Transport:
        return await self._network.connect(self.host, address)

    async def listen(self, address: Address) -> Listener:
        return await self._network.listen(self.host, address)

    def nonce(self) -> str:
        return f"{self.rng.getrandbits(192):048x}"

    async def checkpoint_one_by_one(self) -> None:
        """Do not suspend: virtual time passes between steps alone."""

    def threads(self, name: str, limit: int) -> SimulatedThreads:
        return SimulatedThreads()

    async def offload(self, function: Callable[[], T]) -> T:
        await checkpoint()
        return function()
