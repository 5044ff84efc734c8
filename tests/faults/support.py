"""Helpers of the fault tests: options with short timeouts, and reading back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiokafkawire.broker import SeenRequest
from aiokafkawire.consumer import Consumer
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages import fetch
from tests.behaviour.support import take

IMPATIENT: dict[str, Any] = {
    "request_timeout_ms": 400,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
}
"""Options of a client with short timeouts and backoffs."""

READER: dict[str, Any] = IMPATIENT | {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}

MEMBER: dict[str, Any] = READER | {
    "enable_auto_commit": False,
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 50,
}


@asynccontextmanager
async def reading(
    bootstrap_servers: str, topic: str, partitions: int = 1, **options: Any
) -> AsyncIterator[Consumer]:
    """A consumer without a group at the start of all partitions."""
    async with Consumer(bootstrap_servers=bootstrap_servers, **(READER | options)) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        yield consumer


async def stored(bootstrap_servers: str, topic: str, partitions: int = 1) -> list[bytes | None]:
    """Return all values of a topic, partition by partition in the order of offsets."""
    async with reading(bootstrap_servers, topic, partitions) as consumer:
        ends = await consumer.end_offsets(*consumer.assignment())
        records = await take(consumer, sum(ends.values()))
    return [r.value for r in sorted(records, key=lambda r: (r.partition, r.offset))]


def fetch_errors(code: ErrorCode) -> Callable[[SeenRequest], fetch.FetchResponse | None]:
    """Respond to a fetch with an error for each of its partitions."""

    def answer(seen: SeenRequest) -> fetch.FetchResponse | None:
        assert isinstance(seen.message, fetch.FetchRequest)
        if not seen.message.topics:
            return None  # an incremental fetch without partitions: the normal response
        return fetch.FetchResponse(
            responses=[
                fetch.FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        fetch.FetchPartitionData(
                            partition_index=each.partition,
                            error_code=code,
                            high_watermark=-1,
                            records=None,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in seen.message.topics
            ]
        )

    return answer
