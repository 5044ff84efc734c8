"""What a rebalance does to a consumer: callbacks, the last commit, partitions that come and go."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio

from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import KafkaError
from aiokafkawire.group.offsets import GroupOffsets
from aiokafkawire.group.states import Generation
from aiokafkawire.logs import RateLimit, count_partitions, fields_of, list_partitions
from aiokafkawire.runtime import NEVER, Host, Runtime, being_cancelled, current_task, in_slices
from aiokafkawire.types import TopicPartition

from .assignment import ConsumerAssignment, offsets_to_commit
from .counters import ConsumerCounters
from .partition import AssignedPartition, AwaitingCommitted
from .subscription import RebalanceListener

__all__ = ("ConsumerCallbacks", "RebalanceHandler")

logger = logging.getLogger("aiokafkawire.consumer")

MAX_CALLBACKS = 1_000
"""Callbacks that wait, each for the one before."""

REVOKED = "the partition was given back in a rebalance"

Callback = Callable[[Collection[TopicPartition]], object]
"""A method of a listener; what it returns is awaited if it can be."""


@dataclass(frozen=True, slots=True)
class ConsumerCallbacks:
    """What of the consumer a rebalance reaches.

    `stop_delivery`: the application's next call must look anew. `on_state_changed`: calls that wait
    look again, and fetching and positions too. `raise_in_next_call`: the next call raises this.
    `counters`: where it is counted.
    """

    stop_delivery: Callable[[], None]
    on_state_changed: Callable[[], None]
    raise_in_next_call: Callable[[Exception], None]
    on_result: Callable[[KafkaError | None], None]
    counters: ConsumerCounters = field(default_factory=ConsumerCounters)


class CallbackSlot(NamedTuple):
    """A callback's place in the order: after the end of the one before."""

    previous: anyio.Event | None
    done: anyio.Event


