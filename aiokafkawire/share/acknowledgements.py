"""Acknowledgements of the records of one partition, from the application to the broker."""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import IntEnum
from typing import NamedTuple, Self

from aiokafkawire.errors import AcknowledgementFailed
from aiokafkawire.runtime import Future

from .locks import AcquisitionLock
from .offset_ranges import OffsetRanges

__all__ = (
    "GAP",
    "AcknowledgeType",
    "AcknowledgedOffsets",
    "Acknowledgement",
    "PartitionAcknowledgements",
    "lock_ended_error",
    "wait_done",
)


class AcknowledgeType(IntEnum):
    """Decision about a delivered record, by its number on the wire (KIP-932, KIP-1222)."""

    ACCEPT = 1
    """The record is processed, and is not delivered again."""
    RELEASE = 2
    """The record is delivered again at once, up to the group's limit of deliveries."""
    REJECT = 3
    """The record cannot be processed, and is not delivered again."""
    RENEW = 4
    """The record is still being processed; its lock starts again."""


GAP = 0
"""Type of an offset that was acquired and has no record, such as a control record."""

_ABSENT = -1


class AcknowledgedOffsets(NamedTuple):
    """Consecutive offsets, with one type for all of them or one type each."""

    first_offset: int
    last_offset: int
    types: list[int]


class PartitionAcknowledgements:
    """Acknowledgements that one request carries for a partition. The broker takes all or none.

    Attributes:
        types: Type by offset.
        expired: Offsets that were not sent because their lock had ended, each with that lock.
        result: Done once the broker has responded. Its error is an `AcknowledgementFailed`.
    """

    __slots__ = ("expired", "result", "types")

    def __init__(self) -> None:
        self.types: OffsetRanges[int] = OffsetRanges()
        self.expired: set[tuple[int, AcquisitionLock]] = set()
        self.result: Future[None] = Future()

    @classmethod
    def lost(cls, ranges: list[tuple[int, int]], lock: AcquisitionLock) -> Self:
        """Return acknowledgements of records whose lock ended before; they are not sent."""
        acknowledgements = cls()
        for first, last in ranges:
            acknowledgements.expired.update((offset, lock) for offset in range(first, last + 1))
        return acknowledgements

    def expire(self, first: int, last: int, lock: AcquisitionLock) -> None:
        """Send no acknowledgement of these offsets, whose lock has ended."""
        for begin, end, kind in self.types.within(first, last):
            if kind != GAP:
                self.expired.update((offset, lock) for offset in range(begin, end + 1))
        self.types.remove(first, last)

    def absent(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges between two offsets without an acknowledgement."""
        return [
            (begin, end)
            for begin, end, kind in self.types.filled(first, last, _ABSENT)
            if kind == _ABSENT
        ]

    @property
    def renews(self) -> bool:
        """True if these are renewals, which share no request with others."""
        return any(kind == AcknowledgeType.RENEW for _, _, kind in self.types)

    def batches(self) -> list[AcknowledgedOffsets]:
        """Return the batches for the request, in ascending order."""
        batches: list[AcknowledgedOffsets] = []
        for first, last, kind in self.types:
            before = batches[-1] if batches else None
            # mutation: acknowledged-ranges-merge-over-gaps
            if before is None or first != before.last_offset + 1:
                batches.append(AcknowledgedOffsets(first, last, [kind]))
                continue
            types = before.types
            if len(types) == 1:
                types = types * (first - before.first_offset)
            types += [kind] * (last - first + 1)
            batches[-1] = AcknowledgedOffsets(before.first_offset, last, types)
        return batches

    @property
    def response_error(self) -> AcknowledgementFailed | None:
        """The failure of the offsets that were sent, once `result` is done."""
        error = self.result.error
        assert error is None or isinstance(error, AcknowledgementFailed)
        return error

    @property
    def error(self) -> AcknowledgementFailed | None:
        """The failure of any offset, once `result` is done."""
        return self.response_error or (lock_ended_error() if self.expired else None)


def lock_ended_error() -> AcknowledgementFailed:
    """Return the failure of a record that is delivered again."""
    return AcknowledgementFailed(
        "the record's acquisition lock has expired, or its share session has ended"
    )


class Acknowledgement:
    """The acknowledgement of one record. Await it to wait for the broker's response.

    It is sent in any case, together with those of other records; await it only to know the result.

    Awaiting raises `AcknowledgementFailed` if the record is delivered again nevertheless.
    """

    __slots__ = ("_acknowledgements", "_flush", "_key")

    def __init__(
        self,
        acknowledgements: PartitionAcknowledgements,
        offset: int,
        lock: AcquisitionLock,
        flush: Callable[[], None],
    ) -> None:
        self._acknowledgements = acknowledgements
        self._key = offset, lock
        self._flush = flush

    @property
    def done(self) -> bool:
        """True once the broker has responded, or the acknowledgement has failed."""
        return self._acknowledgements.result.done

    def __await__(self) -> Generator[object, None, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        result = self._acknowledgements.result
        if not result.done:
            self._flush()
        await wait_done(result)
        if self._key in self._acknowledgements.expired:
            raise lock_ended_error()
        error = self._acknowledgements.response_error
        if error is not None:
            raise error


async def wait_done(result: Future[None]) -> None:
    """Wait until a future is done; its error is not raised."""
    if result.done:
        return
    waiter = result.new_waiter()
    try:
        await waiter
    finally:
        result.discard(waiter)
