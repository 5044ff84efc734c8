"""State machine of a share partition: one partition of a topic for one share group (KIP-932).

It is synchronous and does no I/O of its own. A change that must survive is given to `write` first;
if that raises, the change is undone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.share import acquisition
from aiokafkawire.broker.share.in_flight import (
    AcknowledgeType,
    AcquiredRange,
    DeliveryState,
    InFlightBatch,
    RecordState,
    StateBatch,
)
from aiokafkawire.broker.share.window import InFlightWindow
from aiokafkawire.wire import ErrorCode

__all__ = (
    "AcknowledgedRange",
    "GivenUpRecords",
    "SharePartition",
    "SharePartitionSettings",
    "StateUpdate",
)

logger = logging.getLogger("aiokafkawire.broker")

STATE_OF_TYPE = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


@dataclass(frozen=True, slots=True)
class SharePartitionSettings:
    """Configs of the share group that apply to its partitions."""

    lock_duration_s: float = 30.0
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    allows_renew: bool = True


@dataclass(frozen=True, slots=True)
class AcknowledgedRange:
    """Acknowledgement of records: one type for all of them, or one for each."""

    first: int
    last: int
    types: tuple[AcknowledgeType, ...]

    def type_of(self, offset: int) -> AcknowledgeType:
        """Return the type for a record of the range."""
        return self.types[offset - self.first] if len(self.types) > 1 else self.types[0]


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """Change to persist: start offset, number of finished records after it, changed ranges."""

    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


REJECTED = "Offset rejected by client."
LIMIT_REACHED = "Offset delivery count exceeded the threshold."


@dataclass(frozen=True, slots=True)
class GivenUpRecords:
    """Records that were archived without being processed; `cause` is Kafka's message."""

    first: int
    last: int
    delivery_count: int
    cause: str


@dataclass(slots=True)
class _Transitions:
    """Changes of one event at a time, which are undone if they cannot be persisted."""

    now: float
    before: list[tuple[DeliveryState, DeliveryState]] = field(default_factory=list)
    changed: list[StateBatch] = field(default_factory=list)
    given_up: list[GivenUpRecords] = field(default_factory=list)
    completed: int = 0

    def undo(self) -> None:
        for delivery, before in reversed(self.before):
            delivery.state, delivery.count = before.state, before.count
            delivery.member_id, delivery.deadline = before.member_id, before.deadline


