"""Definition of a corner case, and small helpers to cause one."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafkawire.broker import Corrupt, SeenRequest
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, Buffer, Response
from verify.simulation.harness import Harness
from verify.simulation.plan import BROKER_HOST
from verify.simulation.scenarios.group_workers import make_producer

__all__ = (
    "GROUP",
    "HOST",
    "OTHER_HOST",
    "P0",
    "P1",
    "TOPIC",
    "ChangedResponse",
    "CornerCase",
    "RequestLog",
    "Throttled",
    "committed_offsets",
    "draw_nothing",
    "drop_connections",
    "fill",
)

TOPIC, GROUP = "orders", "billing"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
HOST, OTHER_HOST, FILLER_HOST = "10.0.1.1", "10.0.1.2", "10.0.1.9"


def draw_nothing(rng: random.Random) -> dict[str, Any]:
    """Draw nothing."""
    return {}


@dataclass(frozen=True, slots=True)
class CornerCase:
    """One corner case: `run` causes it, and checks what no invariant covers.

    `draw` chooses the details, which `run` finds in the plan's options. `resets`: positions may be
    lost.
    """

    run: Callable[[Harness], Awaitable[None]]
    draw: Callable[[random.Random], dict[str, Any]] = draw_nothing
    broker: Mapping[str, Any] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=lambda: {TOPIC: 1})
    resets: bool = False


class ChangedResponse(Corrupt):
    """A request is carried out, and `response` makes another answer of its own."""

    def frame(self, buffers: list[Buffer]) -> list[Buffer]:
        return buffers


@dataclass(frozen=True, slots=True)
class Throttled(ChangedResponse):
    """A broker asks for silence."""

    for_ms: int = 0

    def response(self, response: Response) -> Response:
        changed: Any = response
        return replace(changed, throttle_time_ms=self.for_ms)  # type: ignore[no-any-return]


class RequestLog:
    """The answered requests of one API that a client has sent since this was made, in order."""

    def __init__(self, harness: Harness, api: ApiKey, client: str) -> None:
        self.seen: list[SeenRequest] = []
        self._api = api
        self._client = client
        harness.broker.requests.watch(self._process_events)

    def __len__(self) -> int:
        return len(self.seen)

    def _process_events(self, seen: SeenRequest) -> None:
        if seen.api_key is self._api and seen.client_id == self._client:
            self.seen.append(seen)


async def fill(harness: Harness, count: int, partition: int = 0, payload_bytes: int = 0) -> None:
    """Write records into a partition of the topic, each in a batch of its own."""
    name = f"filler at {harness.now():.6f}"
    async with make_producer(harness, name, FILLER_HOST, linger_ms=0) as sender:
        for _ in range(count):
            value = sender.value(b"." * payload_bytes)
            await sender.send_and_wait(TOPIC, value, partition=partition)


def committed_offsets(harness: Harness, group: str = GROUP) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group, as its coordinator has them now."""
    offsets = harness.broker._running.group_coordinator.offsets.committed(group)
    return {TopicPartition(*tp): found.offset for tp, found in offsets.items()}


def drop_connections(harness: Harness, host: str) -> None:
    """Make the nodes drop all connections of a host without notice."""
    harness.world.network.half_open(BROKER_HOST, host, silent=True)
