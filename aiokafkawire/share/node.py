"""The share session at one broker: performs the effects of its machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import anyio

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.config import ShareConsumerConfig
from aiokafkawire.connection import ConnectionKind
from aiokafkawire.consumer.fetch_sender import FetchSender
from aiokafkawire.errors import (
    AcknowledgementFailed,
    ClientClosed,
    ConnectionFailed,
    KafkaError,
    UnsupportedVersion,
)
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.hooks import BatchFetched
from aiokafkawire.runtime import NEVER, AutoResetEvent, Runtime, Supervisor, wait_until
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, Request
from aiokafkawire.wire.error_codes import error_for
from aiokafkawire.wire.messages.share_acknowledge import ShareAcknowledgeResponse
from aiokafkawire.wire.messages.share_fetch import (
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)

from . import session_events as events
from .acknowledgements import GAP, AcknowledgeType, PartitionAcknowledgements
from .decoding import DecodedRecords, decode_acquired
from .locks import AcquisitionLock
from .messages import (
    acknowledge_errors,
    acknowledge_request,
    fetch_topics,
    fetched_partition,
    new_leader,
)
from .offset_ranges import OffsetRanges
from .session import ShareSessionMachine
from .session_states import SessionBusy, SessionEnding

__all__ = ("NodeOwner", "ShareNode")

AnyShareResponse = TypeVar("AnyShareResponse", ShareFetchResponse, ShareAcknowledgeResponse)

FIRST_STABLE_VERSION = 1
"""Version 0 of ShareFetch and ShareAcknowledge was an early access in Kafka 4.0."""

FIRST_WITH_RENEWALS = 2
"""Version of ShareAcknowledge with renewals (KIP-1222, Kafka 4.2)."""

HOLDING_WAIT_MS = 100
"""`max_wait_ms` of a fetch while the application holds records: their acknowledgements wait."""

DEFAULT_LOCK_MS = 30_000
"""Lock duration if a response has none: the broker's default."""

_LOST_SESSION = frozenset(
    {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}
)
"""Errors after which another session may be opened at once."""


class NodeOwner(Protocol):
    """The share consumer. All methods return immediately."""

    def on_records(
        self,
        node: ShareNode,
        partition: TopicIdPartition,
        decoded: DecodedRecords,
        lock: AcquisitionLock,
    ) -> None:
        """Records were acquired, under `lock`."""
        ...

    def acquire_limit(self) -> int:
        """Return how many records a fetch asks for."""
        ...

    def accept_processed(self) -> None:
        """Accept the records that the application has processed: a request may be due."""
        ...

    def on_fetched(self, node: ShareNode) -> None:
        """A fetch has ended; `on_records` was called for its records."""
        ...

    def on_session_lost(self, node: ShareNode) -> None:
        """The session has ended, and its records are not held any more."""
        ...

    def on_acknowledged(
        self,
        partition: TopicIdPartition,
        acknowledgements: PartitionAcknowledgements,
    ) -> None:
        """The result of acknowledgements is known."""
        ...

    def on_partition_error(self, partition: TopicIdPartition, error: KafkaError) -> None:
        """A partition cannot be fetched; it is tried again."""
        ...


