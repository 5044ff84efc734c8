"""Acknowledgement of produced records by replicas (Kafka's DelayedProduce)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import Partition
from aiokafkawire.runtime import AutoResetEvent
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.produce import PartitionProduceResponse

__all__ = ("ACKS_ALL", "ProducePartitionStatus", "wait_for_acks")

ACKS_ALL = -1


@dataclass(frozen=True, slots=True)
class ProducePartitionStatus:
    """Appended records of one partition and their pending response.

    `min_in_sync` is the size that the ISR must have once all of it has the records.
    """

    partition: Partition
    end_offset: int
    min_in_sync: int
    response: PartitionProduceResponse


async def wait_for_acks(
    context: RequestContext, acks: int, timeout_ms: int, statuses: Sequence[ProducePartitionStatus]
) -> None:
    """Wait until the replicas have the records; set error codes where they do not."""
    pending = _still_pending(context, acks, statuses)
    if not pending:
        return
    clock = context.state.clock
    deadline = clock.now() + max(timeout_ms, 0) / 1000
    signal = AutoResetEvent()
    watched = [each.partition.on_change for each in pending] + [context.connection.on_close]
    for callbacks in watched:
        callbacks.add(signal.set)
    try:
        while pending and not context.connection.is_closed:
            if not await signal.wait(deadline):
                break
            pending = _still_pending(context, acks, pending)
    finally:
        for callbacks in watched:
            callbacks.remove(signal.set)
    for each in pending:
        _fail(each, ErrorCode.REQUEST_TIMED_OUT)


def _still_pending(
    context: RequestContext, acks: int, statuses: Sequence[ProducePartitionStatus]
) -> list[ProducePartitionStatus]:
    """Return the partitions that still wait; complete the responses of the others."""
    waiting = []
    for each in statuses:
        partition = each.partition
        if partition.deleted:
            _fail(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif partition.leader != context.node_id:
            _fail(each, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif acks != ACKS_ALL:
            if partition.count_replicas_at(each.end_offset) < acks:
                waiting.append(each)
        elif partition.high_watermark < each.end_offset:
            waiting.append(each)
        elif len(partition.isr) < each.min_in_sync:
            _fail(each, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    return waiting


def _fail(each: ProducePartitionStatus, code: ErrorCode) -> None:
    each.response.error_code = code
    each.response.base_offset = -1
