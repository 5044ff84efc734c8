"""Fetch requests of a session, and which partition each part of a response belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from aiokafkawire.config import ConsumerConfig
from aiokafkawire.records import DecodeOptions, IsolationLevel
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ZERO_UUID
from aiokafkawire.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

from .fetch_planner import FetchPlan, PartitionFetch
from .fetch_session import SessionRequest

__all__ = ("decode_options", "fetch_request", "isolation_level", "match_response")

FIRST_WITH_DIVERGING_EPOCH = 12
"""First Fetch version with `last_fetched_epoch`, to detect a diverging log (KIP-595)."""

SHORT_FETCH_WAIT_MS = 100
"""`max_wait_ms` of a fetch that leaves out a partition because its buffer is full."""


def isolation_level(config: ConsumerConfig) -> IsolationLevel:
    """Return the isolation level as the protocol has it."""
    return IsolationLevel[config.isolation_level.upper()]


def decode_options(config: ConsumerConfig, max_inline_bytes: int) -> DecodeOptions:
    """Return the options with which the records of all responses are decoded."""
    return DecodeOptions(
        config.check_crcs,
        isolation_level(config),
        config.max_decompressed_bytes,
        max_inline_bytes,
    )


def fetch_request(
    session_request: SessionRequest,
    config: ConsumerConfig,
    isolation: IsolationLevel,
    version: int,
    *,
    short_wait: bool = False,
) -> FetchRequest:
    """Build the Fetch request of a session. Topics have their names and, if known, ids."""
    topics: dict[str, FetchTopic] = {}
    for part in session_request.parts:
        topic, number = part.partition.tp
        entry = topics.get(topic)
        if entry is None:
            topic_id = session_request.ids.get(topic, ZERO_UUID)
            entry = topics[topic] = FetchTopic(topic=topic, topic_id=topic_id, partitions=[])
        entry.partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=part.leader_epoch,
                fetch_offset=part.offset,
                last_fetched_epoch=part.last_fetched_epoch
                if version >= FIRST_WITH_DIVERGING_EPOCH
                else -1,
                partition_max_bytes=part.max_bytes,
            )
        )
    forgotten: dict[tuple[str, UUID], ForgottenTopic] = {}
    for (topic, number), topic_id in session_request.forgotten:
        forgotten_topic = forgotten.setdefault(
            (topic, topic_id), ForgottenTopic(topic=topic, topic_id=topic_id, partitions=[])
        )
        forgotten_topic.partitions.append(number)
    wait_ms = config.fetch_max_wait_ms
    return FetchRequest(
        max_wait_ms=min(wait_ms, SHORT_FETCH_WAIT_MS) if short_wait else wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        isolation_level=isolation,
        session_id=session_request.session_id,
        session_epoch=session_request.epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
        rack_id=config.client_rack,
    )


def match_response(
    plan: FetchPlan, response: FetchResponse, ids: dict[str, UUID]
) -> Iterator[tuple[PartitionFetch, FetchPartitionData]]:
    """Yield the response of each requested partition, once each."""
    if not response.responses:
        return
    names = {topic_id: name for name, topic_id in ids.items() if topic_id != ZERO_UUID}
    parts = {part.partition.tp: part for part in plan.parts}
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for data in topic.partitions:
            part = parts.pop(TopicPartition(name, data.partition_index), None)
            if part is not None:
                yield part, data
