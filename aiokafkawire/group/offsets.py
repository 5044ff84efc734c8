"""Commit and fetch of a group's offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import anyio

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import ToCoordinator
from aiokafkawire.connection import MAX_WITHOUT_TOPIC_IDS, Backoff
from aiokafkawire.errors import (
    CommitFailed,
    KafkaError,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.logs import list_offsets, log_fields
from aiokafkawire.runtime import AutoResetEvent, Future, Runtime, in_slices
from aiokafkawire.runtime.durations import Durations
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire import ZERO_UUID, ApiKey
from aiokafkawire.wire.error_codes import ErrorCode
from aiokafkawire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

from .commit_events import (
    ChunkCommitted,
    CommitDue,
    CommitEffect,
    CommitRequestFailed,
    CommitResponseReceived,
    CompleteCommit,
    OwnershipEnded,
    Rejoined,
    ReportCommitted,
    SendCommit,
    VerifyMembership,
)
from .commit_machine import CommitMachine
from .committed_offsets import CommittedOffsets
from .membership.effects import ForgetCoordinator
from .membership.states import NO_GENERATION
from .offset_fetch import Committed
from .offset_storage import CommitIdentity, OffsetStorage, explain_unsupported

__all__ = (
    "MAX_OFFSETS",
    "CommitIdentity",
    "GroupOffsets",
    "offset_commit_request",
)

logger = logging.getLogger("aiokafkawire.group")

MAX_OFFSETS = 10_000
"""Most partitions in one request. More would block the event loop for tens of milliseconds, and
brokers would reject the OffsetCommit (INVALID_COMMIT_OFFSET_SIZE)."""


class GroupOffsets:
    """Commits and fetches offsets of one group.

    Args:
        cluster: Finds the coordinator and sends requests.
        runtime: Clock and random numbers.
        group_id: Name of the group.
        commit_identity: Returns the current membership, None while there is none.
        on_rejected: Called when the coordinator rejects the membership.
        on_committed: Called with the offsets of each acknowledged commit.
        storage: "kafka" or "zookeeper".
    """

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        group_id: str,
        *,
        commit_identity: Callable[[], CommitIdentity | None],
        on_rejected: Callable[[], None],
        on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None],
        storage: str = "kafka",
    ) -> None:
        config = cluster.config
        self._cluster = cluster
        self._runtime = runtime
        self._group_id = group_id
        self._storage = OffsetStorage.from_option(storage, group_id)
        self._commit_identity = commit_identity
        self._on_rejected = on_rejected
        self._on_committed = on_committed
        backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._committed = CommittedOffsets(
            cluster,
            runtime,
            group_id,
            storage=self._storage,
            backoff=backoff,
            commit_identity=commit_identity,
            on_rejected=on_rejected,
        )
        self._machine = CommitMachine(backoff, runtime.rng)
        self.commit_latency = Durations()
        self._waiters: dict[int, Future[None]] = {}
        self._changed = AutoResetEvent()
        self._progressed = AutoResetEvent()

    async def run(self) -> None:
        """Send commits when they are due, until cancelled."""
        while True:
            now, deadline = self._runtime.clock.now(), self._machine.next_deadline()
            if deadline > now:
                await self._changed.wait(deadline)
                continue
            identity = self._commit_identity()
            due = (
                CommitDue(NO_GENERATION, rebalancing=True)
                if identity is None
                else CommitDue(identity.generation, identity.in_cooperative_rejoin)
            )
            for effect in self._machine.handle(due, now):
                if isinstance(effect, SendCommit):
                    event = await self._send(effect, identity)
                    self._perform(self._machine.handle(event, self._runtime.clock.now()))
                else:
                    self._perform([effect])

    @property
    def has_waiters(self) -> bool:
        """True while a call waits for a commit. Cancelled and timed-out calls do not count."""
        return bool(self._waiters)

    def pending_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the submitted offsets of these partitions that are not acknowledged yet."""
        pending = self._machine.pending_offsets
        if not pending:
            return {}
        return {tp: pending[tp].offset for tp in partitions if tp in pending}

    async def wait_idle(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Wait until no commit of these partitions is pending.

        Offsets fetched earlier would be older than the processed records.

        Raises:
            RequestTimedOut: At the deadline.
        """
        while self._machine.pending_offsets and any(
            tp in self._machine.pending_offsets for tp in partitions
        ):
            if not await self._progressed.wait(deadline):
                raise RequestTimedOut(
                    "an earlier commit was not acknowledged before the deadline",
                    api="OffsetCommit",
                    group=self._group_id,
                )

    def submit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        before_revocation: bool = False,
    ) -> int:
        """Start a commit.

        Args:
            offsets: Offset of the next record to read, per partition.
            before_revocation: Send the commit during a rebalance too, as the last one of its
                partitions.

        Returns:
            Id for `wait_acknowledged`.
        """
        commit_id, effects = self._machine.submit(
            offsets, self._runtime.clock.now(), before_revocation=before_revocation
        )
        self._waiters[commit_id] = Future()
        self._perform(effects)
        self._changed.set()
        return commit_id

    async def wait_acknowledged(self, commit_ids: Sequence[int], deadline: float) -> None:
        """Wait until the offsets of submitted commits, or newer ones, are acknowledged.

        Cancellation stops waiting but does not revert the commits.

        Args:
            commit_ids: Results of `submit`.
            deadline: Time of the runtime's clock, in seconds.

        Raises:
            CommitFailed: The member does not own a partition any more.
            BrokerError: The coordinator returned an error that is not retriable.
            RequestTimedOut: No acknowledgement before the deadline. The outcome is unknown.
        """
        try:
            for commit_id in commit_ids:
                await self._waiters[commit_id].wait(deadline)
        except KafkaError:  # The commit failed. `RequestTimedOut` is a `TimeoutError` too.
            raise
        except TimeoutError:
            raise RequestTimedOut(
                "the commit was not acknowledged before the deadline",
                api="OffsetCommit",
                group=self._group_id,
            ) from None
        finally:
            for commit_id in commit_ids:
                self._waiters.pop(commit_id, None)
                self._machine.abandon(commit_id)

    def end_ownership(
        self, partitions: Collection[TopicPartition], reason: str, *, lost: bool
    ) -> None:
        """Fail the pending commits of partitions that were revoked or `lost`."""
        self._perform(
            self._machine.handle(
                OwnershipEnded(partitions, lost, reason), self._runtime.clock.now()
            )
        )

    def on_rejoined(self, generation: int, owned: Collection[TopicPartition]) -> None:
        """Continue after a rebalance or after leaving (`NO_GENERATION`, nothing owned)."""
        self._perform(self._machine.handle(Rejoined(generation, owned), self._runtime.clock.now()))
        self._changed.set()

    async def fetch(
        self, partitions: Sequence[TopicPartition], deadline: float, *, stable: bool = False
    ) -> Committed:
        """Return the committed offset per partition; see `CommittedOffsets.fetch`."""
        return await self._committed.fetch(partitions, deadline, stable=stable)

    async def _send(
        self, effect: SendCommit, commit_identity: CommitIdentity | None
    ) -> CommitResponseReceived | CommitRequestFailed:
        if commit_identity is None:
            error = CommitFailed("this consumer is not a member of its group")
            return CommitRequestFailed(effect.request, error)
        if len(effect.offsets) <= MAX_OFFSETS:
            return await self._send_request(effect, commit_identity)
        results: list[CommitResponseReceived | CommitRequestFailed] = []

        async def send(chunk: SendCommit) -> None:
            result = await self._send_request(chunk, commit_identity)
            if isinstance(result, CommitResponseReceived) and not any(result.codes.values()):
                committed = ChunkCommitted(chunk.request, chunk.offsets.keys())
                self._perform(self._machine.handle(committed, self._runtime.clock.now()))
            else:
                results.append(result)

        async with anyio.create_task_group() as tasks:
            async for some in in_slices([*effect.offsets.items()], MAX_OFFSETS):
                tasks.start_soon(send, SendCommit(effect.request, dict(some)))
        return merge_results(effect.request, results)

    async def _send_request(
        self, effect: SendCommit, commit_identity: CommitIdentity
    ) -> CommitResponseReceived | CommitRequestFailed:
        topics = {tp.topic: None for tp in effect.offsets}
        ids = {topic: self._cluster.metadata.topic_id(topic) for topic in topics}
        message = offset_commit_request(self._group_id, commit_identity, effect.offsets, ids)
        max_version = self._storage.max_version
        if max_version is None and ZERO_UUID in ids.values():
            max_version = MAX_WITHOUT_TOPIC_IDS[ApiKey.OFFSET_COMMIT]
        timeout_s = self._cluster.config.request_timeout_ms / 1000
        sent_at = self._runtime.clock.now()
        try:
            response, broker = await self._cluster.request_with_broker(
                message,
                to=self._storage.route,
                deadline=sent_at + timeout_s,
                retry=False,
                min_version=self._storage.min_version,
                max_version=max_version,
            )
        except KafkaError as error:
            if isinstance(error, UnsupportedVersion):
                explain_unsupported(error)
            return CommitRequestFailed(effect.request, error)
        latency, latency_s = self.commit_latency, self._runtime.clock.now() - sent_at
        latency.count += 1
        latency.sum_s += latency_s
        latency.latest_max_s = max(latency.latest_max_s, latency_s)
        codes = read_commit_codes(response, ids)
        self._log_commit(effect.offsets, codes, commit_identity, broker)
        current = self._commit_identity()
        in_cooperative_rejoin = current is not None and current.in_cooperative_rejoin
        return CommitResponseReceived(effect.request, codes, in_cooperative_rejoin, broker)

    def _log_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        codes: Mapping[TopicPartition, int],
        commit_identity: CommitIdentity,
        broker: str,
    ) -> None:
        if not logger.isEnabledFor(logging.DEBUG):
            return
        rejected = {tp: code for tp, code in codes.items() if code != ErrorCode.NONE}
        committed = {tp: offset.offset for tp, offset in offsets.items() if tp not in rejected}
        text = f"committed {list_offsets(committed)}"
        if rejected:
            text += f"; rejected (error codes): {list_offsets(rejected)}"
        logger.debug(
            "Group %s: %s",
            self._group_id,
            text,
            extra=log_fields(
                client_id=self._cluster.config.client_id,
                group=self._group_id,
                member_id=commit_identity.member_id or None,
                generation=commit_identity.generation,
                broker=broker,
                partitions=len(offsets),
            ),
        )

    def _perform(self, effects: Iterable[CommitEffect]) -> None:
        self._progressed.set()
        for effect in effects:
            match effect:
                case ReportCommitted(offsets):
                    self._on_committed(offsets)
                case CompleteCommit(commit_id, error):
                    # The machine knows the same commits: both forget one together.
                    future = self._waiters[commit_id]
                    if error is None:
                        future.set_result(None)
                    else:
                        error.group = self._group_id
                        future.set_exception(error)
                case VerifyMembership():
                    self._on_rejected()
                case ForgetCoordinator():
                    if isinstance(self._storage.route, ToCoordinator):
                        self._cluster.mark_coordinator_unknown(
                            self._group_id, self._storage.route.type
                        )


# --- messages ---------------------------------------------------------------------------------


def offset_commit_request(
    group_id: str,
    commit_identity: CommitIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ids: Mapping[str, UUID],
) -> OffsetCommitRequest:
    """Return an OffsetCommit request. Topics have their names and, where known, their ids."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, number), offset in offsets.items():
        entry = topics.get(topic)
        if entry is None:
            topic_id = ids.get(topic, ZERO_UUID)
            entry = OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[])
            topics[topic] = entry
        entry.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=commit_identity.generation,
        member_id=commit_identity.member_id,
        group_instance_id=commit_identity.group_instance_id,
        topics=list(topics.values()),
    )


def merge_results(
    request: int, results: Iterable[CommitResponseReceived | CommitRequestFailed]
) -> CommitResponseReceived | CommitRequestFailed:
    """Merge the results of a commit that was sent in several requests.

    If one request failed, its error is the result of all, which are then retried or failed.
    """
    merged = CommitResponseReceived(request, {})
    for result in results:
        if isinstance(result, CommitRequestFailed):
            return result
        merged = replace(result, codes={**merged.codes, **result.codes})
    return merged


def read_commit_codes(
    response: OffsetCommitResponse, ids: Mapping[str, UUID]
) -> dict[TopicPartition, int]:
    """Return the error code per partition."""
    names = {topic_id: name for name, topic_id in ids.items() if topic_id != ZERO_UUID}
    return {
        TopicPartition(
            topic.name or names.get(topic.topic_id, ""), partition.partition_index
        ): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
