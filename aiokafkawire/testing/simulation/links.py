"""Links between hosts: delays, bandwidth, fragmentation and partitions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

__all__ = ("MAX_SINGLE_BYTES", "Link", "Links", "NetworkOptions")

MAX_SINGLE_BYTES = 64
"""Limit of single-byte pieces per write; more cost time without showing anything new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """Delays, bandwidth and cutting. Times are in seconds, chances from 0 to 1.

    A packet takes `min_delay_s` to `max_delay_s`, and with the chance `slow_packets` up to
    `max_slow_delay_s` more. `bandwidth_bytes_per_s` is that of each direction between a host and a
    port, for all connections together; None for no limit. A write is cut with the chance
    `fragmented` into 2 to `max_fragments` pieces, and with the chance `single_bytes` up to
    `MAX_SINGLE_BYTES` bytes at its beginning come one by one. With the chance `partial_writes` only
    a part of it is taken at once.
    """

    min_delay_s: float = 0.000_2
    max_delay_s: float = 0.002
    slow_packets: float = 0.0
    max_slow_delay_s: float = 1.0
    bandwidth_bytes_per_s: float | None = None
    fragmented: float = 0.25
    max_fragments: int = 4
    single_bytes: float = 0.0
    partial_writes: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.min_delay_s <= self.max_delay_s or self.max_slow_delay_s < 0:
            raise ValueError(f"delays that cannot be: {self}")
        if self.bandwidth_bytes_per_s is not None and self.bandwidth_bytes_per_s <= 0:
            raise ValueError("bandwidth_bytes_per_s must be above 0")
        for chance in (self.slow_packets, self.fragmented, self.single_bytes, self.partial_writes):
            if not 0 <= chance <= 1:
                raise ValueError(f"{chance} is no chance from 0 to 1")
        if self.max_fragments < 1:
            raise ValueError("max_fragments must be at least 1")


class Link:
    """One direction between a host and a port, shared by all their connections."""

    __slots__ = ("_free_at", "_rng", "options", "severed")

    def __init__(self, options: NetworkOptions, rng: random.Random) -> None:
        self.options = options
        self.severed = False
        self._rng = rng
        self._free_at = 0.0

    def arrival(self, now: float, size_bytes: int = 0) -> float:
        """Return the arrival time of a packet that is sent now."""
        options, rng = self.options, self._rng
        delay = options.min_delay_s + (options.max_delay_s - options.min_delay_s) * rng.random()
        if options.slow_packets and rng.random() < options.slow_packets:
            delay += options.max_slow_delay_s * rng.random()
        if options.bandwidth_bytes_per_s is None:
            return now + delay
        self._free_at = max(self._free_at, now) + size_bytes / options.bandwidth_bytes_per_s
        return self._free_at + delay

    def pieces(self, data: memoryview) -> Iterator[memoryview]:
        """Split a write into packets."""
        options, rng = self.options, self._rng
        if options.single_bytes and rng.random() < options.single_bytes:
            singles = min(rng.randint(1, MAX_SINGLE_BYTES), len(data))
            for place in range(singles):
                yield data[place : place + 1]
            data = data[singles:]
        if len(data) > 1 and options.max_fragments > 1 and rng.random() < options.fragmented:
            count = rng.randint(2, options.max_fragments)
            cuts = sorted({rng.randrange(1, len(data)) for _ in range(count - 1)})
            for start, end in pairwise((0, *cuts, len(data))):
                yield data[start:end]
        elif data:
            yield data

    def accepted_bytes(self, size_bytes: int) -> int:
        """Return how much of a write the sender's system accepts at once."""
        if size_bytes > 0 and self._rng.random() < self.options.partial_writes:
            return self._rng.randrange(size_bytes)
        return size_bytes

    def partial_write(self, data: memoryview) -> memoryview:
        """Return the part of a write that arrives before the connection breaks."""
        return data[: self._rng.randrange(1, len(data))] if len(data) > 1 else data[:0]


class Links:
    """All links. An end is a host, or one port of it as "host:port".

    Each link has its own random source, so links do not influence each other.
    """

    def __init__(self, options: NetworkOptions, rng: Callable[[str], random.Random]) -> None:
        self._options = options
        self._rng = rng
        self._links: dict[tuple[str, str], Link] = {}
        self._custom_options: dict[tuple[str, str], NetworkOptions] = {}
        self._severed: dict[tuple[str, str], None] = {}
        self._down: dict[str, None] = {}

    def between(self, sender: str, receiver: str) -> Link:
        """Return the link from one end to another; one of them is a port."""
        link = self._links.get((sender, receiver))
        if link is None:
            link = self._links[sender, receiver] = Link(
                self._options, self._rng(f"{sender} to {receiver}")
            )
            self._configure(sender, receiver, link)
        return link

    def _configure(self, sender: str, receiver: str, link: Link) -> None:
        pairs = _matching_pairs(sender, receiver)
        link.options = next(
            (self._custom_options[pair] for pair in pairs if pair in self._custom_options),
            self._options,
        )
        link.severed = any(
            pair in self._severed or pair[0] in self._down or pair[1] in self._down
            for pair in pairs
        )

    def _configure_all(self) -> None:
        for (sender, receiver), link in self._links.items():
            self._configure(sender, receiver, link)

    def set_options(self, one: str, other: str, options: NetworkOptions | None) -> None:
        for pair in ((one, other), (other, one)):
            if options is None:
                self._custom_options.pop(pair, None)
            else:
                self._custom_options[pair] = options
        self._configure_all()

    def sever(self, sender: str, receiver: str) -> None:
        self._severed[sender, receiver] = None
        self._configure_all()

    def heal(self, sender: str, receiver: str) -> None:
        self._severed.pop((sender, receiver), None)
        self._configure_all()

    def lose(self, end: str) -> None:
        """Take an end down."""
        self._down[end] = None
        self._configure_all()

    def restore(self, end: str) -> None:
        self._down.pop(end, None)
        self._configure_all()

    def heal_all(self) -> None:
        self._custom_options.clear()
        self._severed.clear()
        self._down.clear()
        self._configure_all()


def _matching_pairs(one: str, other: str) -> list[tuple[str, str]]:
    """Return the pairs that apply to two ends, ports before hosts."""
    return [(a, b) for a in _names(one) for b in _names(other)]


def _names(end: str) -> tuple[str, ...]:
    """Return the end and, for "host:port", its host."""
    host, _, port = end.rpartition(":")
    if not port.isdigit() or (":" in host and not host.startswith("[")):
        return (end,)
    return (end, host.strip("[]"))
