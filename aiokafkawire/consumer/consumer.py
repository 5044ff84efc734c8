"""`Consumer`: the public interface."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Self, Unpack, overload

from aiokafkawire.cluster.routing import AnyNode
from aiokafkawire.config import ConsumerConfig, ConsumerOptions, make
from aiokafkawire.config.names import ABSENT_OF_CONSUMER
from aiokafkawire.connection import ByVersion, parse_pin
from aiokafkawire.errors import IllegalState, InvalidOption, KafkaError, RequestTimedOut
from aiokafkawire.group.assignors import assignors_of
from aiokafkawire.logs import fields_of
from aiokafkawire.records import Record, Records
from aiokafkawire.runtime import (
    NEVER,
    Client,
    Host,
    Runtime,
    checkpoint,
    current_task,
    in_slices,
    label,
)
from aiokafkawire.runtime.phases import Phase
from aiokafkawire.types import (
    AnyPartition,
    GroupMetadata,
    NodeId,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionArgument,
    PartitionT,
    PingResult,
    TopicPartition,
    topic_partition,
    topic_partitions,
)
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.metadata import MetadataRequest, MetadataResponse

from .fetch_buffer import RecordCursor, UnprocessedRange
from .partition import AssignedPartition, OffsetSpec, ResetOffset, Seek, SeekToCommitted
from .session import ConsumerSession
from .subscription import (
    ManualAssignment,
    NoSubscription,
    RebalanceListener,
    SubscribedPattern,
    SubscribedTopics,
    Subscription,
    parse_pattern,
    parse_topics,
    validate_listener,
)
from .validation import (
    CommitArgument,
    parse_commit_argument,
    validate_offset,
    validate_partitions,
    validate_timestamps,
)

__all__ = ("BatchIterator", "Consumer", "RecordIterator")

FAST_CLOSE_S = 0.75
"""How long a consumer may take to leave with nothing to commit, by a cancellation (Ctrl-C), or
after one of its tasks failed."""


class Consumer(Client[ConsumerSession], absent=ABSENT_OF_CONSUMER):
    """Reads topics, alone or as a member of a group.

    ::

        async with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as c:
            async for record in c:
                await bill(record)

    Options are those of `ConsumerConfig`. With a `group_id` the partitions of the topics are
    divided among the members of the group, and offsets are committed; without one all partitions
    are read. Nothing is read before `async with` is entered.

    What the application was given counts as processed when the same task calls again (or leaves
    `async with` without an exception); only that is committed automatically, and only then may
    partitions be given back in a rebalance. An application that does not call for
    `max_poll_interval_ms` loses its partitions. Calls that wait for records have no deadline unless
    they are given one; they raise at once what waiting does not mend (`GroupFailed`,
    `MemberFenced`, `NoOffset`, `CorruptRecords`, …), and `UnknownTopic` for a topic that does not
    exist for `default_api_timeout_ms`.
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        """Check the arguments; nothing is connected before `start` or `async with`.

        `topics` are subscribed to; without any call `subscribe` or `assign`. Of the options only
        `bootstrap_servers` must be given; `help(aiokafkawire.config.ConsumerOptions)` tells all.
        Raises `InvalidOption`, and `TypeError` for a topic that is no name.
        """
        self.config = make(ConsumerConfig, options)
        parse_pin(self.config.api_version)
        self._assignors = assignors_of(self.config.partition_assignment_strategy)
        group_id = self.config.group_id
        who = f"consumer {self.config.client_id}"
        super().__init__(
            "consumer",
            label("Consumer", self.config, group_id),
            who=who if group_id is None else f"{who} of group {group_id}",
            fields=fields_of(client_id=self.config.client_id, group=group_id),
        )
        try:
            self._subscription: Subscription = parse_topics(topics) if topics else NoSubscription()
        except ValueError as error:
            raise InvalidOption(str(error)) from None
        self._listener: RebalanceListener | None = None

    # --- life ---

    async def start(self) -> None:
        """Connect, and begin to read. Raises `NoBrokerAvailable`, `AuthenticationFailed`.

        With `connect_on_start` off it returns at once, and the consumer connects in the background.

        The same as entering `async with`; `stop` is then up to the caller, in whatever task. After
        a failure it may be called again. A consumer that was stopped stays so.
        """
        await super().start()

    async def stop(self) -> None:
        """Commit what is processed (with auto-commit), leave the group, close.

        Takes at most `close_timeout_ms`, and the time of the rebalance callback beside it; with
        nothing to commit less than a second, whatever the brokers do, and the same when `async
        with` is left by a cancellation. What this task was given counts as processed. Raises what
        the next call would have raised of what went wrong in between, and `KafkaError` in a
        rebalance listener, which stopping waits for. Calling it again does nothing.
        """
        await super().stop()

    async def _start(self, runtime: Runtime, host: Host) -> ConsumerSession:
        session = ConsumerSession(self.config, runtime, host, self._assignors)
        await session.start()
        session.subscribe(self._subscription, self._listener)
        return session

    async def _close(self, left_with: BaseException | None) -> Exception | None:
        self._lifecycle.check_loop()
        session = self._lifecycle.session
        if session is None:
            await self._lifecycle.leave(_close_session, NEVER)
            return None
        if session.group is not None and session.group.rebalance.is_callback_task(current_task()):
            raise IllegalState(
                "a rebalance listener cannot stop its consumer, which waits for the listener to"
                " return: raise an exception in it, and stop after the call that lets it out"
            )
        if left_with is None:
            session.assignment.mark_processed(current_task())
        cancelled = left_with is not None and not isinstance(left_with, Exception)
        # After a defect nobody may be there who does what a goodbye waits for.
        fast = cancelled or self._lifecycle.phase is Phase.BROKEN
        now = session.runtime.clock.now()
        deadline = now + self.config.close_timeout_ms / 1000
        if fast or not session.has_pending_commits:
            deadline = min(deadline, now + FAST_CLOSE_S)
        limit = deadline if fast else session.close_limit(deadline)

        async def close(session: ConsumerSession) -> None:
            session.on_state_changed()
            await session.close(deadline, limit)

        await self._lifecycle.leave(close, limit)
        return self._lifecycle.untold() or session.unreported_error()

    @property
    def _running(self) -> ConsumerSession:
        session = self._lifecycle.session
        if session is not None and self._lifecycle.phase is Phase.CLOSING and session.in_callback:
            # The listener may still seek and commit what is about to go.
            return session
        return self._lifecycle.running_here()

    def _deadline(self, session: ConsumerSession, timeout_ms: float | None = None) -> float:
        limit = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return session.runtime.clock.now() + limit / 1000

    # --- what to read ---

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches `pattern`; replaces what was before.

        May be called before `async with`. `listener` hears of partitions that come and go. A member
        of a group joins it (JoinGroup, KIP-429, KIP-345). Raises `IllegalState` after `assign`,
        `TypeError` and `ValueError` for what can name no topic.
        """
        names = parse_topics(topics)
        if bool(names.topics) == (pattern is not None):
            raise ValueError("subscribe takes topics or a pattern, one of both")
        wanted: Subscription = names if pattern is None else parse_pattern(pattern)
        if isinstance(self._subscription, ManualAssignment):
            raise IllegalState("partitions are assigned by hand: call unsubscribe() first")
        self._set_subscription(wanted, validate_listener(listener))

    def assign(self, *partitions: PartitionArgument) -> None:
        """Read exactly these partitions, whatever a group does; replaces what was before.

        With a `group_id` offsets are committed, outside of the group's membership. Raises
        `IllegalState` while topics are subscribed to, `TypeError` for what is no partition.
        """
        chosen = tuple(dict.fromkeys(topic_partitions(partitions)))
        if not isinstance(self._subscription, ManualAssignment | NoSubscription):
            raise IllegalState("topics are subscribed to: call unsubscribe() first")
        self._set_subscription(ManualAssignment(chosen), None)

    def unsubscribe(self) -> None:
        """Read nothing: partitions are given back, and the group is left."""
        self._set_subscription(NoSubscription(), self._listener)

    def _set_subscription(self, wanted: Subscription, listener: RebalanceListener | None) -> None:
        if self._lifecycle.phase not in {Phase.NEW, Phase.STARTING}:
            self._running.subscribe(wanted, listener)
        self._subscription, self._listener = wanted, listener

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to; of a pattern those that match it at present."""
        wanted, session = self._subscription, self._lifecycle.session
        if isinstance(wanted, SubscribedTopics):
            return frozenset(wanted.topics)
        if isinstance(wanted, SubscribedPattern) and session is not None:
            return frozenset(wanted.matches(session.cluster.metadata))
        return frozenset()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer owns at present."""
        return frozenset(self._running.assignment)

    # --- records ---

    def __aiter__(self) -> RecordIterator:
        return RecordIterator(self)

    async def __anext__(self) -> Record:
        """As `getone()`: for `anext(consumer)`."""
        return await self.getone()

    def batches(self) -> BatchIterator:
        """Iterate over `Records` of one partition at a time, up to `max_poll_records` each.

        A batch may be given to `commit`. Raises as `getone` does.
        """
        self._lifecycle.running()
        return BatchIterator(self)

    @overload
    async def getone(self, *partitions: PartitionArgument) -> Record: ...

    @overload
    async def getone(self, *partitions: PartitionArgument, timeout_ms: float) -> Record | None: ...

    async def getone(
        self, *partitions: PartitionArgument, timeout_ms: float | None = None
    ) -> Record | None:
        """Return the next record; None if none came within `timeout_ms` (for ever unless given).

        `partitions` restricts it to these. Raises what waiting does not change: see `Consumer`. May
        be cancelled: a record that was not returned is given by the next call. Prefer `timeout_ms`
        to `asyncio.wait_for`, which before Python 3.12 calls from another task each time, so that
        nothing counts as processed.
        """
        session = self._running
        if partitions:
            limit = NEVER if timeout_ms is None else self._deadline(session, timeout_ms)
            found = await self._get_records(
                session, validate_partitions(partitions) or None, 1, limit
            )
            return next((records[0] for records in found.values()), None)
        caller = current_task()
        await session.checkpoint()
        record = session.next_buffered(caller)
        if record is not None:
            return record
        deadline = NEVER if timeout_ms is None else self._deadline(session, timeout_ms)
        return await self._get_record(session, caller, deadline)

    async def getmany(
        self,
        *partitions: PartitionArgument,
        timeout_ms: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, Records]:
        """Records that are there, by partition; waits up to `timeout_ms` for the first.

        `partitions` restricts them; `max_records` is `max_poll_records` unless given. Empty if none
        came. Raises as `getone` does. May be cancelled: what was not returned is given by the next
        call.
        """
        session = self._running
        limit = self.config.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records must be at least 1, not {limit}")
        only = validate_partitions(partitions) or None
        return await self._get_records(session, only, limit, self._deadline(session, timeout_ms))

    async def _get_record(
        self, session: ConsumerSession, owner: object, deadline: float
    ) -> Record | None:
        caller = current_task()
        session.poll_started(caller)
        try:
            while True:
                self._lifecycle.running()
                session.raise_errors()
                record = session.next_record(owner, caller)
                if record is not None:
                    return record
                if not await session.continue_decoding() and not await session.wait(deadline):
                    return None
        finally:
            session.poll_finished()

    async def _get_records(
        self,
        session: ConsumerSession,
        only: list[TopicPartition] | None,
        max_records: int,
        deadline: float,
        *,
        single_partition: bool = False,
    ) -> dict[TopicPartition, Records]:
        caller = current_task()
        session.poll_started(caller)
        try:
            await session.checkpoint()
            while True:
                self._lifecycle.running()
                session.raise_errors()
                records = session.take(caller, max_records, only, single_partition=single_partition)
                if records or (
                    not await session.continue_decoding() and not await session.wait(deadline)
                ):
                    return records
        finally:
            session.poll_finished()

    # --- offsets ---

    async def commit(self, offsets: CommitArgument[PartitionT] | None = None) -> None:
        """Commit, and wait until the coordinator has acknowledged it.

        None commits all that was given so far, a batch of `batches` or `getmany` up to its end,
        a mapping what it says (offsets are those of the next record to read). Raises `CommitFailed`
        if the partition is not owned: another member reads it from its last commit.
        Raises `TypeError` or `ValueError` for what is neither, before anything is sent.
        """
        session = self._running
        group = session.require_group()
        group.member.touched()
        if isinstance(offsets, Mapping):
            wanted: dict[TopicPartition, OffsetAndMetadata] = {}
            async for items in in_slices([*offsets.items()]):
                wanted |= parse_commit_argument(session.assignment, dict(items))
            await session.commit(wanted)
        elif offsets is not None:
            await session.commit(parse_commit_argument(session.assignment, offsets))
        else:
            session.raise_lost_partitions()
            await session.commit(session.assignment.delivered_offsets())
            # All that was given counts as processed: a rebalance that waited may go on.
            session.poll_started(current_task())
            session.poll_finished()

    async def committed(
        self, *partitions: PartitionArgument, stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None for nothing. All of the assignment unless given.

        Asked of the coordinator (OffsetFetch), which waits for open transactions that are about to
        change it (KIP-447); brokers before 2.5 do not, and `stable` refuses these. Raises
        `RequestTimedOut` after `default_api_timeout_ms`, `BrokerError`, `UnsupportedVersion`, and
        `InvalidOption` without a `group_id`.
        """
        session = self._running
        group = session.require_group()
        wanted = topic_partitions(partitions) or list(session.assignment.names)
        if not wanted:
            return {}
        return dict(await group.offsets.fetch(wanted, self._deadline(session), stable=stable))

    async def position(self, partition: AnyPartition) -> int:
        """The offset of the next record to be given; waits until it is known and validated.

        Raises `NoOffset`, or `RequestTimedOut` after `default_api_timeout_ms`.
        """
        session = self._running
        deadline = self._deadline(session)
        await checkpoint()
        while (
            position := session.validated_position(self._owned_partition(session, partition))
        ) is None:
            session.raise_failed()
            if not await session.wait(deadline):
                topic, number = partition
                failure = session.last_failure
                why = "" if failure is None else f"; the last error: {failure}"
                raise RequestTimedOut(
                    f"the position was not found in time{why}", topic=topic, partition=number
                ) from failure
            session = self._running
        return position

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where reading goes on after what was given, for each partition where more was given than
        is known to be committed: the offsets that a transaction is to commit.

        Raises `CommitFailed`, once, if partitions went to other members with records that were
        given and not committed: results of these must not be committed (KIP-447).
        """
        return self._running.positions()

    def mark_committed(self, offsets: CommitArgument[PartitionT]) -> None:
        """Take these offsets for committed, as they were by other means than `commit`.

        In a transaction of a producer, which says so itself
        (`send_offsets_to_transaction(consumer)`), or in a database along with the results. Takes
        what `commit` takes, and raises `TypeError` and `ValueError` as that does.
        """
        session = self._running
        session.assignment.mark_committed(parse_commit_argument(session.assignment, offsets))

    def group_metadata(self) -> GroupMetadata:
        """Which member of its group this is, for a transaction that commits its offsets (KIP-447).

        If the group went on without this member, the generation and member id are the old ones
        until the next call for records: the coordinator then refuses the offsets. There are none
        (-1, "") before the first rebalance, and when partitions are assigned by hand. Raises
        `InvalidOption` without a `group_id`.
        """
        return self._running.require_group().metadata()

    def seek(self, partition: AnyPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on reading at this offset; what was fetched before is dropped.

        Takes effect at once. Raises `IllegalState` for a partition that is not assigned, and
        `TypeError` or `ValueError` for what is no offset.
        """
        session = self._running
        to = validate_offset(offset)
        found = self._owned_partition(session, partition)
        first = found.position is None
        found.handle(Seek(to.offset, to.leader_epoch))
        if first:
            session.position_resolver.log.note_seek(found)
        session.on_position_changed()

    async def seek_to_beginning(self, *partitions: PartitionArgument) -> None:
        """Go to the first offset of these partitions, or of all assigned ones."""
        await self._reset(partitions, ResetOffset(OffsetSpec.EARLIEST))

    async def seek_to_end(self, *partitions: PartitionArgument) -> None:
        """Go to the end of these partitions, or of all assigned ones."""
        await self._reset(partitions, ResetOffset(OffsetSpec.LATEST))

    async def seek_to_committed(self, *partitions: PartitionArgument) -> None:
        """Go back to what the group has committed; where nothing is, auto_offset_reset rules."""
        self._running.require_group()
        await self._reset(partitions, SeekToCommitted())

    async def _reset(
        self, partitions: tuple[PartitionArgument, ...], event: ResetOffset | SeekToCommitted
    ) -> None:
        session = self._running
        chosen = topic_partitions(partitions) or session.assignment.names
        for tp in chosen:
            self._owned_partition(session, tp).handle(event)
        session.on_position_changed()
        for tp in chosen:
            try:
                await self.position(tp)
            except KafkaError:
                # Of all assigned ones, those that go meanwhile need no position here any more.
                if partitions or tp in self._running.assignment:
                    raise

    def _owned_partition(self, session: ConsumerSession, tp: AnyPartition) -> AssignedPartition:
        partition = session.assignment.get(topic_partition(tp))
        if partition is None:
            raise IllegalState(
                "the partition is not assigned to this consumer", topic=tp[0], partition=tp[1]
            )
        return partition

    # --- pausing ---

    def pause(self, *partitions: PartitionArgument) -> None:
        """Give nothing of these partitions until `resume`; what was fetched is kept."""
        self._set_paused(partitions, True)

    def resume(self, *partitions: PartitionArgument) -> None:
        """Go on giving records of these partitions."""
        self._set_paused(partitions, False)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(p.tp for p in self._running.assignment.values() if p.paused)

    def _set_paused(self, partitions: tuple[PartitionArgument, ...], paused: bool) -> None:
        session = self._running
        for tp in topic_partitions(partitions):
            # mutation: resume-ignored
            self._owned_partition(session, tp).paused = paused
        session.on_position_changed()

    # --- what the cluster has ---

    async def beginning_offsets(self, *partitions: PartitionArgument) -> dict[TopicPartition, int]:
        """The first offset that each partition still has (ListOffsets, as the next two)."""
        return await self._list_offsets(partitions, OffsetSpec.EARLIEST)

    async def end_offsets(self, *partitions: PartitionArgument) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition that this consumer may see."""
        return await self._list_offsets(partitions, OffsetSpec.LATEST)

    async def _list_offsets(
        self, partitions: tuple[PartitionArgument, ...], point: OffsetSpec
    ) -> dict[TopicPartition, int]:
        session = self._running
        wanted = topic_partitions(partitions) or session.assignment.names
        found = await session.lister.list_all(
            dict.fromkeys(wanted, int(point)), self._deadline(session)
        )
        return {tp: 0 if offset is None else offset.offset for tp, offset in found.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[PartitionT, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time (milliseconds since 1970); None if there is none.

        Raises `UnsupportedVersion` on brokers before 0.10.1 (KIP-79), `RequestTimedOut`.
        """
        session = self._running
        return await session.lister.list_all(
            validate_timestamps(timestamps_ms), self._deadline(session)
        )

    def _fetch_node(self, tp: TopicPartition) -> NodeId:
        """The broker that a partition is read from: its leader, or a replica that is nearer.

        -1 if none is known.
        """
        session = self._running
        owned = session.assignment.get(tp)
        if owned is not None and owned.preferred_replica is not None:
            return owned.preferred_replica.node
        leader = session.cluster.metadata.leader(tp)
        return -1 if leader is None else leader.node

    def lag(self, partition: AnyPartition) -> int | None:
        """How many offsets the position is behind the end, as of the last fetch.

        None before the first fetch. With read_committed the end is the last stable offset.
        """
        return self._owned_partition(self._running, partition).lag

    def highwater(self, partition: AnyPartition) -> int | None:
        """The high watermark, as of the last fetch: the offset after the last replicated record.

        None before the first fetch.
        """
        return self._owned_partition(self._running, partition).high_watermark

    def last_stable_offset(self, partition: AnyPartition) -> int | None:
        """Before which offset all transactions are over, as of the last fetch.

        None before the first fetch, and from brokers before 0.11.
        """
        return self._owned_partition(self._running, partition).last_stable_offset

    async def ping(
        self, timeout_ms: float = 2_000, *, topic: str | None = None, group: str | None = None
    ) -> PingResult:
        """Ask a broker now whether it answers: for readiness probes.

        Sends a request and waits for its response. Nothing is taken from a cache, and no backoff
        after failed connections delays it. Brokers are asked one after the other, without waiting
        long for each, until one answers. It does not count as a call for records.

        Args:
            timeout_ms: The longest that the call takes, in milliseconds.
            topic: Ask the leader of each partition of this topic; all must answer.
            group: Ask the coordinator of this group, which must be ready to serve it.

        Returns:
            The brokers that answered, and the time that the slowest of them took.

        Raises:
            NoBrokerAvailable: No broker answered; the text has the reason of each.
            RequestTimedOut: A leader, or the coordinator, did not answer. As `ConnectionFailed`
                and `ConnectionLost`, it names the broker.
            UnknownTopic: The topic does not exist.
            BrokerError: A partition has no leader, or no broker coordinates the group.
            ClientClosed: The consumer does not run.
            ValueError: `timeout_ms` is negative or no number.
        """
        return await self._running.cluster.pinger.ping(timeout_ms, topic=topic, group=group)

    def metrics(self) -> dict[str, int | float]:
        """Numbers at present; each name ends in its unit, `_total` counts since `async with`.

        The names are listed in the documentation of the consumer. `records_lag{topic="t",
        partition="0"}` is the lag of one partition, there from its first fetch on.
        """
        return self._running.metrics()

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        """The partitions of a topic. Raises `UnknownTopic`."""
        session = self._running
        return tuple((await session.cluster.topic(topic, self._deadline(session))).partitions)

    async def topics(self) -> tuple[str, ...]:
        """The names of all topics that this client may see, in order."""
        session = self._running

        def build(version: int) -> MetadataRequest:
            return MetadataRequest(topics=None if version else [])

        request: ByVersion[MetadataResponse] = ByVersion(ApiKey.METADATA, build)
        response = await session.cluster.request(
            request, to=AnyNode(), deadline=self._deadline(session)
        )
        return tuple(sorted(topic.name for topic in response.topics if topic.name))


class RecordIterator:
    """`async for record in consumer`. To be used by one task."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        session = consumer._running
        self._record_poll = None if session.group is None else session.group.member.touched
        self._cursor = RecordCursor((), UnprocessedRange(0))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """The next record. Lets other tasks run at least every 256 records."""
        for record in self._cursor.ready:
            # mutation: iterated-records-do-not-reset-poll-timer
            if self._record_poll is not None:
                self._record_poll()
            return record
        await self._consumer._running.checkpoint()
        session = self._consumer._running
        found = await self._consumer._get_record(session, self, NEVER)
        assert found is not None
        if session.cursor is not None and session.cursor.owner is self:
            self._cursor = session.cursor
        return found


class BatchIterator:
    """`async for batch in consumer.batches()`."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Records:
        """The next records of one partition."""
        consumer = self._consumer
        found = await consumer._get_records(
            consumer._running, None, consumer.config.max_poll_records, NEVER, single_partition=True
        )
        return next(iter(found.values()))


async def _close_session(session: ConsumerSession) -> None:
    await session.cluster.aclose()
