"""The share sessions of a consumer with all brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.config import ShareConsumerConfig
from aiokafkawire.consumer.fetch_sender import FetchSender
from aiokafkawire.consumer.notifier import Notifier
from aiokafkawire.errors import (
    AcknowledgementFailed,
    KafkaError,
    UnknownServerError,
)
from aiokafkawire.group.topic_id_partition import Partitions, TopicIdPartition
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import Runtime, Supervisor
from aiokafkawire.runtime.durations import Durations
from aiokafkawire.types import NodeId, TopicPartition

from .acknowledgements import GAP, PartitionAcknowledgements, lock_ended_error
from .corrupt_batches import CorruptBatches
from .counters import ShareCounters
from .decoding import DecodedRecords
from .delivery import ShareDelivery
from .locks import AcquisitionLock
from .node import ShareNode
from .node_rotation import NodeRotation
from .record import HeldRecords
from .records import ShareRecords

__all__ = ("AcknowledgementCommitCallback", "ShareSessions")

logger = logging.getLogger("aiokafkawire.share")

AcknowledgementCommitCallback = Callable[
    [TopicPartition, Sequence[int], AcknowledgementFailed | None], object
]
"""Called with the partition, the offsets, and the failure or None."""


class ShareSessions:
    """A share session per broker that leads assigned partitions.

    Args:
        cluster: Knows the leaders.
        runtime: Clock and worker threads.
        supervisor: Runs the tasks of the sessions.
        config: Options of the share consumer.
        delivery: Gets the acquired records.
        notifier: Is notified of records and errors.

    Attributes:
        member_id: Member id in the share group.
        on_acknowledgement: The application's callback.
    """

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        supervisor: Supervisor,
        config: ShareConsumerConfig,
        *,
        delivery: ShareDelivery,
        notifier: Notifier,
    ) -> None:
        self.member_id = ""
        self.on_acknowledgement: AcknowledgementCommitCallback | None = None
        self._cluster = cluster
        self._runtime = runtime
        self._supervisor = supervisor
        self._config = config
        self._delivery = delivery
        self._notifier = notifier
        self._counters = ShareCounters()
        self._sender = FetchSender(
            cluster, runtime, supervisor, config, notifier=notifier, counters=self._counters
        )
        self._assigned: frozenset[TopicIdPartition] = frozenset()
        self._nodes: dict[NodeId, ShareNode] = {}
        self._rotation = NodeRotation()
        self._open_polls = 0
        self._is_closing = False

    # --- partitions ---

    @property
    def assignment(self) -> Partitions:
        """The assigned partitions."""
        return tuple(sorted(self._assigned))

    def replace_assignment(self, partitions: Partitions) -> None:
        """Read exactly these partitions from now on.

        Records of others that are not delivered are released: other members may read them.
        """
        self._assigned = frozenset(partitions)
        self._delivery.release_all_but(self._assigned)
        self.route()

    def route(self) -> None:
        """Give each partition to the session with its leader."""
        by_node: dict[NodeId, set[TopicIdPartition]] = {}
        metadata = self._cluster.metadata
        for partition in self.assignment:
            leader = metadata.leader(partition.topic_partition)
            # A topic that was created again has another id, before the assignment has it. A broker
            # refuses requests with the old id as a whole.
            if leader is not None and metadata.topic_id(partition.topic) == partition.topic_id:
                by_node.setdefault(leader.node, set()).add(partition)
        opens = self._supervisor.is_running and not self._is_closing
        for node_id in by_node:
            if node_id not in self._nodes and opens:
                node = self._nodes[node_id] = ShareNode(
                    node_id,
                    self._cluster,
                    self._runtime,
                    self._supervisor,
                    config=self._config,
                    member_id=self.member_id,
                    sender=self._sender,
                    owner=self,
                )
                self._supervisor.spawn(node.run, name=f"share-session-{node_id}")
        for node_id, node in self._nodes.items():
            node.set_partitions(frozenset(by_node.get(node_id, ())))
        self.update_demand()

    async def close(self, deadline: float) -> None:
        """Send all acknowledgements, and release all other records."""
        self._is_closing = True
        for node in self._nodes.values():
            node.close()
        for node in self._nodes.values():
            await node.wait_closed(deadline)

    # --- records ---

    def poll_started(self) -> None:
        """Note that the application calls for records."""
        self._open_polls += 1

    def poll_finished(self) -> None:
        """Note that a call for records returns."""
        self._open_polls -= 1
        self.update_demand()

    def update_demand(self) -> None:
        """Have the sessions fetch as many records as the application needs."""
        if self._config.share_acquire_mode == "record_limit":
            # One broker at a time, so that no more than the wanted records are acquired.
            wanted = bool(self._open_polls) and not self._delivery.buffered_count
            nodes = [node for node in self._nodes.values() if node.has_partitions]
            chosen = None
            if nodes and wanted:
                chosen = self._rotation.choose(nodes, self._runtime.clock.now())
            for node in self._nodes.values():
                node.set_demand(wants_records=node is chosen)
            return
        # Without a call, records are acquired ahead only while others are buffered: an application
        # that does not call would let their locks expire, and each delivery counts.
        buffered = self._delivery.buffered_count
        wants = 0 < buffered < self._delivery.prefetch_below or (
            self._open_polls > 0 and not buffered
        )
        for node in self._nodes.values():
            node.set_demand(wants_records=wants)

    def acquire_limit(self) -> int:
        """Return how many records a fetch asks for."""
        if self._config.share_acquire_mode == "record_limit":
            return self._config.max_poll_records
        return self._delivery.acquire_limit()

    def accept_processed(self) -> None:
        """Accept the records that the application has processed."""
        self._delivery.accept_processed()

    def on_records(
        self,
        node: ShareNode,
        partition: TopicIdPartition,
        decoded: DecodedRecords,
        lock: AcquisitionLock,
    ) -> None:
        """Buffer records that were acquired; release those of a partition not assigned any more."""
        for records, delivery_count in decoded.records:
            held = HeldRecords(node, partition, lock, delivery_count)
            self._delivery.add(ShareRecords.hold(records, held), held)
        if decoded.error is not None:
            parts = [
                (HeldRecords(node, partition, lock, count), first, last)
                for first, last, count in decoded.unreadable
            ]
            self._delivery.add_corrupt(partition, CorruptBatches(decoded.error, parts))
        if partition not in self._assigned:
            self._delivery.release_all_but(self._assigned)
        self._notifier.notify_all()

    def on_fetched(self, node: ShareNode) -> None:
        """Fetch from the next broker, or not, after a fetch has ended."""
        self._rotation.advance()
        self.update_demand()

    def on_partition_error(self, partition: TopicIdPartition, error: KafkaError) -> None:
        """Refresh the metadata after an error; raise one that does not pass in the next call.

        UNKNOWN_SERVER_ERROR may pass: it is logged, as that of a whole fetch is.
        """
        self._cluster.request_update()
        if isinstance(error, UnknownServerError):
            self._sender.log_server_error(partition, error)
        elif not error.retriable:
            self.raise_in_next_call(error)

    def raise_in_next_call(self, error: KafkaError) -> None:
        """Raise an error in the application's next call."""
        self._delivery.stop()
        self._notifier.raise_in_next_call(error)

    def on_session_lost(self, node: ShareNode) -> None:
        """Deliver no more records of the session, which are not held any more; fetch elsewhere."""
        self._delivery.stop()
        now = self._runtime.clock.now()
        taken_s = min(now - node.fetched_at, self._config.request_timeout_ms / 1_000)
        self._rotation.leave_out(node, now + taken_s)
        self.update_demand()

    def on_acknowledged(
        self, partition: TopicIdPartition, acknowledgements: PartitionAcknowledgements
    ) -> None:
        """Count results, and pass them to the application's callback.

        There are those of the broker, and those of expired locks.
        """
        self._counters.count(acknowledgements)
        if self.on_acknowledgement is None:
            return
        offsets = [
            offset
            for first, last, kind in acknowledgements.types
            if kind != GAP
            for offset in range(first, last + 1)
        ]
        if offsets:
            self._call_back(partition, offsets, acknowledgements.response_error)
        if acknowledgements.expired:
            expired = sorted({offset for offset, _ in acknowledgements.expired})
            self._call_back(partition, expired, lock_ended_error())

    def _call_back(
        self,
        partition: TopicIdPartition,
        offsets: list[int],
        error: AcknowledgementFailed | None,
    ) -> None:
        """Call the application's callback, whose exceptions are logged."""
        assert self.on_acknowledgement is not None
        try:
            self.on_acknowledgement(partition.topic_partition, offsets, error)
        except Exception:
            logger.exception(
                "%s: the acknowledgement callback failed",
                self._supervisor.name,
                extra=log_fields(self._supervisor.fields),
            )

    # --- information ---

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """Duration of a lock, as in the last response of a broker."""
        found = (node.lock_timeout_ms for node in self._nodes.values())
        return next((timeout_ms for timeout_ms in found if timeout_ms is not None), None)

    @property
    def fetch_latency(self) -> Durations:
        """Times from each ShareFetch to its response."""
        return self._counters.fetch_latency

    def metrics(self) -> dict[str, int | float]:
        """Return the counters of fetches and acknowledgements."""
        return {
            "assigned_partitions": len(self._assigned),
            "buffered_records": self._delivery.buffered_count,
            "records_consumed_total": self._delivery.delivered_count,
            **self._counters.fetch_metrics(),
            **self._counters.acknowledgement_metrics(),
        }

    # --- acknowledgements ---

    def unconfirmed(self) -> dict[TopicIdPartition, list[PartitionAcknowledgements]]:
        """Return the acknowledgements without a result, by partition."""
        result: dict[TopicIdPartition, list[PartitionAcknowledgements]] = {}
        for node in self._nodes.values():
            for partition, waiting in node.unconfirmed().items():
                result.setdefault(partition, []).extend(waiting)
        return result

    def fail_unconfirmed(self, reason: str) -> None:
        """Fail the acknowledgements without a result."""
        for node in self._nodes.values():
            node.fail_unconfirmed(reason)

    def abandon(self, reason: str) -> None:
        """Hold no record any more, because nothing is sent any more."""
        self._delivery.stop()
        for node in self._nodes.values():
            node.abandon(reason)

    def flush(self) -> None:
        """Send all acknowledgements as soon as possible."""
        for node in self._nodes.values():
            node.flush()

    def holder_of(
        self, tp: TopicPartition, offset: int
    ) -> tuple[ShareNode, TopicIdPartition] | None:
        """Return the session that holds a record, and its partition; None if there is none."""
        for node in self._nodes.values():
            partition = node.find_held(tp, offset)
            if partition is not None:
                return node, partition
        return None