class SharePartition:
    """Acquires, acknowledges and releases records for the members of a share group.

    Times are in seconds of the caller's clock. The caller sets `settings` before each event.
    """

    def __init__(
        self,
        start: int,
        write: Callable[[StateUpdate], None],
        batches: Iterable[StateBatch] = (),
        settings: SharePartitionSettings | None = None,
        give_up: Callable[[Sequence[GivenUpRecords]], None] | None = None,
    ) -> None:
        self.settings = settings or SharePartitionSettings()
        self.window = InFlightWindow(start, batches)
        self._write = write
        self._give_up = give_up

    # --- what can be acquired ----------------------------------------------------------------

    @property
    def start(self) -> int:
        """Offset of the first record that is not finished."""
        return self.window.start

    @property
    def end(self) -> int:
        """Offset of the first record that was not acquired yet."""
        return self.window.end

    @property
    def next_fetch_offset(self) -> int:
        """Offset of the first available record: one in flight, or the one at `end`."""
        return self.window.next_fetch_offset

    @property
    def can_acquire(self) -> bool:
        """Return True unless the window of records in flight is full."""
        is_redelivery = self.next_fetch_offset != self.end
        return is_redelivery or len(self.window) < self.settings.max_record_locks

    @property
    def next_deadline(self) -> float:
        """Time at which `expire` should be called, infinity without locks."""
        return self.window.locks.next()

    def acquire(
        self,
        member_id: str,
        fetched: acquisition.AcquirableBatches,
        limits: acquisition.AcquireLimits,
        now: float,
    ) -> list[AcquiredRange]:
        """Lock available records for a member; return what it has acquired.

        Args:
            member_id: Id of the member.
            fetched: Batches of the log from `next_fetch_offset`.
            limits: How many records to acquire.
            now: Current time.
        """
        allowed = self._allowed(fetched, limits.max_records)
        if allowed is None:
            return []
        last, max_records = allowed
        run = acquisition.Acquisition(
            self.window,
            member_id,
            fetched,
            replace(limits, max_records=max_records),
            last=last,
            deadline=now + self.settings.lock_duration_s,
            delivery_count_limit=self.settings.delivery_count_limit,
        )
        acquired = self._without_aborted(run.acquire(), fetched.aborted)
        self.window.move_start()
        return acquired

    def _allowed(
        self, fetched: acquisition.AcquirableBatches, max_records: int
    ) -> tuple[int, int] | None:
        """Return the last offset and the number of records that may be acquired."""
        if max_records <= 0 or not fetched.batches:
            return None
        last = fetched.batches[-1][1]
        allowed = min(max_records, self.settings.max_record_locks - len(self.window))
        if allowed > 0:
            return last, allowed
        if fetched.offset >= self.end:
            return None
        # The window is full, but records in it were released.
        return min(last, self.end - 1), min(max_records, self.end - fetched.offset)

    def _without_aborted(
        self, acquired: list[AcquiredRange], aborted: Sequence[tuple[int, int]]
    ) -> list[AcquiredRange]:
        """Archive acquired records of aborted transactions; return the other ranges."""
        for first, last in aborted:
            left: list[AcquiredRange] = []
            for each in acquired:
                cut = max(first, each.first), min(last, each.last)
                if cut[0] > cut[1]:
                    left.append(each)
                    continue
                self.window.archive(*cut)
                if each.first < cut[0]:
                    left.append(replace(each, last=cut[0] - 1))
                if cut[1] < each.last:
                    left.append(replace(each, first=cut[1] + 1))
            acquired = left
        return acquired

    # --- acknowledgements --------------------------------------------------------------------

    def acknowledge(self, member_id: str, ranges: Iterable[AcknowledgedRange], now: float) -> None:
        """Acknowledge records that a member has acquired: all ranges, or none.

        Raises:
            ApiError: A record is not acquired by the member.
            StorageError: The new state was not stored.
        """
        transitions = _Transitions(now)
        try:
            for each in ranges:
                self._check_renewal(each)
                if each.last < self.start:
                    continue  # finished long ago
                for batch in self._find_acknowledged(each):
                    if batch.last >= self.start:
                        self._acknowledge_batch(member_id, each, batch, transitions)
            self._persist(transitions)
        except ApiError:
            transitions.undo()
            raise
        self._commit(transitions)

    def _check_renewal(self, acknowledged: AcknowledgedRange) -> None:
        if AcknowledgeType.RENEW in acknowledged.types and not self.settings.allows_renew:
            raise ApiError(
                ErrorCode.INVALID_RECORD_STATE,
                "Renewing acquisition locks is not enabled for the group.",
            )

    def _find_acknowledged(self, acknowledged: AcknowledgedRange) -> list[InFlightBatch]:
        """Return the batches that an acknowledgement covers. Raises `ApiError`."""
        first, last = acknowledged.first, acknowledged.last
        found = self.window.from_floor(first, last)
        if not found and first < self.start <= last:
            found = self.window.from_floor(self.start, last)
        if not found:
            raise ApiError(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        for offset, name in ((first, "first"), (last, "last")):
            if offset > found[-1].last:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Batch record not found. The {name} offset in request is past acquired"
                    " records.",
                )
        return found

    def _acknowledge_batch(
        self,
        member_id: str,
        acknowledged: AcknowledgedRange,
        batch: InFlightBatch,
        transitions: _Transitions,
    ) -> None:
        if batch.whole is not None:
            if batch.whole.state is not RecordState.ACQUIRED:
                raise _not_acquired("batch", "in the acquired state")
            if batch.whole.member_id != member_id:
                raise ApiError(
                    ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record"
                )
            covers = acknowledged.first <= batch.first and batch.last <= acknowledged.last
            if covers and len(acknowledged.types) == 1 and self.start <= batch.first:
                self._apply(
                    acknowledged.types[0], batch.first, batch.last, batch.whole, transitions
                )
                return
        for offset, delivery in batch.split().items():
            if offset < acknowledged.first or offset < self.start:
                continue
            if offset > acknowledged.last:
                break
            if delivery.state is not RecordState.ACQUIRED:
                raise _not_acquired("offset", "acquired")
            if delivery.member_id != member_id:
                raise ApiError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset")
            kind = acknowledged.type_of(offset)
            self._apply(kind, offset, offset, delivery, transitions)

    def _apply(
        self,
        kind: AcknowledgeType,
        first: int,
        last: int,
        delivery: DeliveryState,
        transitions: _Transitions,
    ) -> None:
        if kind is AcknowledgeType.RENEW:
            delivery.deadline = transitions.now + self.settings.lock_duration_s
            self.window.locks.set((first, last), delivery.deadline)
        else:
            cause = REJECTED if kind is AcknowledgeType.REJECT else ""
            self._end_lock(first, last, delivery, STATE_OF_TYPE[kind], transitions, cause=cause)

    # --- release -----------------------------------------------------------------------------

    def release(self, member_id: str, now: float) -> bool:
        """Release all records that a member has acquired; return True if there were any.

        Raises:
            StorageError: The new state was not stored, and the records stay acquired.
        """
        transitions = _Transitions(now)
        for batch in self.window.batches:
            for first, last, delivery in batch.deliveries():
                if delivery.state is RecordState.ACQUIRED and delivery.member_id == member_id:
                    self._release(first, last, delivery, transitions)
        try:
            self._persist(transitions)
        except StorageError:
            transitions.undo()
            raise
        return self._commit(transitions)

    def expire(self, now: float) -> bool:
        """Release records whose lock has expired; return True if there were any."""
        transitions = _Transitions(now)
        for first, last in self.window.locks.take_expired(now):
            for batch in self.window.between(first, last):
                for from_, to, delivery in batch.deliveries():
                    if delivery.state is RecordState.ACQUIRED and delivery.deadline <= now:
                        self._release(from_, to, delivery, transitions)
        try:
            self._persist(transitions)
        except StorageError as error:
            # A lock that has expired does not come back.
            logger.warning("Share partition: cannot store expired locks: %s", error.message)
        return self._commit(transitions)

    def _release(
        self, first: int, last: int, delivery: DeliveryState, transitions: _Transitions
    ) -> None:
        state = RecordState.ARCHIVED if last < self.start else RecordState.AVAILABLE
        self._end_lock(first, last, delivery, state, transitions)

    def _end_lock(
        self,
        first: int,
        last: int,
        delivery: DeliveryState,
        state: RecordState,
        transitions: _Transitions,
        *,
        cause: str = "",
    ) -> None:
        """Set the state after a lock; a record at the delivery limit is archived.

        `cause` says why a record is given up.
        """
        transitions.before.append((delivery, replace(delivery)))
        is_last = delivery.count >= self.settings.delivery_count_limit
        if state is RecordState.AVAILABLE and is_last:
            state, cause = RecordState.ARCHIVED, LIMIT_REACHED
        if cause:
            transitions.given_up.append(GivenUpRecords(first, last, delivery.count, cause))
        delivery.end_lock(state)
        if state.is_terminal:
            transitions.completed += self.window.count(first, last)
        previous = transitions.changed[-1] if transitions.changed else None
        changed = StateBatch(first, last, state, delivery.count)
        if previous is not None and replace(changed, first=previous.last + 1) == replace(
            previous, first=first, last=last
        ):
            transitions.changed[-1] = replace(previous, last=last)
        else:
            transitions.changed.append(changed)

    def _persist(self, transitions: _Transitions) -> None:
        if transitions.changed:
            complete = self.window.complete + transitions.completed
            self._write(StateUpdate(self.start, complete, tuple(transitions.changed)))

    def _commit(self, transitions: _Transitions) -> bool:
        self.window.complete += transitions.completed
        for changed in transitions.changed:
            self.window.locks.cancel((changed.first, changed.last))
            if changed.state is RecordState.AVAILABLE:
                self.window.on_available()
        self.window.move_start()
        if self._give_up is not None and transitions.given_up:
            self._give_up(transitions.given_up)
        return bool(transitions.changed)

    # --- start offset ------------------------------------------------------------------------

    def advance_log_start(self, log_start: int) -> None:
        """Give up records that the log has deleted."""
        window = self.window
        if log_start <= window.start:
            return
        window.archive(window.start, log_start - 1)
        window.end = max(window.end, log_start)
        window.move_start()
        window.start = max(window.start, log_start)


def _not_acquired(subject: str, state: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_RECORD_STATE,
        f"The {subject} cannot be acknowledged. The {subject} is not {state}.",
    )
