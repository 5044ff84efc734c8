"""Calls of a consumer about its positions: commit, seek, pause."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafkawire.errors import KafkaError, RequestTimedOut
from aiokafkawire.runtime import checkpoint, current_task, in_slices
from aiokafkawire.types import (
    AnyPartition,
    GroupMetadata,
    OffsetAndMetadata,
    PartitionArgument,
    PartitionT,
    TopicPartition,
    parse_topic_partitions,
)

from .consumer_base import ConsumerBase
from .partition_states import PositionTarget, ResetOffset, Seek, SeekToCommitted
from .validation import CommitArgument, parse_commit_argument, validate_offset

__all__ = ("PositionCalls",)


class PositionCalls(ConsumerBase):
    """Positions of the assigned partitions."""

    async def commit(self, offsets: CommitArgument[PartitionT] | None = None) -> None:
        """Commit offsets, and wait for the coordinator's acknowledgement (OffsetCommit).

        Args:
            offsets: Offset of the next record to read, by partition; or a batch of `batches` or
                `getmany`, which is committed up to its end. Defaults to the positions of all
                partitions: everything delivered so far.

        Raises:
            CommitFailed: A partition is not assigned to this consumer. Its new owner reads from the
                last commit.
            BrokerError: The coordinator refused the commit.
            RequestTimedOut: No acknowledgement within `default_api_timeout_ms`.
            InvalidOption: The consumer has no `group_id`.
            TypeError: `offsets` is neither a mapping nor a batch. Nothing is sent.
            ValueError: An offset is out of range. Nothing is sent.
        """
        session = self._running
        group = session.require_group()
        group.member.record_poll()
        if isinstance(offsets, Mapping):
            to_commit: dict[TopicPartition, OffsetAndMetadata] = {}
            async for items in in_slices([*offsets.items()]):
                to_commit |= parse_commit_argument(session.assignment, dict(items))
            await group.commit(to_commit)
        elif offsets is not None:
            await group.commit(parse_commit_argument(session.assignment, offsets))
        else:
            group.raise_uncommitted(group.rebalance.lost_uncommitted)
            await group.commit(session.assignment.delivered_offsets())
            # All delivered records count as processed: a rebalance that waits may go on.
            session.poll_started(current_task())
            session.poll_finished()

    async def committed(
        self, *partitions: PartitionArgument, stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets from the coordinator (OffsetFetch).

        The coordinator waits for open transactions that change the offsets (KIP-447); brokers
        before 2.5 do not.

        Args:
            *partitions: Defaults to all assigned partitions.
            stable: Raise `UnsupportedVersion` on brokers before 2.5.

        Returns:
            The committed offset by partition, or None where nothing is committed.

        Raises:
            RequestTimedOut: No response within `default_api_timeout_ms`.
            BrokerError: The coordinator refused the request.
            UnsupportedVersion: `stable` is set and the broker is older than 2.5.
            InvalidOption: The consumer has no `group_id`.
        """
        session = self._running
        group = session.require_group()
        requested = parse_topic_partitions(partitions) or list(session.assignment.topic_partitions)
        if not requested:
            return {}
        return dict(await group.offsets.fetch(requested, self._deadline(session), stable=stable))

    async def position(self, partition: AnyPartition) -> int:
        """Return the offset of the next record to deliver, once it is known and validated.

        Raises:
            NoOffsetForPartition: No offset is committed or in range, and `auto_offset_reset` is
                `none`.
            RequestTimedOut: The position was not found within `default_api_timeout_ms`.
            IllegalState: The partition is not assigned.
        """
        session = self._running
        deadline = self._deadline(session)
        await checkpoint()
        while (
            position := session.validated_position(self._owned_partition(session, partition))
        ) is None:
            session.raise_partition_error()
            if not await session.notifier.wait(deadline):
                topic, number = partition
                failure = session.notifier.outage.failure
                why = "" if failure is None else f"; the last error: {failure}"
                raise RequestTimedOut(
                    f"the position was not found before the deadline{why}",
                    topic=topic,
                    partition=number,
                ) from failure
            session = self._running
        return position

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of all partitions with uncommitted records, for a transaction.

        Raises:
            CommitFailed: Partitions were revoked or lost while delivered records were uncommitted:
                results of these records must not be committed (KIP-447). Raised once.
        """
        return self._running.positions()

    def mark_committed(self, offsets: CommitArgument[PartitionT]) -> None:
        """Note that offsets were committed by other means than `commit`.

        For offsets stored in a database with the results. A transaction notes its offsets itself
        (`send_offsets_to_transaction(consumer)`).

        Args:
            offsets: A mapping or a batch, as for `commit`.

        Raises:
            CommitFailed: The batch was delivered before its partition was lost.
            TypeError: `offsets` is neither a mapping nor a batch.
            ValueError: An offset is out of range.
        """
        session = self._running
        session.assignment.mark_committed(parse_commit_argument(session.assignment, offsets))

    def group_metadata(self) -> GroupMetadata:
        """Return the group id, generation and member id, for a transaction (KIP-447).

        If the group has removed this member, the old generation and member id stay until a call
        for records returns after the member has joined again, so that the coordinator refuses the
        offsets of earlier records. They are -1 and "" before the first rebalance and with `assign`.

        Raises:
            InvalidOption: The consumer has no `group_id`.
        """
        return self._running.require_group().metadata()

    def seek(self, partition: AnyPartition, offset: int | OffsetAndMetadata) -> None:
        """Set the position of a partition, at once; fetched records are discarded.

        Args:
            partition: An assigned partition.
            offset: Offset of the next record to read. The leader epoch, if any, is validated
                (KIP-320).

        Raises:
            IllegalState: The partition is not assigned.
            TypeError: `offset` is not an integer.
            ValueError: `offset` is out of range.
        """
        session = self._running
        target = validate_offset(offset)
        assigned = self._owned_partition(session, partition)
        first = assigned.position is None
        assigned.handle(Seek(target.offset, target.leader_epoch))
        if first:
            session.position_resolver.log.note_seek(assigned)
        session.on_position_changed()

    async def seek_to_beginning(self, *partitions: PartitionArgument) -> None:
        """Seek to the first offset of these partitions, or of all assigned ones.

        Waits until the positions are known; raises the same errors as `position`.
        """
        await self._reset(partitions, ResetOffset(PositionTarget.EARLIEST))

    async def seek_to_end(self, *partitions: PartitionArgument) -> None:
        """Seek to the end of these partitions, or of all assigned ones.

        Waits until the positions are known; raises the same errors as `position`.
        """
        await self._reset(partitions, ResetOffset(PositionTarget.LATEST))

    async def seek_to_committed(self, *partitions: PartitionArgument) -> None:
        """Seek to the committed offsets of these partitions, or of all assigned ones.

        Where nothing is committed, `auto_offset_reset` decides. Waits until the positions are
        known; raises the same errors as `position`, and `InvalidOption` without a `group_id`.
        """
        self._running.require_group()
        await self._reset(partitions, SeekToCommitted())

    async def _reset(
        self, partitions: tuple[PartitionArgument, ...], event: ResetOffset | SeekToCommitted
    ) -> None:
        session = self._running
        chosen = parse_topic_partitions(partitions) or session.assignment.topic_partitions
        for tp in chosen:
            self._owned_partition(session, tp).handle(event)
        session.on_position_changed()
        for tp in chosen:
            try:
                await self.position(tp)
            except KafkaError:
                # With "all assigned partitions", one that is revoked meanwhile does not matter.
                if partitions or tp in self._running.assignment:
                    raise

    # --- pausing ---

    def pause(self, *partitions: PartitionArgument) -> None:
        """Return no records of these partitions until `resume`; fetched records are kept.

        Raises:
            IllegalState: A partition is not assigned.
        """
        self._set_paused(partitions, True)

    def resume(self, *partitions: PartitionArgument) -> None:
        """Return records of paused partitions again.

        Raises:
            IllegalState: A partition is not assigned.
        """
        self._set_paused(partitions, False)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(
            partition.tp for partition in self._running.assignment.values() if partition.paused
        )

    def _set_paused(self, partitions: tuple[PartitionArgument, ...], paused: bool) -> None:
        session = self._running
        for tp in parse_topic_partitions(partitions):
            # mutation: resume-ignored
            self._owned_partition(session, tp).paused = paused
        session.on_position_changed()
