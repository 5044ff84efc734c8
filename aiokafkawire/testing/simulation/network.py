"""Network in memory: hosts, listeners, connections, and faults between them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from aiokafkawire.config import is_ip_address
from aiokafkawire.runtime import Address, Clock, Future, Transport, checkpoint
from aiokafkawire.testing.simulation.links import Link, Links, NetworkOptions
from aiokafkawire.testing.simulation.listener import SimulatedListener
from aiokafkawire.testing.simulation.name_service import NameService
from aiokafkawire.testing.simulation.stream import Pipe, SimulatedTransport
from aiokafkawire.testing.simulation.trace import Trace
from aiokafkawire.testing.simulation.virtual_time import VirtualTime

__all__ = ("Network",)

LAST_PORT = 20_000
"""Listeners on port 0 get the ports after this one; none is used twice."""

NAME_SERVICE = "names"
"""Host of the name service."""


@dataclass(slots=True, eq=False)
class SimulatedConnection:
    """A connection of a client host to a server address."""

    number: int
    client: str
    server: Address
    ends: dict[Literal["client", "server"], SimulatedTransport]
    to_server: Pipe
    to_client: Pipe

    def end_at(self, end: str, other: str) -> Literal["client", "server"] | None:
        """Return the end at `end` if the connection is between the two."""
        server = (self.server.host, str(self.server))
        if end == self.client and other in server:
            return "client"
        if end in server and other == self.client:
            return "server"
        return None

    def is_of(self, host: str) -> bool:
        return host in (self.client, self.server.host)


@dataclass(slots=True, eq=False)
class ConnectRule:
    """Fault of connects to a host or port."""

    kind: Literal["refused", "hang"]
    to: str
    by: str | None
    left: int | None
    over: Future[None]

    def take(self, host: str, address: Address) -> bool:
        """Return True and count if the rule applies to a connect."""
        if self.to not in (address.host, str(address)) or self.by not in (None, host):
            return False
        if self.left is not None:
            if self.left <= 0:
                return False
            self.left -= 1
        return True


class Network:
    """All hosts and their connections. A host is given by its IP address; `name` adds names.

    Arguments that name an end of a connection are a host, or one of its ports as "host:port".
    `heal_all` ends all lasting faults.

    Attributes:
        connects: Number of connects so far.
        connects_refused: Number of connects that were refused.
    """

    def __init__(
        self,
        clock: Clock,
        time: VirtualTime,
        trace: Trace,
        links: Links,
    ) -> None:
        self._clock = clock
        self._time = time
        self._trace = trace
        self._links = links
        self._names = NameService(trace)
        self._listeners: dict[Address, SimulatedListener] = {}
        self._connections: dict[int, SimulatedConnection] = {}
        self._rules: list[ConnectRule] = []
        self._changed: Future[None] = Future()
        self.connects = 0
        self.connects_refused = 0
        self._last_port = LAST_PORT

    # --- ports and connections ---

    async def resolve(self, host: str, name: str, port: int) -> list[Address]:
        await checkpoint()
        if is_ip_address(name):
            return [Address(name, port)]
        link = self._links.between(host, NAME_SERVICE)
        await self._clock.sleep_until(link.arrival(self._time.now()))
        await self._open(link)
        return [Address(host, port) for host in await self._names.resolve_name(name)]

    async def _open(self, *links: Link) -> None:
        while any(link.severed for link in links):
            await self._changed.wait()

    async def listen(self, host: str, address: Address) -> SimulatedListener:
        await checkpoint()
        taken = address if address.port else self._free(address.host)
        if taken in self._listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listener = self._listeners[taken] = SimulatedListener(taken, self._forget)
        self._trace.note(f"{host} listens on {taken}")
        return listener

    def _free(self, host: str) -> Address:
        self._last_port += 1
        return Address(host, self._last_port)

    def _forget(self, listener: SimulatedListener) -> None:
        """Free a port."""
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]
            self._trace.note(f"{listener.address} is closed")

    async def connect(self, host: str, address: Address) -> Transport:
        """Connect; hangs while the link is severed, as in a real network."""
        to_server = self._links.between(host, str(address))
        to_client = self._links.between(str(address), host)
        await self._clock.sleep_until(to_server.arrival(self._time.now()))
        rule = next((rule for rule in self._rules if rule.take(host, address)), None)
        if rule is not None and rule.kind == "hang":
            self._trace.note(f"{host} to {address}: hangs")
            await rule.over.wait()
        await self._open(to_server, to_client)
        listener = self._listeners.get(address)
        if listener is None or listener.is_full or (rule is not None and rule.kind == "refused"):
            self.connects_refused += 1
            self._trace.note(f"{host} to {address}: refused")
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        connection = self._establish(host, address, to_server, to_client)
        listener.offer(connection.ends["server"])
        try:
            await self._clock.sleep_until(to_client.arrival(self._time.now()))
        except BaseException:
            connection.ends["client"].abort()
            raise
        return connection.ends["client"]

    def _establish(
        self, host: str, address: Address, to_server: Link, to_client: Link
    ) -> SimulatedConnection:
        self.connects += 1
        number, server = self.connects, str(address)
        outgoing = Pipe(f"#{number} {host} -> {server}", to_server, self._time, self._trace)
        incoming = Pipe(f"#{number} {server} -> {host}", to_client, self._time, self._trace)

        def closed() -> None:
            if all(end.closed for end in connection.ends.values()):
                del self._connections[number]

        client = SimulatedTransport(server, outgoing, incoming, closed)
        peer = str(Address(host, 10_000 + number % 50_000))
        accepted = SimulatedTransport(peer, incoming, outgoing, closed)
        connection = SimulatedConnection(
            number, host, address, {"client": client, "server": accepted}, outgoing, incoming
        )
        self._connections[number] = connection
        self._trace.note(f"#{number} {host} to {server}: connected")
        return connection

    def _between(
        self, one: str, other: str
    ) -> Iterator[tuple[SimulatedConnection, SimulatedTransport]]:
        """Return connections between two ends, each with its end at the first."""
        for connection in list(self._connections.values()):
            end = connection.end_at(one, other)
            if end is not None:
                yield connection, connection.ends[end]

    # --- partitions, and slow links ---

    def sever(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Block traffic between two ends until `heal`; sent bytes wait, without any error.

        With `one_way`, only traffic from the first to the second is blocked.
        """
        self._trace.note(f"{one} and {other} are severed{' one way' * one_way}")
        self._links.sever(one, other)
        if not one_way:
            self._links.sever(other, one)

    def heal(self, one: str, other: str) -> None:
        """Deliver what was held, and everything from now on."""
        self._trace.note(f"{one} and {other} are healed")
        self._links.heal(one, other)
        self._links.heal(other, one)
        self._wake_waiters()

    def lose_power(self, host: str) -> None:
        """Make a host vanish silently until `restore`; its peers wait."""
        self._trace.note(f"{host} vanishes")
        self._links.lose(host)

    def restore(self, host: str) -> None:
        """Bring the host back with its connections."""
        self._trace.note(f"{host} is back")
        self._links.restore(host)
        self._wake_waiters()

    def set_link(self, one: str, other: str, options: NetworkOptions | None) -> None:
        """Set options of the link between two ends; None restores the defaults."""
        self._trace.note(f"{one} and {other} are linked by {options or 'the usual'}")
        self._links.set_options(one, other, options)

    def heal_all(self) -> None:
        """End all lasting faults; broken connections stay broken."""
        self._trace.note("all is healed")
        self._links.heal_all()
        self._drop_rules(self._rules)
        self._names.heal_all()
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        """Wake connects that waited, and deliver what was held."""
        changed, self._changed = self._changed, Future()
        changed.set_result(None)
        for connection in self._connections.values():
            connection.to_server.healed()
            connection.to_client.healed()

    # --- broken connections ---

    def reset(self, one: str, other: str) -> None:
        """Reset every connection between two ends; bytes in transit are lost."""
        for connection, _ in self._between(one, other):
            self._break(connection, "Connection reset by peer")

    def crash(self, host: str) -> None:
        """Crash a host: reset its connections and close its ports."""
        self._trace.note(f"{host} crashes")
        for connection in list(self._connections.values()):
            if connection.is_of(host):
                self._break(connection, "the host crashed")
        for listener in [held for held in self._listeners.values() if held.address.host == host]:
            self._forget(listener)
            listener.fail(ConnectionResetError(errno.ECONNRESET, "the host crashed"))

    def _break(self, connection: SimulatedConnection, why: str) -> None:
        self._trace.note(f"#{connection.number} reset: {why}")
        for end in connection.ends.values():
            end.lose(ConnectionResetError(errno.ECONNRESET, why))

    def reset_mid_write(self, sender: str, receiver: str) -> None:
        """Break each present connection in the middle of the sender's next write.

        The receiver gets only a part of that write; then the connection is reset at both ends.
        """
        for connection, end in self._between(sender, receiver):
            pipe = (
                connection.to_server if end is connection.ends["client"] else connection.to_client
            )
            pipe.breaks_in_next_write = True
            self._trace.note(f"{pipe.name} will tear")

    def half_open(self, gone: str, left: str, *, silent: bool = False) -> None:
        """Break the connections between two ends at the first end only.

        The other end gets no error, so its reads block. Its next write causes a reset, or with
        `silent` nothing, as behind a firewall that dropped the connection.
        """
        for connection, end in self._between(gone, left):
            self._trace.note(f"#{connection.number} is gone at {gone}{' silently' * silent}")
            end.lose(
                ConnectionResetError(errno.ECONNRESET, "gone without a word"), ignores_data=silent
            )

    # --- connects ---

    def refuse_connects(self, to: str, *, by: str | None = None, times: int | None = None) -> None:
        """Refuse connects to a host or port until `allow_connects`.

        Args:
            to: The host or port.
            by: Only connects of this host.
            times: Number of connects to refuse; all by default.
        """
        self._rule("refused", to, by, times)

    def hang_connects(self, to: str, *, by: str | None = None, times: int | None = None) -> None:
        """Let connects hang until `allow_connects`; arguments as for `refuse_connects`."""
        self._rule("hang", to, by, times)

    def allow_connects(self, to: str) -> None:
        """End the connect faults of a host or port; hanging connects continue."""
        self._trace.note(f"connects to {to} are allowed")
        self._drop_rules([rule for rule in self._rules if rule.to == to])

    def _rule(
        self, kind: Literal["refused", "hang"], to: str, by: str | None, times: int | None
    ) -> None:
        many = "" if times is None else f", {times} times"
        self._trace.note(f"connects by {by or 'all'} to {to}: {kind}{many}")
        self._rules.append(ConnectRule(kind, to, by, times, Future()))

    def _drop_rules(self, dropped: list[ConnectRule]) -> None:
        self._rules = [rule for rule in self._rules if rule not in dropped]
        for rule in dropped:
            rule.over.set_result(None)

    # --- names ---

    def name(self, name: str, *hosts: str) -> None:
        """Map a name to hosts."""
        self._names.set(name, list(hosts))

    def fail_name(self, name: str) -> None:
        """Fail lookups of a name until `heal_name`."""
        self._names.fail(name)

    def hang_name(self, name: str) -> None:
        """Let lookups of a name hang until `heal_name`."""
        self._names.hang(name)

    def heal_name(self, name: str) -> None:
        """Answer lookups of the name again."""
        self._names.heal(name)

    # --- inspection ---

    def open_sockets(self) -> Iterator[str]:
        """Return listening ports and connection ends that were not closed."""
        for address in self._listeners:
            yield f"listener {address}"
        for connection in self._connections.values():
            hosts = {"client": connection.client, "server": str(connection.server)}
            for name, end in connection.ends.items():
                if not end.closed:
                    yield f"{connection.to_server.name}: the end at {hosts[name]}"

    def in_transit(self) -> Iterator[str]:
        """Describe the bytes in transit on each connection."""
        for connection in self._connections.values():
            yield str(connection.to_server)
            yield str(connection.to_client)