class RebalanceHandler:
    """The owner of a group member's partitions (`group.coordinator.PartitionOwner`).

    `lost_uncommitted` and `released_uncommitted` are partitions that went with records that were
    given and not committed, and why: those that were lost, for the next `commit()`, and all, for
    the next `positions()`.
    """

    def __init__(
        self,
        runtime: Runtime,
        host: Host,
        config: ConsumerConfig,
        *,
        assignment: ConsumerAssignment,
        offsets: GroupOffsets,
        callbacks: ConsumerCallbacks,
    ) -> None:
        self._clock = runtime.clock
        self._host = host
        self._config = config
        self._assignment = assignment
        self._offsets = offsets
        self._callbacks = callbacks
        self._rate_limit = RateLimit()
        self._owned: dict[TopicPartition, AssignedPartition] = {}
        self._being_revoked: frozenset[TopicPartition] = frozenset()
        self._last_callback: anyio.Event | None = None
        self._running_callbacks = 0
        self._callback_task: object = None
        self.listener: RebalanceListener | None = None
        self.close_deadline = NEVER
        self.lost_uncommitted: dict[TopicPartition, str] = {}
        self.released_uncommitted: dict[TopicPartition, str] = {}

    @property
    def in_callback(self) -> bool:
        """Whether the application is being told, so that nothing may be given."""
        return self._running_callbacks > 0

    def is_callback_task(self, task: object) -> bool:
        """Whether it is this task that runs a callback."""
        return task is self._callback_task

    # --- PartitionOwner ---

    def entered_generation(self, generation: Generation, owned: Collection[TopicPartition]) -> None:
        """A rebalance is over: what is owned may be committed in the new generation."""
        self._callbacks.counters.rebalances += 1
        self._offsets.rejoined(generation.number, owned)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Own these partitions too; reading begins once the listener was told.

        What was owned before goes on untouched. The listener hears of each rebalance that is over,
        also if it brought nothing.
        """
        for tp in partitions:
            partition = AssignedPartition(
                tp, self._config.auto_offset_reset, AwaitingCommitted(), self._host.fields
            )
            self._owned[tp] = partition
            self._assignment.add(partition)
        self._callbacks.on_state_changed()
        if self.listener is not None:
            self._schedule_callback(self.listener.on_partitions_assigned, partitions)

    def limit_to_topics(self, topics: Collection[str]) -> None:
        """Give nothing of topics that are not subscribed to, until their partitions have gone.

        With none the group is left, and all goes, whatever is subscribed to next.
        """
        if not topics:
            self.withdraw(tuple(self._owned))
        for tp, partition in self._owned.items():
            if tp not in self._being_revoked:
                partition.pending_revocation = tp.topic not in topics

    def withdraw(self, partitions: Collection[TopicPartition]) -> None:
        """Give nothing of these any more; they can be committed until they are revoked."""
        self._being_revoked = frozenset(partitions)
        for partition in self._find_owned(partitions):
            partition.pending_revocation = True
        self._callbacks.stop_delivery()

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Call back, commit what is processed, and let go.

        What is lost while that goes on may be back before it is over: that stays.
        """
        going = self._find_owned(partitions)
        if self.listener is not None:
            await self._run_callback(
                self.listener.on_partitions_revoked, partitions, self._reserve_slot()
            )
        # mutation: no-commit-on-revocation
        await self.commit_processed(self._still_owned(going))
        partitions = [partition.tp for partition in self._still_owned(going)]
        uncommitted: list[TopicPartition] = []
        for partition in self._release(partitions):
            if not self._config.enable_auto_commit and partition.has_uncommitted:
                self.released_uncommitted[partition.tp] = REVOKED
                uncommitted.append(partition.tp)
        self._log_revoked(partitions, uncommitted)
        self._offsets.ended(partitions, REVOKED, lost=False)
        self._callbacks.on_state_changed()

    def lose(self, partitions: Collection[TopicPartition], reason: str) -> None:
        """These are gone: nothing is committed, and a later commit of them fails."""
        self._callbacks.stop_delivery()
        for partition in self._release(partitions):
            if partition.has_uncommitted:
                self.lost_uncommitted[partition.tp] = self.released_uncommitted[partition.tp] = (
                    reason
                )
        self._offsets.ended(partitions, f"the partition was lost: {reason}", lost=True)
        logger.warning(
            "Group %s: lost %s without a commit: %s (%s)",
            self._config.group_id,
            count_partitions(partitions),
            list_partitions(partitions),
            reason,
            extra=fields_of(self._host.fields, partitions=len(partitions)),
        )
        if self.listener is not None:
            self._schedule_callback(self.listener.on_partitions_lost, partitions)
        self._callbacks.on_state_changed()

    def _log_revoked(
        self, partitions: Collection[TopicPartition], uncommitted: Collection[TopicPartition]
    ) -> None:
        text = f"revoked {count_partitions(partitions)}: {list_partitions(partitions)}"
        if uncommitted:
            text += (
                f"; records given and not committed, read again by the next owner:"
                f" {list_partitions(uncommitted)}"
            )
        logger.info(
            "Group %s: %s",
            self._config.group_id,
            text,
            extra=fields_of(self._host.fields, partitions=len(partitions)),
        )

    def _find_owned(self, partitions: Collection[TopicPartition]) -> list[AssignedPartition]:
        """Those that the group gave: one assigned by hand meanwhile may have the same name."""
        return [self._owned[tp] for tp in partitions if tp in self._owned]

    def _still_owned(self, partitions: Iterable[AssignedPartition]) -> list[AssignedPartition]:
        return [p for p in partitions if self._owned.get(p.tp) is p]

    def _release(self, partitions: Collection[TopicPartition]) -> list[AssignedPartition]:
        gone = self._find_owned(partitions)
        self._being_revoked = self._being_revoked.difference(partitions)
        for partition in gone:
            del self._owned[partition.tp]
        self._assignment.remove(gone)
        return gone

    def is_any_being_revoked(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether one of these is about to go: a commit of it cannot wait for the rebalance."""
        return any(tp in self._owned and self._owned[tp].pending_revocation for tp in partitions)

    def interrupt(self) -> None:
        """A revocation waits for the application's next call."""
        self._callbacks.stop_delivery()

    def heard(self, failure: KafkaError | None) -> None:
        """The coordinator answered, or could not be reached."""
        self._callbacks.on_result(failure)

    def changed(self) -> None:
        """The membership is in another state."""
        self._callbacks.on_state_changed()

    # --- committing ---

    async def commit_processed(self, partitions: Sequence[AssignedPartition]) -> None:
        """The last commit of partitions that go; a failure is logged, and they go all the same.

        What the application asked for and what is not acknowledged yet goes with it.
        """
        tickets: list[int] = []
        count = 0
        async for some in in_slices(partitions):
            owned = [p for p in some if self._is_owned(p)]
            offsets = self._offsets.pending(partition.tp for partition in owned)
            if self._config.enable_auto_commit:
                offsets |= offsets_to_commit(owned, offsets)
            if offsets:
                tickets.append(self._offsets.submit(offsets, last=True))
                count += len(offsets)
        if not tickets:
            return
        timeout_s = self._config.request_timeout_ms / 1000
        deadline = min(self._clock.now() + timeout_s, self.close_deadline)
        try:
            await self._offsets.acknowledged(tickets, deadline)
        except KafkaError as error:
            self._callbacks.counters.commit_failures += 1
            logger.warning(
                "Group %s: the commit before revocation failed: %s; records since the last commit"
                " are read again",
                self._config.group_id,
                error,
                extra=fields_of(self._host.fields, error=error, partitions=count),
            )

    def _is_owned(self, partition: AssignedPartition) -> bool:
        tp = partition.tp
        return self._owned.get(tp) is partition or self._assignment.get(tp) is partition

    # --- callbacks ---

    def _schedule_callback(
        self, callback: Callback, partitions: Collection[TopicPartition]
    ) -> None:
        if not self._host.running:
            return
        if self._running_callbacks >= MAX_CALLBACKS:
            failure = KafkaError(
                f"the rebalance listener is {MAX_CALLBACKS:,} calls behind: it was not told of"
                f" {len(partitions)} partitions ({getattr(callback, '__name__', callback)})"
            )
            logger.log(
                self._rate_limit.level(logging.ERROR, None, self._clock.now()),
                "Group %s: %s",
                self._config.group_id,
                failure,
                extra=fields_of(self._host.fields, error=failure),
            )
            self._callbacks.raise_in_next_call(failure)
            return
        # The turn is taken here: tasks need not start in the order in which they are spawned.
        self._host.spawn(
            self._run_callback,
            callback,
            partitions,
            self._reserve_slot(),
            name="rebalance-callback",
        )

    def _reserve_slot(self) -> CallbackSlot:
        self._running_callbacks += 1
        slot = CallbackSlot(self._last_callback, anyio.Event())
        self._last_callback = slot.done
        return slot

    async def _run_callback(
        self, callback: Callback, partitions: Collection[TopicPartition], slot: CallbackSlot
    ) -> None:
        """One callback at a time, in their order. What it raises, the application's call raises."""
        name = getattr(callback, "__name__", "the rebalance callback")
        try:
            if slot.previous is not None:
                await slot.previous.wait()
            error = await self._invoke(name, callback, partitions)
            if error is not None:
                logger.info(
                    "Group %s: %s raised %r; the next call raises it",
                    self._config.group_id,
                    name,
                    error,
                    extra=fields_of(self._host.fields, error=error),
                )
                self._callbacks.raise_in_next_call(error)
        finally:
            slot.done.set()
            self._running_callbacks -= 1
            self._callbacks.on_state_changed()

    async def _invoke(
        self, name: str, callback: Callback, partitions: Collection[TopicPartition]
    ) -> Exception | None:
        """Run a callback up to its deadline; what it raised.

        A cancellation that it lets out, of a task that it waited for, is its failure: it must not
        end the rebalance.
        """
        timeout_s = self._config.rebalance_callback_timeout_ms / 1000
        self._callback_task = current_task()
        try:
            with anyio.CancelScope(deadline=self._clock.now() + timeout_s) as scope:
                result = callback(list(partitions))
                if inspect.isawaitable(result):
                    await result
        except Exception as error:
            return error
        except anyio.get_cancelled_exc_class() as error:
            if being_cancelled():
                raise
            failed = KafkaError(f"{name} let out a cancellation of something that it waited for")
            failed.__cause__ = error
            return failed
        finally:
            self._callback_task = None
        if scope.cancelled_caught:
            logger.warning(
                "Group %s: %s took over %g s and was cancelled",
                self._config.group_id,
                name,
                timeout_s,
                extra=dict(self._host.fields),
            )
        return None
