"""Common parts of the transaction APIs."""

from __future__ import annotations

from aiokafkawire.wire import ErrorCode

__all__ = ("code_for",)


def code_for(version: int, code: ErrorCode, *, fenced_since: int) -> ErrorCode:
    """Return INVALID_PRODUCER_EPOCH for PRODUCER_FENCED before version `fenced_since`."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
