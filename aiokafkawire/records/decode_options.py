"""The options with which a consumer decodes fetched batches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from .compression import DEFAULT_MAX_DECOMPRESSED_BYTES

__all__ = ("DecodeOptions", "IsolationLevel")


class IsolationLevel(IntEnum):
    """Isolation level of a fetch, by its number on the wire (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """The options that all fetch responses of a consumer share.

    Attributes:
        check_crcs: Verify the checksum of each batch.
        isolation: With READ_COMMITTED, records of aborted transactions are skipped.
        max_decompressed_bytes: Maximum size of one batch.
        max_inline_bytes: Larger batches are decompressed outside the event loop; None for no limit.
    """

    check_crcs: bool = True
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    max_inline_bytes: int | None = None
