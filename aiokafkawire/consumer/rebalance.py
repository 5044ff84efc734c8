"""Handles rebalances: assigned and revoked partitions, the last commit, listener callbacks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import KafkaError
from aiokafkawire.group.membership.states import NO_GENERATION, Generation
from aiokafkawire.group.offsets import GroupOffsets
from aiokafkawire.hooks import GroupEvent
from aiokafkawire.logs import count_partitions, list_partitions, log_fields
from aiokafkawire.runtime import (
    NEVER,
    Runtime,
    Supervisor,
    in_slices,
)
from aiokafkawire.types import TopicPartition

from .assignment import ConsumerAssignment, offsets_to_commit
from .delivery import RecordDelivery
from .listener_callbacks import ListenerCallbacks
from .notifier import Notifier
from .partition import AssignedPartition
from .partition_states import AwaitingCommitted
from .subscription import RebalanceListener

__all__ = ("RebalanceHandler",)

logger = logging.getLogger("aiokafkawire.consumer")

REVOKED = "the partition was revoked in a rebalance"


class RebalanceHandler:
    """Adds and removes the partitions that the group assigns (a `PartitionOwner`).

    Attributes:
        callbacks: Runs the methods of the listener.
        listener: The application's listener.
        close_deadline: Deadline of the last commit while the consumer closes.
        lost_uncommitted: Partitions lost while delivered records were uncommitted, and why; raised
            by the next `commit()`.
        released_uncommitted: Partitions lost or revoked while delivered records were uncommitted,
            and why; raised by the next `positions()`.
    """

    def __init__(
        self,
        runtime: Runtime,
        supervisor: Supervisor,
        config: ConsumerConfig,
        *,
        assignment: ConsumerAssignment,
        offsets: GroupOffsets,
        delivery: RecordDelivery,
        notifier: Notifier,
    ) -> None:
        self._clock = runtime.clock
        self._supervisor = supervisor
        self._config = config
        self._assignment = assignment
        self._offsets = offsets
        self._delivery = delivery
        self._notifier = notifier
        self.callbacks = ListenerCallbacks(
            runtime.clock, supervisor, config, delivery=delivery, notifier=notifier
        )
        self._owned: dict[TopicPartition, AssignedPartition] = {}
        self._being_revoked: frozenset[TopicPartition] = frozenset()
        self.listener: RebalanceListener | None = None
        self.close_deadline = NEVER
        self._rebalancing_since: float | None = None
        self.lost_uncommitted: dict[TopicPartition, str] = {}
        self.released_uncommitted: dict[TopicPartition, str] = {}

    # --- PartitionOwner ---

    def on_generation_joined(
        self, generation: Generation, owned: Collection[TopicPartition]
    ) -> None:
        """Note a new generation, in which the owned partitions may be committed."""
        counters = self._assignment.counters
        counters.rebalances += 1
        if self._rebalancing_since is not None:
            counters.rebalance_latency.add(self._clock.now() - self._rebalancing_since)
            self._rebalancing_since = None
        self._offsets.on_rejoined(generation.number, owned)
        self._report("joined", owned)

    def on_epoch_changed(self, epoch: int, owned: Collection[TopicPartition]) -> None:
        """Note a new member epoch (KIP-848): commits that wait for it are sent again."""
        self._offsets.on_rejoined(epoch, owned)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Add partitions; they are read after the listener has returned.

        Partitions assigned before stay as they are. The listener is called after each rebalance,
        even if no partitions were added.
        """
        for tp in partitions:
            partition = AssignedPartition(
                tp, self._config.auto_offset_reset, AwaitingCommitted(), self._supervisor.fields
            )
            self._owned[tp] = partition
            self._assignment.add(partition)
        self._report("assigned", partitions)
        self._notifier.state_changed()
        if self.listener is not None:
            self.callbacks.schedule(self.listener.on_partitions_assigned, partitions)

    def limit_to_topics(self, topics: Collection[str] | None) -> None:
        """Stop delivery of topics no longer subscribed, until their partitions are revoked.

        Without topics the member leaves the group, so all partitions are revoked, even if it
        subscribes to the same topics next. None is a pattern that the coordinator matches.
        """
        if topics is not None and not topics:
            self.prepare_revoke(tuple(self._owned))
        for tp, partition in self._owned.items():
            if tp not in self._being_revoked:
                # mutation: unsubscribed-topic-delivered
                partition.pending_revocation = topics is not None and tp.topic not in topics

    def prepare_revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Stop delivery of these partitions. They may be committed until they are revoked."""
        self._being_revoked = frozenset(partitions)
        for partition in self._find_owned(partitions):
            partition.pending_revocation = True
        self._delivery.stop()

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Call the listener, commit processed records, and remove the partitions.

        A partition that is lost and assigned again meanwhile stays.
        """
        # mutation: partitions-removed-before-revocation-callback
        revoked = self._find_owned(partitions)
        if self.listener is not None:
            # mutation: no-callback-on-revocation
            await self.callbacks.run(self.listener.on_partitions_revoked, partitions)
        # mutation: no-commit-on-revocation
        await self.commit_processed(self._still_owned(revoked))
        partitions = [partition.tp for partition in self._still_owned(revoked)]
        uncommitted: list[TopicPartition] = []
        for partition in self._release(partitions):
            if not self._config.enable_auto_commit and partition.has_uncommitted:
                self.released_uncommitted[partition.tp] = REVOKED
                uncommitted.append(partition.tp)
        self._log_revoked(partitions, uncommitted)
        self._report("revoked", partitions)
        # mutation: revoked-partitions-committed-later
        self._offsets.end_ownership(partitions, REVOKED, lost=False)
        self._notifier.state_changed()

    def lose(self, partitions: Collection[TopicPartition], reason: str) -> None:
        """Remove partitions without a commit; a later commit of them fails."""
        self._delivery.stop()
        for partition in self._release(partitions):
            if partition.has_uncommitted:
                self.lost_uncommitted[partition.tp] = self.released_uncommitted[partition.tp] = (
                    reason
                )
        self._offsets.end_ownership(partitions, f"the partition was lost: {reason}", lost=True)
        logger.warning(
            "Group %s: lost %s without a commit: %s (%s)",
            self._config.group_id,
            count_partitions(partitions),
            list_partitions(partitions),
            reason,
            extra=log_fields(self._supervisor.fields, partitions=len(partitions)),
        )
        self._report("lost", partitions, reason)
        if self.listener is not None:
            self.callbacks.schedule(self.listener.on_partitions_lost, partitions)
        self._notifier.state_changed()

    def _report(
        self,
        kind: Literal["joined", "assigned", "revoked", "lost"],
        partitions: Collection[TopicPartition],
        reason: str = "",
    ) -> None:
        """Call the hook for a change of the membership."""
        if (on_group_event := self._supervisor.hooks.on_group_event) is not None:
            on_group_event(GroupEvent(kind, tuple(partitions), reason))

    def _log_revoked(
        self, partitions: Collection[TopicPartition], uncommitted: Collection[TopicPartition]
    ) -> None:
        text = f"revoked {count_partitions(partitions)}: {list_partitions(partitions)}"
        if uncommitted:
            text += (
                f"; the next owner reads uncommitted records again: {list_partitions(uncommitted)}"
            )
        logger.info(
            "Group %s: %s",
            self._config.group_id,
            text,
            extra=log_fields(self._supervisor.fields, partitions=len(partitions)),
        )

    def _find_owned(self, partitions: Collection[TopicPartition]) -> list[AssignedPartition]:
        """Return the partitions assigned by the group; manually assigned ones do not count."""
        return [self._owned[tp] for tp in partitions if tp in self._owned]

    def _still_owned(self, partitions: Iterable[AssignedPartition]) -> list[AssignedPartition]:
        return [partition for partition in partitions if self._owned.get(partition.tp) is partition]

    def _release(self, partitions: Collection[TopicPartition]) -> list[AssignedPartition]:
        released = self._find_owned(partitions)
        self._being_revoked = self._being_revoked.difference(partitions)
        for partition in released:
            del self._owned[partition.tp]
        self._assignment.remove(released)
        return released

    def is_any_being_revoked(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether one is being revoked: its commit cannot wait for the rebalance."""
        return any(tp in self._owned and self._owned[tp].pending_revocation for tp in partitions)

    def interrupt_poll(self) -> None:
        """End the current delivery, because a revocation waits for the application's next call."""
        self._delivery.stop()

    def on_coordinator_result(self, failure: KafkaError | None) -> None:
        """Note a response of the coordinator (None), or the error of a request."""
        self._notifier.request_finished(failure)

    def raise_error(self, error: KafkaError) -> None:
        """Raise an error of the coordinator in the application's next call."""
        self._notifier.raise_in_next_call(error)

    def on_state_changed(self, *, outside_group: bool, rebalancing: bool) -> None:
        """Wake waiting calls, because the membership state has changed."""
        if not rebalancing:
            self._rebalancing_since = None
        elif self._rebalancing_since is None:
            self._rebalancing_since = self._clock.now()
        if outside_group:
            self._offsets.on_rejoined(NO_GENERATION, ())
        self._notifier.state_changed()

    # --- committing ---

    async def commit_processed(self, partitions: Sequence[AssignedPartition]) -> None:
        """Commit partitions for the last time. A failure is logged, not raised.

        Includes the application's own commits that are not acknowledged yet.
        """
        commit_ids: list[int] = []
        count = 0
        async for chunk in in_slices(partitions):
            owned = [
                partition
                for partition in chunk
                if partition in (self._owned.get(partition.tp), self._assignment.get(partition.tp))
            ]
            offsets = self._offsets.pending_offsets(partition.tp for partition in owned)
            if self._config.enable_auto_commit:
                offsets |= offsets_to_commit(owned, offsets)
            if offsets:
                commit_ids.append(self._offsets.submit(offsets, before_revocation=True))
                count += len(offsets)
        if not commit_ids:
            return
        timeout_s = self._config.request_timeout_ms / 1000
        deadline = min(self._clock.now() + timeout_s, self.close_deadline)
        try:
            await self._offsets.wait_acknowledged(commit_ids, deadline)
        except KafkaError as error:
            self._assignment.counters.commit_failures += 1
            logger.warning(
                "Group %s: the commit before revocation failed: %s; records since the last commit"
                " are read again",
                self._config.group_id,
                error,
                extra=log_fields(self._supervisor.fields, error=error, partitions=count),
            )
