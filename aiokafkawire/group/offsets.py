"""Offsets of a group, committed to and fetched from its coordinator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

import anyio

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import ToAnyNode, ToCoordinator
from aiokafkawire.connection import Backoff, ByVersion
from aiokafkawire.errors import (
    CommitFailed,
    KafkaError,
    ProtocolError,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.logs import list_offsets, log_fields
from aiokafkawire.runtime import Promise, Runtime, Signal, in_slices
from aiokafkawire.types import OffsetAndMetadata, TopicPartition, partitions_by_topic
from aiokafkawire.wire import ZERO_UUID, ApiKey
from aiokafkawire.wire.error_codes import ErrorCode, error_for
from aiokafkawire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from aiokafkawire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

from .answers import group_error
from .commits import (
    Answered,
    CommitDue,
    CommitEffect,
    Commits,
    Doubt,
    Ended,
    ForgetCoordinator,
    Kept,
    PartKept,
    Rejoined,
    SendCommit,
    Settle,
    Unanswered,
    Waiting,
)
from .states import NO_GENERATION

__all__ = (
    "MAX_OFFSETS",
    "Committed",
    "Credentials",
    "GroupOffsets",
    "commit_request",
    "fetch_request",
)

logger = logging.getLogger("aiokafkawire.group")

LAST_WITH_TOPIC_NAMES = 9
FIRST_WITH_GROUPS = 8
FIRST_WITH_REQUIRE_STABLE = 7

MAX_OFFSETS = 10_000
"""Partitions of one request. More would keep the event loop for tens of milliseconds, and of
OffsetCommit make a batch of records that brokers refuse (INVALID_COMMIT_OFFSET_SIZE)."""


class Credentials(NamedTuple):
    """As whom to commit. The defaults are those of a consumer that assigns its own partitions."""

    generation: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    keeping: bool = False
    """Whether the member is on its way into the next generation, with what it owns."""


Committed = Mapping[TopicPartition, OffsetAndMetadata | None]


class Storage(NamedTuple):
    """Where offsets are kept: whom to ask for them, and in which versions of both APIs."""

    route: ToCoordinator | ToAnyNode
    min_version: int
    max_version: int | None

    @classmethod
    def of(cls, kind: str, group_id: str) -> Storage:
        """Version 0 means ZooKeeper, which any broker writes to; later ones mean Kafka."""
        if kind == "zookeeper":
            return cls(ToAnyNode(), 0, 0)
        return cls(ToCoordinator(group_id), 1, None)


FetchedPartition = OffsetFetchResponsePartition | OffsetFetchResponsePartitions

P_co = TypeVar("P_co", covariant=True)


class GroupOffsets:
    """Commits one at a time and fetches what was committed.

    `storage` is "kafka" or "zookeeper". `credentials` gives the present membership, None while
    there is none. `on_doubt` is called when the coordinator refuses it, `on_committed` with the
    offsets of each acknowledged commit.
    """

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        group_id: str,
        *,
        credentials: Callable[[], Credentials | None],
        on_doubt: Callable[[], None],
        on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None],
        storage: str = "kafka",
    ) -> None:
        config = cluster.config
        self._cluster = cluster
        self._runtime = runtime
        self._group_id = group_id
        self._storage = Storage.of(storage, group_id)
        self._credentials = credentials
        self._on_doubt = on_doubt
        self._on_committed = on_committed
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._machine = Commits(self._backoff, runtime.rng)
        self._waiting: dict[int, Promise[None]] = {}
        self._changed = Signal()
        self._settled = Signal()

    async def run(self) -> None:
        """Send commits as they become due, for ever."""
        while True:
            now = self._runtime.clock.now()
            if self._machine.overdue(now):
                self._look_after_rebalance(now)
            if not self._machine.due(now):
                await self._changed.wait(self._machine.next_deadline())
                continue
            credentials = self._credentials()
            generation = NO_GENERATION if credentials is None else credentials.generation
            for effect in self._machine.handle(CommitDue(generation), now):
                if isinstance(effect, SendCommit):
                    event = await self._send(effect, credentials)
                    self._perform(self._machine.handle(event, self._runtime.clock.now()))

    def _look_after_rebalance(self, now: float) -> None:
        present = self._credentials()
        event: Waiting | Rejoined = Waiting()
        if present is not None and not present.keeping:
            # Whatever made the coordinator refuse the commit, this member is in no rebalance.
            event = Rejoined(present.generation, list(self._machine.wanted))
        self._perform(self._machine.handle(event, now))

    @property
    def is_awaited(self) -> bool:
        """Whether a call waits for a commit; one that timed out or was cancelled does not."""
        return bool(self._waiting)

    def pending(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What was asked to be committed of these and is not acknowledged yet."""
        wanted = self._machine.wanted
        if not wanted:
            return {}
        return {tp: wanted[tp].offset for tp in partitions if tp in wanted}

    async def quiet(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Wait until no commit of these partitions is under way or still to be sent.

        What is fetched before would be older than what was processed. Raises `RequestTimedOut`.
        """
        while self._machine.wanted and any(tp in self._machine.wanted for tp in partitions):
            if not await self._settled.wait(deadline):
                raise RequestTimedOut(
                    "a commit is not acknowledged yet", api="OffsetCommit", group=self._group_id
                )

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: float,
        *,
        last: bool = False,
    ) -> None:
        """Commit, and wait until these or newer offsets are acknowledged.

        Cancelling the wait does not take the commit back. Raises `CommitFailed`, `BrokerError`,
        `RequestTimedOut` at the deadline.
        """
        await self.acknowledged([self.submit(offsets, last=last)], deadline)

    def submit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, last: bool = False
    ) -> int:
        """Begin to commit, as `commit`, and return the ticket for `acknowledged`."""
        ticket, effects = self._machine.submit(offsets, self._runtime.clock.now(), last=last)
        self._waiting[ticket] = Promise()
        self._perform(effects)
        self._changed.set()
        return ticket

    async def acknowledged(self, tickets: Sequence[int], deadline: float) -> None:
        """Wait until what `submit` began is acknowledged. Raises as `commit`."""
        try:
            for ticket in tickets:
                await self._waiting[ticket].wait(deadline)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise RequestTimedOut(
                "the commit was not acknowledged before the deadline",
                api="OffsetCommit",
                group=self._group_id,
            ) from None
        finally:
            for ticket in tickets:
                self._waiting.pop(ticket, None)
                self._machine.abandon(ticket)

    def ended(self, partitions: Collection[TopicPartition], reason: str, *, lost: bool) -> None:
        """These partitions are not owned any more: their commits fail."""
        self._perform(
            self._machine.handle(Ended(partitions, lost, reason), self._runtime.clock.now())
        )

    def rejoined(self, generation: int, owned: Collection[TopicPartition]) -> None:
        """A rebalance is over, or the group was left (`NO_GENERATION`, nothing owned)."""
        self._perform(self._machine.handle(Rejoined(generation, owned), self._runtime.clock.now()))
        self._changed.set()

    async def fetch(
        self, partitions: Sequence[TopicPartition], deadline: float, *, stable: bool = False
    ) -> Committed:
        """What is committed for each partition; None for nothing.

        `stable` refuses a broker that does not wait for open transactions. Raises `BrokerError`,
        `RequestTimedOut` at the deadline, `UnsupportedVersion`.
        """
        attempt = 0
        route, low, high = self._storage
        if stable:
            low = FIRST_WITH_REQUIRE_STABLE
        while True:
            attempt += 1
            ids = {tp.topic: self._cluster.metadata.topic_id(tp.topic) for tp in partitions}
            request, max_version = fetch_request(self._group_id, partitions, ids)
            try:
                response, broker = await self._cluster.request_with_broker(
                    request,
                    to=route,
                    deadline=deadline,
                    min_version=low,
                    max_version=max_version if high is None else high,
                )
            except UnsupportedVersion as error:
                if stable:
                    error.reason += (
                        "; brokers from 2.5 on wait for transactions that are about to change what"
                        " is committed (KIP-447)"
                    )
                else:
                    _explain(error)
                raise
            try:
                return read_fetched(response, self._group_id, partitions, ids)
            except KafkaError as error:
                error.group, error.broker = self._group_id, broker
                again_at = self._runtime.clock.now() + self._backoff.delay(
                    attempt, self._runtime.rng
                )
                if not error.retriable or again_at >= deadline:
                    raise
                await self._runtime.clock.sleep_until(again_at)

    async def _send(
        self, effect: SendCommit, credentials: Credentials | None
    ) -> Answered | Unanswered:
        if credentials is None:
            error = CommitFailed("this consumer is not a member of its group at present")
            return Unanswered(effect.request, error)
        if len(effect.offsets) <= MAX_OFFSETS:
            return await self._send_request(effect, credentials)
        answers: list[Answered | Unanswered] = []

        async def send(part: SendCommit) -> None:
            answer = await self._send_request(part, credentials)
            if isinstance(answer, Answered) and not any(answer.codes.values()):
                kept = PartKept(part.request, part.offsets.keys())
                self._perform(self._machine.handle(kept, self._runtime.clock.now()))
            else:
                answers.append(answer)

        async with anyio.create_task_group() as tasks:
            async for some in in_slices([*effect.offsets.items()], MAX_OFFSETS):
                tasks.start_soon(send, SendCommit(effect.request, dict(some)))
        return joined(effect.request, answers)

    async def _send_request(
        self, effect: SendCommit, credentials: Credentials
    ) -> Answered | Unanswered:
        ids = {tp.topic: self._cluster.metadata.topic_id(tp.topic) for tp in effect.offsets}
        message = commit_request(self._group_id, credentials, effect.offsets, ids)
        timeout_s = self._cluster.config.request_timeout_ms / 1000
        try:
            response, broker = await self._cluster.request_with_broker(
                message,
                to=self._storage.route,
                deadline=self._runtime.clock.now() + timeout_s,
                retry=False,
                min_version=self._storage.min_version,
                max_version=self._storage.max_version,
            )
        except KafkaError as error:
            if isinstance(error, UnsupportedVersion):
                _explain(error)
            return Unanswered(effect.request, error)
        codes = read_committed(response, ids)
        self._log_commit(effect.offsets, codes, credentials, broker)
        present = self._credentials()
        keeping = present is not None and present.keeping
        return Answered(effect.request, codes, keeping, broker)

    def _log_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        codes: Mapping[TopicPartition, int],
        credentials: Credentials,
        broker: str,
    ) -> None:
        if not logger.isEnabledFor(logging.DEBUG):
            return
        refused = {tp: code for tp, code in codes.items() if code != ErrorCode.NONE}
        kept = {tp: offset.offset for tp, offset in offsets.items() if tp not in refused}
        text = f"committed {list_offsets(kept)}"
        if refused:
            text += f"; refused (error codes): {list_offsets(refused)}"
        logger.debug(
            "Group %s: %s",
            self._group_id,
            text,
            extra=log_fields(
                client_id=self._cluster.config.client_id,
                group=self._group_id,
                member_id=credentials.member_id or None,
                generation=credentials.generation,
                broker=broker,
                partitions=len(offsets),
            ),
        )

    def _perform(self, effects: Iterable[CommitEffect]) -> None:
        self._settled.set()
        for effect in effects:
            match effect:
                case Kept(offsets):
                    self._on_committed(offsets)
                case Settle(ticket, error):
                    if error is not None:
                        error.group = self._group_id
                    promise = self._waiting.get(ticket)
                    if promise is None:
                        continue
                    if error is None:
                        promise.resolve(None)
                    else:
                        promise.fail(error)
                case Doubt():
                    self._on_doubt()
                case ForgetCoordinator():
                    if isinstance(self._storage.route, ToCoordinator):
                        self._cluster.mark_coordinator_unknown(
                            self._group_id, self._storage.route.type
                        )


def _explain(error: UnsupportedVersion) -> None:
    error.reason += (
        '; brokers from 0.8.2 keep offsets in Kafka (offsets_storage="kafka"), those from 0.8.1 to'
        ' 2.8 in ZooKeeper (offsets_storage="zookeeper"), and 0.8.0 keeps none'
    )


# --- messages ---------------------------------------------------------------------------------


def commit_request(
    group_id: str,
    credentials: Credentials,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ids: Mapping[str, UUID],
) -> OffsetCommitRequest:
    """One OffsetCommit; topics bear their names and, where known, their ids."""

    def partition(tp: TopicPartition) -> OffsetCommitRequestPartition:
        offset = offsets[tp]
        return OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=offset.offset,
            committed_leader_epoch=offset.leader_epoch,
            committed_metadata=offset.metadata,
        )

    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=credentials.generation,
        member_id=credentials.member_id,
        group_instance_id=credentials.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic, topic_id=ids.get(topic, ZERO_UUID), partitions=[*map(partition, tps)]
            )
            for topic, tps in partitions_by_topic(offsets).items()
        ],
    )


def joined(request: int, answers: Iterable[Answered | Unanswered]) -> Answered | Unanswered:
    """The answer of a commit that went out in parts, for all that was not kept.

    What went wrong with one part alone is the answer for all: they are sent again, or refused.
    """
    whole = Answered(request, {})
    for answer in answers:
        if isinstance(answer, Unanswered):
            return answer
        whole = replace(answer, codes={**whole.codes, **answer.codes})
    return whole


def read_committed(
    response: OffsetCommitResponse, ids: Mapping[str, UUID]
) -> dict[TopicPartition, int]:
    """The error code of each partition."""
    return {
        TopicPartition(name, partition.partition_index): partition.error_code
        for name, partitions in _named(response.topics, ids)
        for partition in partitions
    }


def fetch_request(
    group_id: str,
    partitions: Sequence[TopicPartition],
    ids: Mapping[str, UUID],
) -> tuple[ByVersion[OffsetFetchResponse], int | None]:
    """One OffsetFetch, and the highest version that it may go out in.

    Offsets that an open transaction is about to replace are waited for (KIP-447, brokers from 2.5).
    """
    grouped = partitions_by_topic(partitions)

    def build(version: int) -> OffsetFetchRequest:
        stable = version >= FIRST_WITH_REQUIRE_STABLE
        if version < FIRST_WITH_GROUPS:
            topics = [
                OffsetFetchRequestTopic(name=topic, partition_indexes=[tp.partition for tp in tps])
                for topic, tps in grouped.items()
            ]
            return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=stable)
        group = OffsetFetchRequestGroup(
            group_id=group_id,
            topics=[
                OffsetFetchRequestTopics(
                    name=topic,
                    topic_id=ids.get(topic, ZERO_UUID),
                    partition_indexes=[tp.partition for tp in tps],
                )
                for topic, tps in grouped.items()
            ],
        )
        # mutation: offsets-fetched-without-require-stable
        return OffsetFetchRequest(groups=[group], require_stable=stable)

    all_known = all(ids.get(topic, ZERO_UUID) != ZERO_UUID for topic in grouped)
    max_version = None if all_known else LAST_WITH_TOPIC_NAMES
    return ByVersion(ApiKey.OFFSET_FETCH, build), max_version


def read_fetched(
    response: OffsetFetchResponse,
    group_id: str,
    partitions: Sequence[TopicPartition],
    ids: Mapping[str, UUID],
) -> Committed:
    """The committed offsets. A partition that the answer leaves out is a `ProtocolError`."""
    topics: Sequence[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = response.topics
    error_code = response.error_code
    if response.groups:
        group = next((group for group in response.groups if group.group_id == group_id), None)
        if group is None:
            raise ProtocolError(f"the answer is not about the group {group_id!r}")
        topics, error_code = group.topics, group.error_code
    if error_code != ErrorCode.NONE:
        raise group_error(error_code, "OffsetFetch")
    named: Iterator[tuple[str, Sequence[FetchedPartition]]] = _named(topics, ids)
    told = {
        TopicPartition(name, partition.partition_index): partition
        for name, entries in named
        for partition in entries
    }
    committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for tp in partitions:
        entry = told.get(tp)
        if entry is None:
            raise ProtocolError(
                "the answer leaves a partition out",
                api="OffsetFetch",
                topic=tp.topic,
                partition=tp.partition,
            )
        unknown = entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if entry.error_code != ErrorCode.NONE and not unknown:
            raise error_for(
                entry.error_code, api="OffsetFetch", topic=tp.topic, partition=tp.partition
            )
        # Nothing committed: error 0 and -1, or error 3 where ZooKeeper has no node for it.
        committed[tp] = (
            None
            if unknown or entry.committed_offset < 0
            else OffsetAndMetadata(
                entry.committed_offset, entry.metadata or "", entry.committed_leader_epoch
            )
        )
    return committed


class _Topic(Protocol[P_co]):
    """A topic in a response; from some version on it bears its id alone."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> Sequence[P_co]: ...


def _named(
    topics: Iterable[_Topic[P_co]], ids: Mapping[str, UUID]
) -> Iterator[tuple[str, Sequence[P_co]]]:
    names = {topic_id: name for name, topic_id in ids.items() if topic_id != ZERO_UUID}
    for topic in topics:
        name = topic.name or names.get(getattr(topic, "topic_id", ZERO_UUID), "")
        yield name, topic.partitions
