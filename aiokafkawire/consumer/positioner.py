"""Finds where to begin: committed offsets from the coordinator, others from the leaders.

Has the leaders validate positions, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import KafkaError, UnknownTopic
from aiokafkawire.runtime import Host, Runtime, Signal, in_slices
from aiokafkawire.types import NodeId, OffsetAndMetadata, TopicPartition

from .answers import Answers, by_leader
from .assignment import Assignment
from .epoch_ends import EpochEnd, EpochQuestion, epoch_ends
from .list_offsets import OffsetLister
from .partition import (
    Ago,
    AwaitingCommitted,
    CommittedKnown,
    EpochEnded,
    Event,
    Listed,
    LookupFailed,
    Partition,
    Positioned,
    Refusal,
    Resetting,
    State,
    Validating,
)
from .search import LeaderSearch, MissingPartitions
from .start_log import StartLog

__all__ = ("CommittedOffsets", "Positioner")

MAX_STALE_ASKS = 5
"""How often newer metadata is waited for when a position is of an epoch that it does not know."""

MAX_ASKED = 2_000
"""Partitions of one request: more would keep the event loop for tens of milliseconds."""

Asked = dict[Partition, State]


class CommittedOffsets(Protocol):
    """Where committed offsets come from."""

    async def fetch(
        self, partitions: list[TopicPartition], deadline: float
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """What is committed for each; None for nothing. Raises `KafkaError`."""
        ...


class Positioner:
    """Works on the partitions of an assignment that have no position, or a doubtful one.

    `on_change` is called with those that have one, or cannot have one; `heard` as in `Fetcher`.
    `let_go` is asked whether a partition that its topic has long lacked was not asked for by name:
    then it is gone.
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
        policy: str,
        let_go: Callable[[Partition], bool],
        on_change: Callable[[Collection[Partition]], None],
        heard: Callable[[KafkaError | None], None],
    ) -> None:
        config = cluster.config
        self._cluster = cluster
        self._runtime = runtime
        self._host = host
        self._assignment = assignment
        self._committed = committed
        self._lister = lister
        self._let_go = let_go
        self._on_change = on_change
        self._heard = heard
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._failures = 0
        self._again = 0.0
        self._asked: dict[State, None] = {}
        self._look_at_all = True
        self._changed: dict[Partition, None] = {}
        self._later: dict[Partition, None] = {}
        self._leaderless: dict[Partition, None] = {}
        self._search = LeaderSearch(config.retry_backoff_ms / 1000)
        self._missing = MissingPartitions(config.default_api_timeout_ms / 1000)
        self._wake = Signal()
        self.log = StartLog(host.name, host.fields, policy)

    def wake(self) -> None:
        """Positions may be missing, or leaders are known that were not."""
        self._look_at_all = True
        self._wake.set()

    def look_at(self, partitions: Iterable[Partition]) -> None:
        """Positions of these partitions alone may be missing."""
        self._changed.update(dict.fromkeys(partitions))
        self._wake.set()

    async def run(self) -> None:
        """Begin look-ups as they become due, until the host stops."""
        followed: MetadataSnapshot | None = None
        while self._host.running:
            now = self._runtime.clock.now()
            self.log.log_sought(now)
            metadata = self._cluster.metadata
            if metadata is not followed:
                followed = metadata
                self._look_at_all = True
            for due in await self._look(metadata):
                async for partitions in in_slices(due, MAX_ASKED):
                    self._ask(partitions)
            self._search_leaders(metadata, self._runtime.clock.now())
            later = [_not_before(p.state) for p in self._later]
            await self._wake.wait(min([*later, self._search.next_at, self._missing.next_at]))

    async def _look(self, metadata: MetadataSnapshot) -> list[list[Partition]]:
        """The partitions to look up now, by whom to ask, of those that changed or are due.

        Some are looked at in one step; they may be in other states when the last ones are.
        """
        if self._look_at_all:
            self._look_at_all = False
            self._changed.update(dict.fromkeys(self._assignment.values()))
        now = self._runtime.clock.now()
        ripe = [p for p in self._later if _not_before(p.state) <= now]
        self._changed.update(dict.fromkeys(ripe))
        changed, self._changed = self._changed, {}
        due: dict[NodeId | None, list[Partition]] = {}
        async for partitions in in_slices([*changed]):
            now = self._runtime.clock.now()
            for partition in partitions:
                self._later.pop(partition, None)
                if self._assignment.get(partition.tp) is not partition:
                    continue
                leader = metadata.leader(partition.tp)
                # Of what is about to go a callback may ask the position.
                if leader is None:
                    self._leaderless[partition] = None
                elif not partition.revoked:
                    partition.follow(leader)
                state = partition.state
                if not isinstance(state, _ASKING) or state in self._asked:
                    continue
                if _not_before(state) > now:
                    self._later[partition] = None
                    continue
                of_group = isinstance(state, AwaitingCommitted)
                node = None if of_group or leader is None else leader.node
                due.setdefault(node, []).append(partition)
        return list(due.values())

    def _ask(self, partitions: Iterable[Partition]) -> None:
        """Begin the look-ups of partitions that still need them."""
        asking = [
            p
            for p in partitions
            if self._assignment.get(p.tp) is p and p.state not in self._asked and self._host.running
        ]
        self._ask_committed([p for p in asking if isinstance(p.state, AwaitingCommitted)])
        self._ask_offsets([p for p in asking if isinstance(p.state, Resetting)])
        validating = [p for p in asking if isinstance(p.state, Validating)]
        self._validate(validating, self._runtime.clock.now())

    def _search_leaders(self, metadata: MetadataSnapshot, now: float) -> None:
        """Look for leaders that are not known."""
        absent: list[TopicPartition] = []
        leaderless = False
        for partition in list(self._leaderless):
            tp = partition.tp
            if self._assignment.get(tp) is not partition or metadata.leader(tp) is not None:
                del self._leaderless[partition]
                continue
            if partition.revoked:
                continue
            topic = metadata.topics.get(tp.topic)
            # What was not told of yet has been asked for when it came into use.
            leaderless |= topic is not None or tp.topic in metadata.errors
            if topic is not None and tp.partition not in topic.partitions:
                absent.append(tp)
        for tp in self._missing.overdue(absent, now):
            self._refuse(tp)
        if not leaderless:
            self._search.found()
        elif self._search.missing(now, self._runtime.rng):
            self._cluster.request_update()

    def _refuse(self, tp: TopicPartition) -> None:
        partition = self._assignment.get(tp)
        if partition is None or self._let_go(partition):
            return
        if not isinstance(partition.state, _REFUSABLE):
            return
        error = UnknownTopic(
            f"topic {tp.topic!r} has no partition {tp.partition}, and did not come to have one for"
            f" {self._cluster.config.default_api_timeout_ms / 1000:g} s (default_api_timeout_ms)",
            topic=tp.topic,
            partition=tp.partition,
        )
        partition.handle(Refusal(partition.state, error))
        self._on_change([partition])

    # --- committed offsets ---

    def _ask_committed(self, partitions: list[Partition]) -> None:
        if partitions and self._committed is not None:
            asked = self._note(partitions)
            self._host.spawn(self._fetch_committed, self._committed, asked, name="offset-fetch")

    async def _fetch_committed(self, committed: CommittedOffsets, asked: Asked) -> None:
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

    # --- offsets by time ---

    def _ask_offsets(self, partitions: list[Partition]) -> None:
        by_name = {p.tp: p for p in partitions}
        for node, tps in by_leader(self._cluster.metadata, by_name).items():
            asked = self._note([by_name[tp] for tp in tps])
            self._host.spawn(self._list, node, asked, name=f"list-offsets-{node}")

    async def _list(self, node: NodeId, asked: Asked) -> None:
        wall_ms = self._runtime.clock.wall_ms()
        timestamps = {
            p.tp: _timestamp(state.timestamp, wall_ms)
            for p, state in asked.items()
            if isinstance(state, Resetting)
        }
        leaders = {tp: self._cluster.metadata.leader(tp) for tp in timestamps}
        states = {p.tp: state for p, state in asked.items()}

        async def ask() -> dict[TopicPartition, Event]:
            listed = await self._lister.at_node(node, timestamps, self._deadline())
            events = self._failed(states, listed)
            for tp, offset in listed.found.items():
                if offset is None:
                    events[tp] = Listed(states[tp], None)
                else:
                    events[tp] = Listed(states[tp], offset.offset, offset.leader_epoch, leaders[tp])
            return events

        await self._telling(asked, ask())

    # --- validation ---

    def _validate(self, partitions: list[Partition], now: float) -> None:
        by_node: dict[NodeId, list[Partition]] = {}
        for partition in partitions:
            state = partition.state
            assert isinstance(state, Validating)
            leader = state.leader
            if state.buffer.fetch_epoch > leader.epoch and state.failures < MAX_STALE_ASKS:
                # The metadata is behind what was read or committed.
                self._cluster.request_update()
                delay_s = self._backoff.delay(state.failures + 1, self._runtime.rng)
                error = KafkaError("the metadata is of an older leader", retriable=True)
                partition.handle(LookupFailed(state, error, now + delay_s))
                self.look_at([partition])
            else:
                by_node.setdefault(leader.node, []).append(partition)
        for node, some in by_node.items():
            self._host.spawn(
                self._ask_epochs, node, self._note(some), name=f"validate-positions-{node}"
            )

    async def _ask_epochs(self, node: NodeId, asked: Asked) -> None:
        questions = {
            p.tp: EpochQuestion(state.buffer.fetch_epoch, state.leader.epoch)
            for p, state in asked.items()
            if isinstance(state, Validating)
        }
        states = {p.tp: state for p, state in asked.items()}

        async def ask() -> dict[TopicPartition, Event]:
            ends: Answers[EpochEnd] = await epoch_ends(
                self._cluster, node, questions, self._deadline()
            )
            events = self._failed(states, ends)
            for tp, end in ends.found.items():
                events[tp] = EpochEnded(states[tp], end.epoch, end.end_offset)
            return events

        await self._telling(asked, ask())

    # --- asking ---

    def _note(self, partitions: Iterable[Partition]) -> Asked:
        asked = {p: p.state for p in partitions}
        self._asked.update((state, None) for state in asked.values())
        return asked

    def _failed(
        self, states: Mapping[TopicPartition, State], answers: Answers[Any]
    ) -> dict[TopicPartition, Event]:
        self._heard(next(iter(answers.failed.values()), None) if not answers.found else None)
        if not answers.failed:
            self._failures = 0
            return {}
        again_at = self._again_at()
        return {
            tp: LookupFailed(states[tp], error, again_at) for tp, error in answers.failed.items()
        }

    async def _telling(self, asked: Asked, ask: Awaitable[dict[TopicPartition, Event]]) -> None:
        events: dict[TopicPartition, Event] = {}
        try:
            events = await ask
        finally:
            self._tell(asked, events)

    def _tell(self, asked: Asked, events: dict[TopicPartition, Event]) -> None:
        for partition, state in asked.items():
            self._asked.pop(state, None)
            event = events.get(partition.tp)
            if event is not None:
                partition.handle(event)
        self.log.found(asked, events, self._runtime.clock.now())
        self._on_change(asked)
        self.look_at(asked)

    def _deadline(self) -> float:
        return self._runtime.clock.now() + self._cluster.config.request_timeout_ms / 1000

    def _again_at(self) -> float:
        """When to try again; look-ups that were under way together count as one failure."""
        now = self._runtime.clock.now()
        if now >= self._again:
            self._failures += 1
            self._again = now + self._backoff.delay(self._failures, self._runtime.rng)
        return self._again


_ASKING = (AwaitingCommitted, Resetting, Validating)
_REFUSABLE = (Resetting, Validating, Positioned)


def _not_before(state: State) -> float:
    return (
        state.not_before if isinstance(state, AwaitingCommitted | Resetting | Validating) else 0.0
    )


def _timestamp(point: int | Ago, wall_ms: int) -> int:
    return max(wall_ms - point.milliseconds, 0) if isinstance(point, Ago) else point