class ShareNode:
    """Fetches and acknowledges records at one broker, with one request in flight.

    Args:
        node_id: The broker.
        cluster: Sends requests, and gets new leaders.
        runtime: Clock and worker threads.
        supervisor: Runs `run`.
        config: Options of the share consumer.
        member_id: Member id in the share group.
        sender: Sends requests, and backs off after failures.
        owner: Gets records and results.

    Attributes:
        lock_timeout_ms: Duration of a lock, as in the last response; None before the first one.
        fetched_at: When the last fetch was sent.
    """

    def __init__(
        self,
        node_id: NodeId,
        cluster: Cluster,
        runtime: Runtime,
        supervisor: Supervisor,
        *,
        config: ShareConsumerConfig,
        member_id: str,
        sender: FetchSender,
        owner: NodeOwner,
    ) -> None:
        self.node_id = node_id
        self._member_id = member_id
        self._cluster = cluster
        self._runtime = runtime
        self._supervisor = supervisor
        self._config = config
        self._sender = sender
        self._owner = owner
        self._session = ShareSessionMachine()
        self._request: Callable[[], Awaitable[None]] | None = None
        self._changed = AutoResetEvent()
        self._wake_at = NEVER
        self._closed = anyio.Event()
        self.lock_timeout_ms: int | None = None
        self.fetched_at = runtime.clock.now()

    # --- for the consumer ---

    def set_partitions(self, partitions: frozenset[TopicIdPartition]) -> None:
        """Fetch exactly these partitions."""
        if partitions != self._session.context.partitions:
            self._handle(events.PartitionsChanged(partitions))

    def set_demand(self, *, wants_records: bool) -> None:
        """Fetch records, or stop to fetch."""
        if wants_records != self._session.context.wants_records:
            self._handle(events.DemandChanged(wants_records))

    @property
    def has_partitions(self) -> bool:
        return bool(self._session.context.partitions)

    def locks(self, partition: TopicIdPartition) -> OffsetRanges[AcquisitionLock]:
        """Return the current locks of a partition. They change with the session."""
        return self._session.context.locks_of(partition)

    def is_held(
        self, partition: TopicIdPartition, offset: int, lock: AcquisitionLock | None
    ) -> bool:
        """Return whether a record is locked, and no acknowledgement of it was sent."""
        now = self._runtime.clock.now()
        return self._session.context.is_held(partition, offset, lock, now)

    def undecided(
        self, partition: TopicIdPartition, first: int, last: int, lock: AcquisitionLock
    ) -> list[tuple[int, int]]:
        """Return the ranges of records between two offsets that are held and not acknowledged."""
        context = self._session.context
        context.remove_expired(self._runtime.clock.now())
        return context.undecided(partition, first, last, lock)

    def acknowledge(
        self,
        partition: TopicIdPartition,
        offsets: Sequence[int],
        type: int,
        lock: AcquisitionLock | None,
        *,
        only_undecided: bool = False,
    ) -> PartitionAcknowledgements | None:
        """Acknowledge records; those that are not held under `lock` are ignored.

        Args:
            partition: Partition of the records.
            offsets: Their offsets.
            type: An `AcknowledgeType`, or `GAP`.
            lock: Their lock; None for the current one.
            only_undecided: Leave out records that are acknowledged already.

        Returns:
            The acknowledgements of the partition that are sent next; None if there are none.

        Raises:
            AcknowledgementFailed: The broker supports no renewals. Automatic ones
                (`only_undecided`) are ignored then.
        """
        if not self._supervisor.is_running:
            return None
        if type == AcknowledgeType.RENEW and not self._supports_renewals():
            if only_undecided:
                return None
            raise AcknowledgementFailed(
                "renewing a lock needs Kafka 4.2",
                broker=str(self.node_id),
                topic=partition.topic,
                partition=partition.partition,
            )
        event = events.RecordsAcknowledged(partition, offsets, type, lock, only_undecided)
        self._session.handle(event, self._runtime.clock.now())
        context = self._session.context
        waiting = context.renewals if type == AcknowledgeType.RENEW else context.pending
        self._reschedule()
        return waiting.get(partition)

    def _supports_renewals(self) -> bool:
        """Return False if the broker would refuse renewals, and end the session."""
        try:
            versions = self._cluster.broker_client(self.node_id).api_versions
            if versions is not None:
                versions.latest_usable_version(
                    ApiKey.SHARE_ACKNOWLEDGE, our_min=FIRST_WITH_RENEWALS
                )
        except UnsupportedVersion:
            return False
        except ConnectionFailed:
            return True  # the broker left the cluster: the session ends in any case
        return True

    def flush(self) -> None:
        """Send acknowledgements as soon as the request in flight allows."""
        context = self._session.context
        if context.pending or context.renewals:
            self._handle(events.FlushRequested())

    def unconfirmed(self) -> dict[TopicIdPartition, list[PartitionAcknowledgements]]:
        """Return the acknowledgements without a result, by partition."""
        result: dict[TopicIdPartition, list[PartitionAcknowledgements]] = {}
        state = self._session.state
        sent = state.sent if isinstance(state, SessionBusy | SessionEnding) else {}
        for part in (sent, self._session.context.pending, self._session.context.renewals):
            for partition, acknowledgements in part.items():
                result.setdefault(partition, []).append(acknowledgements)
        return result

    def fail_unconfirmed(self, reason: str) -> None:
        """Fail the acknowledgements without a result."""
        for partition, waiting in self.unconfirmed().items():
            for acknowledgements in waiting:
                error = AcknowledgementFailed(
                    reason, topic=partition.topic, partition=partition.partition
                )
                self.complete(partition, acknowledgements, error)

    def abandon(self, reason: str) -> None:
        """Hold no record any more, because nothing is sent any more."""
        self.fail_unconfirmed(reason)
        self._session.context.lose_all()

    def complete(
        self,
        partition: TopicIdPartition,
        acknowledgements: PartitionAcknowledgements,
        error: AcknowledgementFailed | None = None,
    ) -> None:
        """Report the result of acknowledgements."""
        if not acknowledgements.result.done:
            acknowledgements.result.set_result(None, error)
            self._owner.on_acknowledged(partition, acknowledgements)

    def find_held(self, tp: TopicPartition, offset: int) -> TopicIdPartition | None:
        """Return the partition of a record that is held; None if it is not."""
        for partition in self._session.context.acquired:
            if tp == (partition.topic, partition.partition) and self.is_held(
                partition, offset, None
            ):
                return partition
        return None

    async def run(self) -> None:
        """Handle deadlines and send requests until the session is closed."""
        while not self._session.is_closed:
            if (send := self._request) is not None:
                self._request, self._wake_at = None, 0.0
                await send()
                continue
            self._wake_at = self._session.next_deadline()
            await self._changed.wait(self._wake_at)
            self._owner.accept_processed()
            self._apply(events.RequestDue())
        self._closed.set()

    def _reschedule(self) -> None:
        """Wake `run`, if it must send a request, end, or wait for a shorter time."""
        if (
            self._request is not None
            or self._session.next_deadline() < self._wake_at
            or self._session.is_closed
        ):
            self._changed.set()

    def close(self) -> None:
        """Send all acknowledgements and close the session; `run` then ends."""
        self._handle(events.SessionCloseRequested())

    async def wait_closed(self, deadline: float) -> bool:
        """Wait until the session is closed. Return False at the deadline."""
        return await wait_until(self._closed, deadline)

    # --- the machine ---

    def _handle(self, event: events.SessionEvent) -> None:
        """Handle an event, and send the request that is due then."""
        self._owner.accept_processed()
        self._apply(event)
        self._apply(events.RequestDue())
        self._reschedule()

    def _apply(self, event: events.SessionEvent) -> None:
        for effect in self._session.handle(event, self._runtime.clock.now()):
            self._perform(effect)

    def _perform(self, effect: events.SessionEffect) -> None:
        match effect:
            case events.SendFetch():
                self._request = partial(self._fetch, effect)
            case events.SendAcknowledge():
                self._request = partial(self._acknowledge, effect)
            case events.CompleteAcknowledgements(partition, acknowledgements, error):
                self.complete(partition, acknowledgements, error)
            case events.ReportPartitionError(partition, error):
                self._owner.on_partition_error(partition, error)
            case events.ReplaceConnection():
                self._owner.on_session_lost(self)
                self._cluster.replace_connection(self.node_id, ConnectionKind.SHARE)

    # --- requests ---

    async def _fetch(self, effect: events.SendFetch) -> None:
        sent_at = self.fetched_at = self._runtime.clock.now()
        topics, forgotten = fetch_topics(effect)
        config = self._config
        wait_ms, limit = config.fetch_max_wait_ms, self._owner.acquire_limit()
        message = ShareFetchRequest(
            group_id=config.group_id,
            member_id=self._member_id,
            share_session_epoch=effect.epoch,
            max_wait_ms=min(wait_ms, HOLDING_WAIT_MS) if effect.holds_records else wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_records=limit,
            batch_size=limit,
            share_acquire_mode=config.share_acquire_mode == "record_limit",
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        response = await self._send(effect.request, message)
        if response is None:
            return
        lock_s = self._lock_s(response.acquisition_lock_timeout_ms)
        state = self._session.state
        assert isinstance(state, SessionBusy)
        by_id = {
            (known.topic_id, known.partition): known
            for known in sorted(state.listed.union(effect.acknowledgements))
        }
        fetched: list[events.FetchedPartition] = []
        decoded: list[tuple[events.FetchedPartition, DecodedRecords]] = []
        for topic in response.responses:
            for data in topic.partitions:
                partition = by_id.pop((topic.topic_id, data.partition_index), None)
                if partition is None:
                    continue
                if (leader := new_leader(data, response)) is not None:
                    self._cluster.update_leader(partition.topic_partition, *leader)
                lock = AcquisitionLock(sent_at, lock_s)
                part = fetched_partition(data, partition, str(self.node_id), lock)
                fetched.append(part)
                if part.acquired:
                    decoded.append((part, await self._decode(part, data)))
        self._complete_fetch(effect, tuple(fetched), decoded)

    async def _decode(
        self, part: events.FetchedPartition, data: ShareFetchPartitionData
    ) -> DecodedRecords:
        if (on_batch_fetched := self._supervisor.hooks.on_batch_fetched) is not None:
            first, last = part.acquired[0].first, part.acquired[-1].last
            on_batch_fetched(
                BatchFetched(
                    *part.partition.topic_partition,
                    first,
                    last + 1,
                    len(data.records or b""),
                    self.node_id,
                )
            )
        return await decode_acquired(
            self._runtime,
            part.partition.topic,
            part.partition.partition,
            data.records,
            part.acquired,
            check_crcs=self._config.check_crcs,
            max_decompressed_bytes=self._config.max_decompressed_bytes,
        )

    def _complete_fetch(
        self,
        effect: events.SendFetch,
        fetched: tuple[events.FetchedPartition, ...],
        decoded: list[tuple[events.FetchedPartition, DecodedRecords]],
    ) -> None:
        # The next fetch depends on the demand after these records.
        self._apply(events.FetchResponded(effect.request, fetched))
        for part, records in decoded:
            partition, lock = part.partition, part.lock
            # mutation: gaps-not-acknowledged
            if records.gaps:
                self.acknowledge(partition, records.gaps, GAP, lock)
            if records.missing:
                self.acknowledge(partition, records.missing, AcknowledgeType.RELEASE, lock)
            self._owner.on_records(self, partition, records, lock)
        self._owner.on_fetched(self)
        self._handle(events.RequestDue())

    async def _acknowledge(self, effect: events.SendAcknowledge) -> None:
        sent_at = self._runtime.clock.now()
        assert self._config.group_id is not None
        message = acknowledge_request(effect, self._config.group_id, self._member_id)
        response = await self._send(effect.request, message)
        if response is None:
            return
        errors = acknowledge_errors(response, effect.acknowledgements, str(self.node_id))
        lock_s = self._lock_s(response.acquisition_lock_timeout_ms)
        self._handle(events.AcknowledgeResponded(effect.request, errors, sent_at + lock_s))

    async def _send(
        self, number: int, message: Request[AnyShareResponse]
    ) -> AnyShareResponse | None:
        """Send a request; handle its failure, and return None then."""
        try:
            response = await self._sender.send(
                self.node_id, message, min_version=FIRST_STABLE_VERSION
            )
        except ClientClosed:
            return None
        except KafkaError as error:
            retry_at = self._sender.back_off(self.node_id, error)
            self._handle(events.RequestFailed(number, error, retry_at))
            return None
        if response.error_code == ErrorCode.NONE:
            return response
        api = APIS[ApiKey(message.api_key)].name
        rejection = error_for(response.error_code, api=api, broker=str(self.node_id))
        if response.error_message:
            rejection.reason += f" ({response.error_message})"
        retry_at = self._runtime.clock.now()
        if response.error_code not in _LOST_SESSION:
            retry_at = self._sender.back_off(self.node_id, rejection)
        self._handle(events.RequestFailed(number, rejection, retry_at))
        return None

    def _lock_s(self, timeout_ms: int) -> float:
        """Return the lock duration in seconds; brokers of ShareAcknowledge v1 do not report it."""
        if timeout_ms > 0:
            self.lock_timeout_ms = timeout_ms
        return (self.lock_timeout_ms or DEFAULT_LOCK_MS) / 1000
