"""Records that a share consumer returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self, overload

from aiokafkawire.records import Records

from .record import HeldRecords, ShareRecord

__all__ = ("ShareRecords",)


class ShareRecords(Records):
    """An immutable sequence of `ShareRecord` of one partition, in offset order.

    A record is created on access, as in `Records`. It makes no difference on which of the objects
    of one record the application calls `accept`, `release`, `reject` or `renew`.
    """

    __slots__ = ()

    @classmethod
    def hold(cls, records: Records, held: HeldRecords) -> Self:
        """Return records with their lock."""
        segments = [segment._replace(held=held) for segment in records.segments]
        return cls(*records.topic_partition, segments, records.next_offset, records.leader_epoch)

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[ShareRecord]: ...

        @overload
        def __getitem__(self, index: int) -> ShareRecord: ...

        @overload
        def __getitem__(self, index: slice) -> Self: ...

        def __getitem__(self, index: int | slice) -> ShareRecord | Self: ...
