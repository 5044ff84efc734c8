"""What the APIs of transactions have in common."""

from __future__ import annotations

from aiokafkawire.wire import ErrorCode

__all__ = ("code_for",)


def code_for(version: int, code: ErrorCode, *, fenced_since: int) -> ErrorCode:
    """The code as clients of a version know it: of a fenced one they knew only its epoch."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
