"""Sizes of the batches that a handler gets."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafkawire.types import require_whole_number

__all__ = ("BatchPolicy",)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """Limits of a batch: it is processed when one of them is reached.

    A batch has records of one partition.

    Attributes:
        max_records: Number of records.
        max_wait_ms: Time since its first record was fetched, in milliseconds.
    """

    max_records: int = 500
    max_wait_ms: int = 100

    def __post_init__(self) -> None:
        require_whole_number("max_records", self.max_records, "BatchPolicy(max_records=500)")
        require_whole_number("max_wait_ms", self.max_wait_ms, "BatchPolicy(max_wait_ms=100)")
        if self.max_records < 1 or self.max_wait_ms < 0:
            raise ValueError("max_records must be at least 1, and max_wait_ms at least 0")
