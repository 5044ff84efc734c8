"""Log lines about the cluster's metadata: connected, changed, unreachable."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TypeVar

from aiokafkawire.cluster.metadata import MetadataSnapshot, MetadataUpdate, NodeInfo
from aiokafkawire.cluster.refresh_schedule import MissingTopicLog
from aiokafkawire.errors import KafkaError, NoBrokerAvailable
from aiokafkawire.logs import list_names, list_partitions, log_fields
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import error_for

__all__ = ("MetadataLog",)

logger = logging.getLogger("aiokafkawire.cluster")

MAX_REMEMBERED_WARNINGS = 1_000
"""Warnings about metadata that are remembered, so that each is logged once."""

K = TypeVar("K")


class MetadataLog:
    """Log lines of one client about its metadata.

    Args:
        prefix: Name of the client.
        fields: Fields of the client.
    """

    def __init__(self, prefix: str, fields: Mapping[str, object]) -> None:
        self.prefix = prefix
        self.fields = fields
        self._warnings: set[str] = set()
        self._missing_topics = MissingTopicLog()

    def warn(self, before: MetadataSnapshot, update: MetadataUpdate) -> None:
        """Log the warnings of an update. Each refresh repeats them: log each once."""
        for warning in (*update.warnings, *_cluster_id_warning(before, update.snapshot)):
            if warning not in self._warnings:
                if len(self._warnings) >= MAX_REMEMBERED_WARNINGS:
                    self._warnings.clear()
                self._warnings.add(warning)
                logger.warning("%s: metadata: %s", self.prefix, warning, extra=dict(self.fields))

    def changed(self, before: MetadataSnapshot, update: MetadataUpdate) -> None:
        """Log the first snapshot at INFO, and what changes afterwards at DEBUG."""
        after = update.snapshot
        if not before.nodes:
            controller = "unknown" if after.controller_id < 0 else str(after.controller_id)
            logger.info(
                "%s: connected to cluster %s: %s, controller %s",
                self.prefix,
                after.cluster_id or "without an id",
                _brokers(after.nodes),
                controller,
                extra=log_fields(self.fields, cluster_id=after.cluster_id),
            )
        if logger.isEnabledFor(logging.DEBUG):
            changes = _changes(before, after, update.topics)
            if changes:
                logger.debug(
                    "%s: metadata %d: %s",
                    self.prefix,
                    after.version,
                    "; ".join(changes),
                    extra=log_fields(self.fields, cluster_id=after.cluster_id),
                )

    def start_failed(self, error: KafkaError) -> None:
        """Log that no bootstrap address responds to a client that starts."""
        logger.warning(
            "%s: %s; retrying",
            self.prefix,
            error.reason,
            extra=log_fields(self.fields, error=error),
        )

    def unreachable(self, error: KafkaError) -> None:
        """Log that no broker can be reached."""
        reasons = error.reasons if isinstance(error, NoBrokerAvailable) else ()
        logger.warning(
            "%s: no broker can be reached: %s; retrying",
            self.prefix,
            "; ".join(reasons) or error,
            extra=log_fields(self.fields, error=error),
        )

    def reachable(self, outage_s: float) -> None:
        """Log the end of an outage."""
        logger.info(
            "%s: brokers can be reached again after %.3f s",
            self.prefix,
            outage_s,
            extra=log_fields(self.fields, outage_ms=round(outage_s * 1_000)),
        )

    def missing_topics(self, codes: Mapping[str, int], now: float) -> None:
        """Log topics in use that are missing for a while: their names may be wrong.

        Args:
            codes: Error codes of topics in use.
            now: Current time.
        """
        reasons = {name: error_for(code) for name, code in codes.items()}
        missing = [name for name, reason in reasons.items() if reason.retriable]
        for name in self._missing_topics.names_to_log(missing, now):
            logger.warning(
                "%s: topic %r does not exist or is not available: %s; retrying",
                self.prefix,
                name,
                reasons[name].reason,
                extra=log_fields(self.fields, error=reasons[name], topic=name),
            )


def _cluster_id_warning(before: MetadataSnapshot, after: MetadataSnapshot) -> tuple[str, ...]:
    """Return a warning if the metadata is of another cluster than before."""
    ids = (before.cluster_id, after.cluster_id)
    if None in ids or before.cluster_id == after.cluster_id:
        return ()
    return (
        f"the cluster id changed from {ids[0]} to {ids[1]}: either a new cluster replaced the old"
        " one, as when brokers start without their data, or addresses lead to two clusters; check"
        " the brokers' data, bootstrap_servers and advertised.listeners",
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
