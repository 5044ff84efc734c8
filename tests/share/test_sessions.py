"""Results of acknowledgements that the application's callback gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from aiokafkawire.config import ShareConsumerConfig
from aiokafkawire.errors import AcknowledgementFailed
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.share.acknowledgements import (
    GAP,
    AcknowledgeType,
    PartitionAcknowledgements,
    lock_ended_error,
)
from aiokafkawire.share.locks import AcquisitionLock
from aiokafkawire.share.node import ShareNode
from aiokafkawire.share.sessions import ShareSessions
from aiokafkawire.types import NodeId, TopicPartition

ORDERS = TopicIdPartition(UUID(int=1), "orders", 0)
ORDERS_0 = TopicPartition("orders", 0)


def results_of(
    acknowledgements: PartitionAcknowledgements, error: AcknowledgementFailed | None
) -> list[tuple[Any, ...]]:
    """Return the arguments of the callback's calls, with the failure as text."""
    nothing: Any = None
    config = ShareConsumerConfig(bootstrap_servers=["localhost"], group_id="work")
    sessions = ShareSessions(nothing, nothing, nothing, config, delivery=nothing, notifier=nothing)
    calls: list[tuple[Any, ...]] = []
    sessions.on_acknowledgement = lambda tp, offsets, failure: calls.append(
        (tp, offsets, None if failure is None else failure.reason)
    )
    acknowledgements.result.set_result(None, error)
    sessions.on_acknowledged(ORDERS, acknowledgements)
    return calls


def acknowledged(*offsets: int, expired: int = 0) -> PartitionAcknowledgements:
    """Return acknowledgements; the locks of the first `expired` ones have expired."""
    acknowledgements = PartitionAcknowledgements()
    acknowledgements.types.set(offsets[0], offsets[-1], AcknowledgeType.ACCEPT)
    if expired:
        acknowledgements.expire(offsets[0], offsets[expired - 1], AcquisitionLock(0.0, 1.0))
    return acknowledgements


def test_confirmed_and_expired_offsets_have_a_result_each() -> None:
    assert results_of(acknowledged(1, 2, 3, expired=1), None) == [
        (ORDERS_0, [2, 3], None),
        (ORDERS_0, [1], lock_ended_error().reason),
    ]


def test_without_expired_offsets_there_is_one_result() -> None:
    refused = AcknowledgementFailed("refused")
    assert results_of(acknowledged(1, 2), refused) == [(ORDERS_0, [1, 2], "refused")]


def test_gaps_are_no_results() -> None:
    gaps = PartitionAcknowledgements()
    gaps.types.set(1, 3, GAP)
    gaps.expire(1, 1, AcquisitionLock(0.0, 1.0))
    assert results_of(gaps, None) == []


async def test_no_session_is_opened_while_the_consumer_closes() -> None:
    """Another broker becomes the leader while the session of the first one ends."""
    config = ShareConsumerConfig(bootstrap_servers=["localhost"], group_id="work")
    nothing: Any = None
    cluster: Any = SimpleNamespace(
        metadata=SimpleNamespace(
            leader=lambda tp: SimpleNamespace(node=2), topic_id=lambda topic: ORDERS.topic_id
        )
    )
    supervisor: Any = SimpleNamespace(is_running=True)
    delivery: Any = SimpleNamespace(buffered_count=0, release_all_but=lambda partitions: None)
    sessions = ShareSessions(
        cluster, nothing, supervisor, config, delivery=delivery, notifier=nothing
    )

    class ClosingNode:
        def close(self) -> None: ...
        def set_partitions(self, partitions: object) -> None: ...
        def set_demand(self, *, wants_records: bool) -> None: ...

        async def wait_closed(self, deadline: float) -> bool:
            sessions.replace_assignment((ORDERS,))
            return True

    sessions._nodes[NodeId(1)] = cast("ShareNode", ClosingNode())
    await sessions.close(1.0)
    assert list(sessions._nodes) == [1]
