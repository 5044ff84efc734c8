"""Log lines about the cluster's metadata: connected, and what changed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TypeVar

from aiokafkawire.cluster.metadata import MetadataSnapshot, NodeInfo
from aiokafkawire.logs import list_names, list_partitions, log_fields
from aiokafkawire.types import NodeId, TopicPartition

__all__ = ("cluster_id_warning", "log_change")

logger = logging.getLogger("aiokafkawire.cluster")

K = TypeVar("K")


def log_change(
    log_prefix: str,
    fields: Mapping[str, object],
    before: MetadataSnapshot,
    after: MetadataSnapshot,
    topics: Collection[str] | None,
) -> None:
    """Log the first snapshot at INFO, and what changes afterwards at DEBUG.

    Args:
        log_prefix: Name of the client.
        fields: Fields of the client.
        before: The snapshot that is replaced.
        after: The new snapshot.
        topics: The topics that may have changed; None for all.
    """
    if not before.nodes:
        _log_connected(log_prefix, fields, after)
    if logger.isEnabledFor(logging.DEBUG):
        changes = _changes(before, after, topics)
        if changes:
            logger.debug(
                "%s: metadata %d: %s",
                log_prefix,
                after.version,
                "; ".join(changes),
                extra=log_fields(fields, cluster_id=after.cluster_id),
            )


def cluster_id_warning(before: MetadataSnapshot, after: MetadataSnapshot) -> tuple[str, ...]:
    """Return a warning if the metadata is of another cluster than before."""
    ids = (before.cluster_id, after.cluster_id)
    if None in ids or before.cluster_id == after.cluster_id:
        return ()
    return (f"the cluster id changed from {ids[0]} to {ids[1]}: brokers are of two clusters",)


def _log_connected(log_prefix: str, fields: Mapping[str, object], after: MetadataSnapshot) -> None:
    controller = "unknown" if after.controller_id < 0 else str(after.controller_id)
    logger.info(
        "%s: connected to cluster %s: %s, controller %s",
        log_prefix,
        after.cluster_id or "without an id",
        _brokers(after.nodes),
        controller,
        extra=log_fields(fields, cluster_id=after.cluster_id),
    )


def _brokers(nodes: Mapping[NodeId, NodeInfo]) -> str:
    names = [f"{node_id} at {nodes[node_id].address}" for node_id in sorted(nodes)]
    return f"{len(nodes)} broker{'' if len(nodes) == 1 else 's'} ({list_names(names)})"


def _changes(
    before: MetadataSnapshot, after: MetadataSnapshot, topics: Collection[str] | None
) -> list[str]:
    changes = _compared("brokers", _addresses(before), _addresses(after))
    if before.controller_id != after.controller_id:
        changes.append(f"controller {before.controller_id} -> {after.controller_id}")
    names = after.topics.keys() | before.topics.keys() if topics is None else topics
    added = [name for name in names if name in after.topics and name not in before.topics]
    removed = [name for name in names if name in before.topics and name not in after.topics]
    changes += [f"topics added: {list_names(added)}"] if added else []
    changes += [f"topics removed: {list_names(removed)}"] if removed else []
    moved = [
        TopicPartition(name, number)
        for name in names
        if name in after.topics and name in before.topics
        for number, known in after.topics[name].partitions.items()
        if before.topics[name].partitions.get(number) != known
    ]
    if moved:
        changes.append(f"leader or replicas of {list_partitions(moved)} changed")
    return changes


def _addresses(snapshot: MetadataSnapshot) -> dict[NodeId, str]:
    return {node_id: str(node.address) for node_id, node in snapshot.nodes.items()}


def _compared(label: str, before: Mapping[K, str], after: Mapping[K, str]) -> list[str]:
    added = [f"{key} at {value}" for key, value in after.items() if before.get(key) != value]
    removed = [f"{key} at {value}" for key, value in before.items() if after.get(key) != value]
    changes = [f"{label} added: {list_names(added)}"] if added else []
    return changes + ([f"{label} removed: {list_names(removed)}"] if removed else [])
