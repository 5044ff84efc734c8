"""Finds where to begin: committed offsets from the coordinator, others from the leaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime import NEVER, Host, Runtime, Signal
from aiokafkawire.types import NodeId, OffsetAndMetadata, TopicPartition

from .assignment import Assignment
from .list_offsets import OffsetLister
from .partition import (
    AwaitingCommitted,
    CommittedKnown,
    Event,
    Listed,
    LookupFailed,
    Partition,
    Resetting,
    State,
)

__all__ = ("CommittedOffsets", "Positioner")


class CommittedOffsets(Protocol):
    """Where committed offsets come from."""

    async def fetch(
        self, partitions: list[TopicPartition], deadline: float
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """What is committed for each; None for nothing. Raises `KafkaError`."""
        ...


class Positioner:
    """Works on the partitions of an assignment that have no position.

    `on_change` is called when some have one, or cannot have one; `heard` as in `Fetcher`.
    """

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        host: Host,
        *,
        assignment: Assignment,
        committed: CommittedOffsets | None,
        lister: OffsetLister,
        on_change: Callable[[], None],
        heard: Callable[[KafkaError | None], None],
    ) -> None:
        config = cluster.config
        self._cluster = cluster
        self._clock = runtime.clock
        self._rng = runtime.rng
        self._host = host
        self._assignment = assignment
        self._committed = committed
        self._lister = lister
        self._on_change = on_change
        self._heard = heard
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._failures = 0
        self._asked: dict[State, None] = {}
        self._wake = Signal()

    def wake(self) -> None:
        """Positions may be missing, or leaders are known that were not."""
        self._wake.set()

    async def run(self) -> None:
        """Begin look-ups as they become due, until the host stops."""
        while self._host.running:
            owned = [p for p in self._assignment.values() if not p.revoked]
            now = self._clock.now()
            self._ask_committed([p for p in owned if self._due(p, AwaitingCommitted, now)])
            self._ask_leaders([p for p in owned if self._due(p, Resetting, now)])
            later = [
                p.state.not_before
                for p in owned
                if isinstance(p.state, AwaitingCommitted | Resetting) and p.state.not_before > now
            ]
            await self._wake.wait(min(later, default=NEVER))

    def _due(self, partition: Partition, kind: type, now: float) -> bool:
        state = partition.state
        return (
            isinstance(state, kind)
            and state not in self._asked
            and getattr(state, "not_before", now) <= now
        )

    def _ask_committed(self, partitions: list[Partition]) -> None:
        if partitions and self._committed is not None:
            self._asked.update((p.state, None) for p in partitions)
            asked = {p: p.state for p in partitions}
            self._host.spawn(self._fetch_committed, self._committed, asked, name="offset-fetch")

    def _ask_leaders(self, partitions: list[Partition]) -> None:
        by_name = {p.tp: p for p in partitions}
        grouped = self._lister.by_leader(by_name)
        for node, tps in grouped.items():
            asked = {by_name[tp]: by_name[tp].state for tp in tps}
            self._asked.update((state, None) for state in asked.values())
            self._host.spawn(self._list, node, asked, name=f"list-offsets-{node}")
        if len(by_name) > sum(map(len, grouped.values())):
            self._cluster.request_update()

    def _deadline(self) -> float:
        return self._clock.now() + self._cluster.config.request_timeout_ms / 1000

    def _tell(self, asked: dict[Partition, State], events: dict[TopicPartition, Event]) -> None:
        for partition, state in asked.items():
            self._asked.pop(state, None)
            event = events.get(partition.tp)
            if event is not None:
                partition.handle(event)
        self._on_change()
        self._wake.set()

    def _again_at(self) -> float:
        self._failures += 1
        return self._clock.now() + self._backoff.delay(self._failures, self._rng)

    async def _fetch_committed(
        self, committed: CommittedOffsets, asked: dict[Partition, State]
    ) -> None:
        events: dict[TopicPartition, Event] = {}
        try:
            found = await committed.fetch([p.tp for p in asked], self._deadline())
            self._heard(None)
            self._failures = 0
            events = {p.tp: CommittedKnown(state, found[p.tp]) for p, state in asked.items()}
        except KafkaError as error:
            self._heard(error)
            again_at = self._again_at()
            events = {p.tp: LookupFailed(state, error, again_at) for p, state in asked.items()}
        finally:
            self._tell(asked, events)

    async def _list(self, node: NodeId, asked: dict[Partition, State]) -> None:
        events: dict[TopicPartition, Event] = {}
        states = {p.tp: state for p, state in asked.items()}
        timestamps = {
            tp: state.timestamp for tp, state in states.items() if isinstance(state, Resetting)
        }
        try:
            listed = await self._lister.at_node(node, timestamps, self._deadline())
            self._heard(next(iter(listed.failed.values()), None) if not listed.found else None)
            for tp, offset in listed.found.items():
                if offset is None:
                    events[tp] = Listed(states[tp], None)
                else:
                    events[tp] = Listed(states[tp], offset.offset, offset.leader_epoch)
            if listed.failed:
                again_at = self._again_at()
            else:
                self._failures = 0
            for tp, error in listed.failed.items():
                events[tp] = LookupFailed(states[tp], error, again_at)
        finally:
            self._tell(asked, events)
