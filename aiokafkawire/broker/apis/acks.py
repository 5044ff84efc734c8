"""How long a producer waits: until as many replicas as it asks for have what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.topics import Partition
from aiokafkawire.runtime import Signal
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.produce import PartitionProduceResponse

__all__ = ("ALL_IN_SYNC", "Written", "acknowledged")

ALL_IN_SYNC = -1


@dataclass(frozen=True, slots=True)
class Written:
    """What was written of one partition, and the answer for it.

    `min_in_sync`: how many replicas have to be in sync when all of them have it.
    """

    partition: Partition
    end_offset: int
    min_in_sync: int
    response: PartitionProduceResponse


async def acknowledged(call: Call, acks: int, timeout_ms: int, written: Sequence[Written]) -> None:
    """Wait for the replicas, and put down where they were too few, or too slow."""
    open_ones = _still_open(call, acks, written)
    if not open_ones:
        return
    clock = call.state.clock
    deadline = clock.now() + max(timeout_ms, 0) / 1000
    signal = Signal()
    watched = [each.partition.changed for each in open_ones] + [call.peer.left]
    for watchers in watched:
        watchers.add(signal.set)
    try:
        while open_ones and not call.peer.gone:
            if not await signal.wait(deadline):
                break
            open_ones = _still_open(call, acks, open_ones)
    finally:
        for watchers in watched:
            watchers.remove(signal.set)
    for each in open_ones:
        _fail(each, ErrorCode.REQUEST_TIMED_OUT)


def _still_open(call: Call, acks: int, written: Sequence[Written]) -> list[Written]:
    """Those that nothing can be said of yet; the others' answers are made."""
    waiting = []
    for each in written:
        partition = each.partition
        if partition.deleted:
            _fail(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif partition.leader != call.node_id:
            _fail(each, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif acks != ALL_IN_SYNC:
            if partition.replicas_with(each.end_offset) < acks:
                waiting.append(each)
        elif partition.high_watermark < each.end_offset:
            waiting.append(each)
        elif len(partition.isr) < each.min_in_sync:
            _fail(each, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    return waiting


def _fail(each: Written, code: ErrorCode) -> None:
    each.response.error_code = code
    each.response.base_offset = -1
