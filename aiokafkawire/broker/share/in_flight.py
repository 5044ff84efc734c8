"""Records of a share partition that are in flight, and the state of their delivery."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum

__all__ = (
    "AcknowledgeType",
    "AcquiredRange",
    "DeliveryState",
    "InFlightBatch",
    "RecordState",
    "StateBatch",
)


class RecordState(IntEnum):
    """State of a record, numbered as in `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Return True if the record is never delivered again."""
        return self in {RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}


class AcknowledgeType(IntEnum):
    """Acknowledgement of a record, numbered as in ShareAcknowledge."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@dataclass(frozen=True, slots=True)
class AcquiredRange:
    """Records that a member has acquired; both offsets are included."""

    first: int
    last: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class StateBatch:
    """State and delivery count of a range of records; both offsets are included."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


@dataclass(slots=True)
class DeliveryState:
    """State of a record, or of a batch whose records all have it.

    `member_id` and `deadline` are those of the lock of an acquired record.
    """

    state: RecordState
    count: int
    member_id: str = ""
    deadline: float = math.inf

    def acquire(self, member_id: str, deadline: float) -> None:
        """Lock the record for a member."""
        self.state, self.count = RecordState.ACQUIRED, self.count + 1
        self.member_id, self.deadline = member_id, deadline

    def end_lock(self, state: RecordState) -> None:
        """Remove the lock and set the state that follows."""
        self.state, self.member_id, self.deadline = state, "", math.inf


@dataclass(slots=True)
class InFlightBatch:
    """Consecutive records. They have one delivery until a request treats them differently."""

    first: int
    last: int
    whole: DeliveryState | None
    offsets: dict[int, DeliveryState] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.last - self.first + 1

    def split(self) -> dict[int, DeliveryState]:
        """Return the delivery of each record, from now on tracked by record."""
        if self.whole is not None:
            whole, self.whole = self.whole, None
            self.offsets = {offset: replace(whole) for offset in range(self.first, self.last + 1)}
        return self.offsets

    def deliveries(self) -> Iterator[tuple[int, int, DeliveryState]]:
        """Return ranges of records with one delivery each."""
        if self.whole is not None:
            yield self.first, self.last, self.whole
            return
        for offset, delivery in self.offsets.items():
            yield offset, offset, delivery

    def first_offset_in(self, *states: RecordState) -> int | None:
        """Return the first record in one of the states, None without such a record."""
        return next((first for first, _, each in self.deliveries() if each.state in states), None)
