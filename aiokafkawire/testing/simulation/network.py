"""A network in memory: hosts by their addresses, listeners, connections, and what befalls them."""

from __future__ import annotations

import errno
import random
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.runtime import Address, Clock, Promise, Signal, Transport, checkpoint
from aiokafkawire.runtime.resolver import is_literal
from aiokafkawire.testing.simulation.stream import Link, Pipe, SimulatedTransport
from aiokafkawire.testing.simulation.trace import Trace

__all__ = ("MAX_BACKLOG", "Network", "NetworkOptions", "SimulatedListener")

MAX_BACKLOG = 128
"""Connections that wait to be accepted; further ones are refused."""

FIRST_FREE_PORT = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """How the network is on a good day. Times are in seconds."""

    min_delay_s: float = 0.000_2
    max_delay_s: float = 0.002


class Connection(NamedTuple):
    """A connection that is established: the hosts of its ends, and its two directions."""

    client: str
    server: str
    pipes: tuple[Pipe, Pipe]


class SimulatedListener:
    """A listening port (`runtime.Listener`)."""

    def __init__(self, network: Network, address: Address) -> None:
        self.address = address
        self.waiting: deque[Transport] = deque()
        self.error: OSError | None = None
        self._network = network
        self._news = Signal()

    def offer(self, transport: Transport) -> None:
        self.waiting.append(transport)
        self._news.set()

    def fail(self, error: OSError) -> None:
        self.error = error
        self._news.set()

    async def accept(self) -> Transport:
        await checkpoint()
        while not self.waiting:
            if self.error is not None:
                raise ConnectionResetError(self.error.errno, self.error.strerror)
            await self._news.wait()
        return self.waiting.popleft()

    async def aclose(self) -> None:
        self._network.forget(self)
        self.fail(ConnectionResetError(errno.ECONNRESET, "the listener is closed"))
        for transport in self.waiting:
            transport.abort()
        self.waiting.clear()
        await checkpoint()


class Network:
    """All hosts. A host is its IP address; names are given to it by `name`."""

    def __init__(
        self, clock: Clock, rng: random.Random, trace: Trace, options: NetworkOptions
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._trace = trace
        self._options = options
        self._names: dict[str, list[str]] = {}
        self._listeners: dict[Address, SimulatedListener] = {}
        self._connections: dict[int, Connection] = {}
        self._severed: dict[tuple[str, str], None] = {}
        self._down: dict[str, None] = {}
        self._changed: Promise[None] = Promise()
        self._numbers = 0
        self._free_port = FIRST_FREE_PORT

    # --- names and ports ---

    def name(self, name: str, *hosts: str) -> None:
        """Let a name stand for these hosts."""
        self._names[name] = list(hosts)

    async def resolve(self, host: str, port: int) -> list[Address]:
        await checkpoint()
        if is_literal(host):
            return [Address(host, port)]
        await self._pass()
        if host not in self._names:
            raise OSError(errno.ENOENT, "Name or service not known")
        return [Address(found, port) for found in self._names[host]]

    async def listen(self, host: str, address: Address) -> SimulatedListener:
        await checkpoint()
        port = address.port
        if port == 0:
            port = self._free_port = self._free_port + 1
        taken = Address(address.host, port)
        if taken in self._listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listener = self._listeners[taken] = SimulatedListener(self, taken)
        self._trace.note(f"{host} listens on {taken}")
        return listener

    def forget(self, listener: SimulatedListener) -> None:
        """A port is free again."""
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]
            self._trace.note(f"{listener.address} is closed")

    # --- connections ---

    async def connect(self, host: str, address: Address) -> Transport:
        """Connect; hangs while nothing gets through, as it does on a network."""
        await self._pass()
        while self.severed(host, address.host):
            await self._changed.wait()
        listener = self._listeners.get(address)
        if listener is None or len(listener.waiting) >= MAX_BACKLOG:
            self._trace.note(f"{host} to {address}: refused")
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        self._numbers += 1
        number = self._numbers
        server = address.host
        link = Link(
            self._delay, self._rng, self._clock, self._trace, lambda: self.severed(host, server)
        )
        there = Pipe(f"#{number} {host} -> {address}", link)
        back = Pipe(f"#{number} {address} -> {host}", link)
        self._forget_closed()
        self._connections[number] = Connection(host, server, (there, back))
        self._trace.note(f"#{number} {host} to {address}: connected")
        listener.offer(SimulatedTransport(str(Address(host, 10_000 + number)), back, there))
        return SimulatedTransport(str(address), there, back)

    def _forget_closed(self) -> None:
        for number, connection in list(self._connections.items()):
            if all(pipe.over for pipe in connection.pipes):
                del self._connections[number]

    def _delay(self) -> float:
        return self._rng.uniform(self._options.min_delay_s, self._options.max_delay_s)

    async def _pass(self) -> None:
        """Let the time of one packet pass."""
        await self._clock.sleep_until(self._clock.now() + self._delay())

    # --- bad days ---

    def severed(self, one: str, other: str) -> bool:
        """Whether nothing gets through between two hosts."""
        if one in self._down or other in self._down:
            return True
        return (one, other) in self._severed or (other, one) in self._severed

    def sever(self, one: str, other: str) -> None:
        """Let nothing through between two hosts until `heal`. Nobody is told."""
        self._trace.note(f"{one} and {other} are severed")
        self._severed[one, other] = None

    def heal(self, one: str, other: str) -> None:
        """Let through what was sent meanwhile, and everything from now on."""
        self._trace.note(f"{one} and {other} are healed")
        self._severed.pop((one, other), None)
        self._severed.pop((other, one), None)
        self._tell()

    def reset(self, one: str, other: str) -> None:
        """Break every connection between two hosts; what was on its way is lost."""
        for connection in list(self._connections.values()):
            if {one, other} == {connection.client, connection.server}:
                self._break(connection, "Connection reset by peer")

    def crash(self, host: str) -> None:
        """A host dies: its connections are reset, its ports are closed."""
        self._trace.note(f"{host} crashes")
        for connection in list(self._connections.values()):
            if host in {connection.client, connection.server}:
                self._break(connection, "the host crashed")
        for listener in [held for held in self._listeners.values() if held.address.host == host]:
            self.forget(listener)
            listener.fail(ConnectionResetError(errno.ECONNRESET, "the host crashed"))

    def lose_power(self, host: str) -> None:
        """A host vanishes without a word: who talks to it waits, until `restore`."""
        self._trace.note(f"{host} vanishes")
        self._down[host] = None

    def restore(self, host: str) -> None:
        """The host is there again."""
        self._trace.note(f"{host} is back")
        self._down.pop(host, None)
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, Promise()
        changed.resolve(None)
        for connection in self._connections.values():
            for pipe in connection.pipes:
                pipe.healed()

    def _break(self, connection: Connection, why: str) -> None:
        for pipe in connection.pipes:
            pipe.reset(ConnectionResetError(errno.ECONNRESET, why))
