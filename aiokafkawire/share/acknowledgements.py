"""Acknowledgements of the records of one partition, from the application to the broker."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from enum import IntEnum
from typing import NamedTuple

from aiokafkawire.errors import AcknowledgementFailed
from aiokafkawire.runtime import Future

from .offset_ranges import OffsetRanges, consecutive

__all__ = (
    "GAP",
    "AcknowledgeType",
    "AcknowledgedOffsets",
    "Acknowledgement",
    "PartitionAcknowledgements",
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


class AcknowledgedOffsets(NamedTuple):
    """Consecutive offsets, with one type for all of them or one type each."""

    first_offset: int
    last_offset: int
    types: list[int]


class PartitionAcknowledgements:
    """Acknowledgements that one request carries for a partition. The broker takes all or none.

    Attributes:
        types: Type by offset.
        expired: Offsets whose lock expired before the request; they were not sent.
        result: Done once the broker has responded. Its error is an `AcknowledgementFailed`.
    """

    __slots__ = ("expired", "result", "types")

    def __init__(self) -> None:
        self.types: OffsetRanges[int] = OffsetRanges()
        self.expired: set[int] = set()
        self.result: Future[None] = Future()

    def add(self, offsets: Iterable[int], type: int) -> None:
        """Acknowledge offsets. The last type of an offset counts."""
        for first, last in consecutive(offsets):
            self.types.set(first, last, type)

    def expire(self, first: int, last: int) -> None:
        """Send no acknowledgement of these offsets, whose lock has expired."""
        for begin, end, _ in self.types.within(first, last):
            self.expired.update(range(begin, end + 1))
        self.types.remove(first, last)

    def undecided(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges between two offsets without an acknowledgement; a renewal is none."""
        renew = AcknowledgeType.RENEW
        return [
            (begin, end)
            for begin, end, kind in self.types.filled(first, last, renew)
            if kind == renew
        ]

    @property
    def renews(self) -> bool:
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

    def error_of(self, offset: int) -> AcknowledgementFailed | None:
        """Return the failure of one offset, once `result` is done."""
        if offset in self.expired:
            return lock_expired_error()
        error = self.result.error
        assert error is None or isinstance(error, AcknowledgementFailed)
        return error

    @property
    def error(self) -> AcknowledgementFailed | None:
        """The failure of any offset, once `result` is done."""
        error = self.result.error
        assert error is None or isinstance(error, AcknowledgementFailed)
        return error or (lock_expired_error() if self.expired else None)


def lock_expired_error() -> AcknowledgementFailed:
    return AcknowledgementFailed("the record's acquisition lock has expired")


class Acknowledgement:
    """The acknowledgement of one record. Await it to wait for the broker's response.

    It is sent in any case, together with those of other records; await it only to know the result.

    Awaiting raises `AcknowledgementFailed` if the record is delivered again nevertheless.
    """

    __slots__ = ("_acknowledgements", "_flush", "_offset")

    def __init__(
        self,
        acknowledgements: PartitionAcknowledgements,
        offset: int,
        flush: Callable[[], None],
    ) -> None:
        self._acknowledgements = acknowledgements
        self._offset = offset
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
        error = self._acknowledgements.error_of(self._offset)
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
