"""kcat's output formats: records and metadata as JSON (`-J`), metadata as text (`-L`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aiokafkawire.cli.formats import RecordFormatter
from aiokafkawire.cli.tables import json_line
from aiokafkawire.cluster import MetadataSnapshot, PartitionMetadata, TopicMetadata
from aiokafkawire.records import Record
from aiokafkawire.types import NodeId, TimestampType, TopicPartition

__all__ = ("json_formatter", "metadata_text", "metadata_to_dict")

TIMESTAMP_TYPES = {TimestampType.CREATE_TIME: "create", TimestampType.LOG_APPEND_TIME: "logappend"}
NO_LEADER = "Broker: Leader not available"
"""librdkafka's text for LEADER_NOT_AVAILABLE."""


def json_formatter(broker_of: Callable[[TopicPartition], NodeId]) -> RecordFormatter:
    """Return a formatter that prints a record as one line of JSON, as `kcat -C -J` does.

    Args:
        broker_of: Returns the broker that a partition is fetched from.
    """

    def format_record(record: Record) -> bytes:
        form: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
        }
        kind = TIMESTAMP_TYPES.get(TimestampType(record.timestamp_type))
        if kind is not None:
            form |= {"tstype": kind, "ts": record.timestamp_ms}
        form["broker"] = broker_of(TopicPartition(record.topic, record.partition))
        if record.headers:
            # Names and values alternate, because a name may repeat.
            form["headers"] = [
                part for name, value in record.headers for part in (name, _text(value))
            ]
        form |= {"key": _text(record.key), "payload": _text(record.value)}
        return json_line(form).encode()

    return format_record


def _text(data: bytes | None) -> str | None:
    # kcat writes bytes that are not UTF-8 unchanged, which is invalid JSON.
    return None if data is None else data.decode("utf-8", "replace")


def metadata_to_dict(
    metadata: MetadataSnapshot, source: str | None, topics: Sequence[TopicMetadata], query: str
) -> dict[str, Any]:
    """Return the metadata of a cluster as in `kcat -L -J`.

    Args:
        metadata: Metadata of the cluster.
        source: Address of the broker that sent the metadata.
        topics: Topics to show.
        query: Requested topic, or `*`.
    """
    node_id, name = _origin(metadata, source)
    return {
        "originating_broker": {"id": node_id, "name": name},
        "query": {"topic": query},
        "controllerid": metadata.controller_id,
        "brokers": [
            {"id": node.node_id, "name": str(node.address)} for _, node in _nodes(metadata)
        ],
        "topics": [
            {
                "topic": topic.name,
                "partitions": [_partition_form(each) for each in _partitions(topic)],
            }
            for topic in topics
        ],
    }


def metadata_text(
    metadata: MetadataSnapshot, source: str | None, topics: Sequence[TopicMetadata], query: str
) -> str:
    """Return the metadata of a cluster as `kcat -L` prints it; see `metadata_form`."""
    node_id, name = _origin(metadata, source)
    what = "all topics" if query == "*" else query
    lines = [f"Metadata for {what} (from broker {node_id}: {name}):"]
    lines.append(f" {len(metadata.nodes)} brokers:")
    for number, node in _nodes(metadata):
        role = " (controller)" if number == metadata.controller_id else ""
        lines.append(f"  broker {number} at {node.address}{role}")
    lines.append(f" {len(topics)} topics:")
    for topic in topics:
        lines.append(f'  topic "{topic.name}" with {len(topic.partitions)} partitions:')
        for each in _partitions(topic):
            replicas, isrs = (",".join(map(str, ids)) for ids in (each.replicas, each.isr))
            error = f", {NO_LEADER}" if each.leader_id < 0 else ""
            lines.append(
                f"    partition {each.partition}, leader {each.leader_id},"
                f" replicas: {replicas}, isrs: {isrs}{error}"
            )
    return "".join(f"{line}\n" for line in lines)


def _origin(metadata: MetadataSnapshot, source: str | None) -> tuple[NodeId, str]:
    """Return id and name of the broker that sent the metadata, as in librdkafka."""
    for number, node in _nodes(metadata):
        if source in {str(node.address), f"{number} at {node.address}"}:
            return number, f"{node.address}/{number}"
    return -1, f"{source}/bootstrap"


def _nodes(metadata: MetadataSnapshot) -> list[tuple[NodeId, Any]]:
    return sorted(metadata.nodes.items())


def _partitions(topic: TopicMetadata) -> list[PartitionMetadata]:
    return [each for _, each in sorted(topic.partitions.items())]


def _partition_form(each: PartitionMetadata) -> dict[str, Any]:
    error = {"error": NO_LEADER} if each.leader_id < 0 else {}
    return {
        "partition": each.partition,
        **error,
        "leader": each.leader_id,
        "replicas": [{"id": node_id} for node_id in each.replicas],
        "isrs": [{"id": node_id} for node_id in each.isr],
    }
