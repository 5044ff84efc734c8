"""What the APIs of transactions have in common."""

from __future__ import annotations

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.wire import ErrorCode

__all__ = ("check_coordinator", "code_for")


def check_coordinator(call: Call, transactional_id: str) -> None:
    """Raise `Refusal` unless this node coordinates the transactional id."""
    if call.cluster.coordinator(transactional_id) != call.node_id:
        raise Refusal(ErrorCode.NOT_COORDINATOR)


def code_for(version: int, code: ErrorCode, *, fenced_since: int) -> ErrorCode:
    """The code as clients of a version know it: of a fenced one they knew only its epoch."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
