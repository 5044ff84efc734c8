"""Observe an embedded broker during a run: requests, responses, log lines, and the final logs."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from aiokafkawire.broker import Broker, SeenRequest
from aiokafkawire.records import iter_batches
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.consumer_protocol import decode_assignment
from verify.invariants.group_observer import GroupObserver, members_of
from verify.invariants.observed import (
    Assignment,
    CommitRequest,
    Fate,
    GenerationAssigned,
    Log,
    LogRecord,
    Observed,
    PositionLost,
    RejectedRequest,
    ShareAcquired,
    ShareLocksEnded,
)
from verify.invariants.share_observer import ShareObserver

__all__ = ("BrokerObserver", "read_log")

SASL_APIS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)

MAX_LINES = 20_000
"""Log lines kept; older ones are dropped."""

POSITION_GONE = {
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}
"""Error codes that make a reader lose its position, or that mean a recreated topic."""

MISTAKES = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
}
"""Error codes that, without faults, only a faulty request causes."""

PUT_OFF = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""Error codes of a coordinator that cannot store offsets at the moment."""

ABORT, COMMIT = 0, 1
"""Types of control records: bytes 2 and 3 of the key."""


def read_log(broker: Broker, topic: str, partition: int, incarnation: int = 0) -> Log:
    """Return the contents of a partition as its current leader has them."""
    state = broker._running
    found = state.cluster.topics[topic].partitions[partition]
    stored: Any = found.log
    if state.replication is not None:
        replicas = [state.replication.replica(found, node) for node in [found.leader, *found.isr]]
        stored = next((each.log for each in replicas if each is not None), found.log)
    records: list[LogRecord] = []
    open_: dict[int, list[int]] = {}
    misdated: list[int] = []
    for segment in stored._segments:
        if not segment.data.size_bytes:
            continue
        for view in iter_batches(segment.data.read(0, segment.data.size_bytes)):
            if view.is_control:
                _end(view, records, open_)
                continue
            columns = view.columns()
            if view.max_timestamp != max(columns.timestamps):
                misdated.append(view.base_offset)
            for index, offset in enumerate(columns.offsets):
                if offset < stored.start_offset:
                    continue
                fate: Fate = "none"
                if view.is_transactional:
                    fate = "open"
                    open_.setdefault(view.producer_id, []).append(len(records))
                sequence = -1
                if view.base_sequence >= 0:  # offsets may be missing in a compacted log
                    sequence = view.base_sequence + offset - view.base_offset
                records.append(
                    LogRecord(
                        offset,
                        bytes(columns.value(index) or b""),
                        fate,
                        view.producer_id,
                        view.producer_epoch,
                        sequence,
                    )
                )
    return Log(
        topic,
        partition,
        tuple(records),
        stored.start_offset,
        stored.end_offset,
        incarnation,
        tuple(misdated),
    )


def _end(view: Any, records: list[LogRecord], open_: dict[int, list[int]]) -> None:
    """Apply a control record: set the outcome of its producer's open records."""
    key = view.columns().key(0) or b""
    kind = int.from_bytes(key[2:4]) if len(key) >= 4 else -1
    if kind not in {ABORT, COMMIT}:
        return
    fate: Fate = "committed" if kind == COMMIT else "aborted"
    for place in open_.pop(view.producer_id, ()):
        record = records[place]
        records[place] = LogRecord(
            record.offset,
            record.value,
            fate,
            record.producer_id,
            record.epoch,
            record.sequence,
        )


class _LogCapture(logging.Handler):
    """Capture log lines, and separately those of failures that were never reported."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: deque[str] = deque(maxlen=MAX_LINES)
        self.crashes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{record.name}: {record.getMessage()}"
        if record.levelno >= logging.ERROR and record.exc_info and record.exc_info[0]:
            self.crashes.append(f"{line}: {record.exc_info[1]!r}")
        self.lines.append(line)


class BrokerObserver:
    """Observes every answered request, and log lines, until `end`.

    Create it when the broker runs and before there are clients; call `observed` while the broker
    still runs. `topic_gone` keeps the logs of a topic that will be deleted.
    """

    LOGGERS = ("aiokafkawire", "asyncio")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._stop_watching = broker.requests.watch(self._saw)
        self._names: dict[UUID, str] = {}
        self._incarnations: dict[str, int] = {}
        self._kept: list[Log] = []
        self._commits: list[CommitRequest] = []
        self._assignments: list[tuple[SeenRequest, Assignment]] = []
        self._generations: list[GenerationAssigned] = []
        self._positions_lost: list[PositionLost] = []
        self._unreadable: list[str] = []
        self._refusals: list[RejectedRequest] = []
        self._joined: dict[str, SeenRequest] = {}
        self._connections: dict[tuple[int, int], tuple[float, int]] = {}
        self._groups = GroupObserver(broker)
        self._share = ShareObserver(broker)
        self._moments: Counter[tuple[int, float]] = Counter()
        self._lines = _LogCapture()
        for name in self.LOGGERS:
            logging.getLogger(name).addHandler(self._lines)

    def end(self) -> None:
        """Stop observing; the observations are kept."""
        self._stop_watching()
        for name in self.LOGGERS:
            logging.getLogger(name).removeHandler(self._lines)

    @property
    def share_changes(self) -> Sequence[ShareAcquired | ShareLocksEnded]:
        """Acquisitions and stored states of share groups so far, in their order."""
        return self._share.changes

    def topic_gone(self, topic: str) -> None:
        """Keep the logs of a topic that will be deleted, with the number of its incarnation."""
        self._learn_names()
        incarnation = self._incarnations.get(topic, 0)
        for partition in range(self._broker.topics[topic]):
            self._kept.append(read_log(self._broker, topic, partition, incarnation))
        self._incarnations[topic] = incarnation + 1

    def observed(self) -> Observed:
        """Return all observations. The caller adds its own (`left_behind`, `reprs` …)."""
        broker = self._broker
        logs = [
            read_log(broker, topic, partition, self._incarnations.get(topic, 0))
            for topic, count in sorted(broker.topics.items())
            if not topic.startswith("__")
            for partition in range(count)
        ]
        offsets = broker._running.group_coordinator.offsets
        committed = {}
        for group in sorted({commit.group for commit in self._commits}):
            committed[group] = tuple(
                (TopicPartition(*tp), kept.offset)
                for tp, kept in sorted(offsets.committed(group).items())
            )
        return Observed(
            logs=(*self._kept, *logs),
            committed=committed,
            commits=tuple(
                replace(commit, in_backlog=self._moments[commit.node, commit.at] > 1)
                for commit in self._commits
            ),
            assignments=tuple(
                replace(answer, received=self._was_received(seen))
                for seen, answer in self._assignments
            ),
            generations=tuple(self._generations),
            members=tuple(
                (group.group_id, member.client_id)
                for group in broker._running.group_coordinator
                for member in members_of(group).values()
                if getattr(member, "instance_id", None) is None
            ),
            joined=tuple(
                (client_id, seen.answered_at)
                for client_id, seen in self._joined.items()
                if seen.answered_at is not None
            ),
            removed=tuple(self._groups.removed),
            shared=tuple(self._groups.shared),
            positions_lost=tuple(self._positions_lost),
            share_changes=tuple(self._share.changes),
            rejected_requests=tuple(self._refusals),
            unreadable=(*self._unreadable, *broker.requests.unreadable),
            crashes=tuple(self._lines.crashes),
            log_lines=tuple(self._lines.lines),
        )

    # --- requests ---

    def _saw(self, seen: SeenRequest) -> None:
        key = (seen.node_id, seen.connection)
        since, last = self._connections.get(key, (seen.at, -1))
        # A re-authentication overtakes requests that have their ids already (KIP-368).
        in_order = seen.api_key in SASL_APIS or seen.correlation_id > last
        if not in_order:
            self._unreadable.append(
                f"node {seen.node_id}: connection {seen.connection}: {seen.api_key.name} has the"
                f" correlation id {seen.correlation_id} after {last}"
            )
        if seen.api_key not in SASL_APIS:
            self._connections[key] = (since, seen.correlation_id)
        self._moments[seen.node_id, seen.at] += 1
        code = getattr(seen.response, "error_code", 0)
        if code:
            self._refused(seen, code)
        handler = _HANDLERS.get(seen.api_key)
        if handler is not None:
            handler(self, seen, since)
        self._groups.saw(seen)
        self._share.saw(seen)

    def _refused(self, seen: SeenRequest, code: int) -> None:
        if code in MISTAKES and not seen.client_id.startswith("broker-"):
            # A fault may have ended the session of a request that waited.
            now = self._broker._running.clock.now()
            self._refusals.append(RejectedRequest(now, seen.client_id, seen.api_key.name, code))

    def _produce(self, seen: SeenRequest, _since: float) -> None:
        response: Any = seen.response
        for topic in () if response is None else response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    self._refused(seen, partition.error_code)

    def _acknowledge_shares(self, seen: SeenRequest, _since: float) -> None:
        """Observe refused acknowledgements of a member of a share group."""
        response: Any = seen.response
        is_fetch = seen.api_key is ApiKey.SHARE_FETCH
        for topic in () if response is None else response.responses:
            for partition in topic.partitions:
                code = partition.acknowledge_error_code if is_fetch else partition.error_code
                if code:
                    self._refused(seen, code)

    def _name(self, topic_id: UUID, name: str) -> str:
        if name:
            return name
        if topic_id not in self._names:
            self._learn_names()
        return self._names.get(topic_id, str(topic_id))

    def _learn_names(self) -> None:
        topics = self._broker._running.cluster.topics.values()
        self._names |= {topic.topic_id: topic.name for topic in topics}

    def _commit(self, seen: SeenRequest, since: float) -> None:
        message: Any = seen.message
        response: Any = seen.response
        if message.group_id == "":
            return
        offsets = tuple(
            (
                TopicPartition(
                    self._name(topic.topic_id, topic.name),
                    partition.partition_index,
                ),
                partition.committed_offset,
            )
            for topic in message.topics
            for partition in topic.partitions
        )
        codes: tuple[int, ...] = ()
        if response is not None:
            codes = tuple(
                partition.error_code for topic in response.topics for partition in topic.partitions
            )
        errors = codes if response is not None and seen.carried_out else None
        transactional = seen.api_key is ApiKey.TXN_OFFSET_COMMIT
        self._commits.append(
            CommitRequest(
                seen.at,
                seen.client_id,
                message.group_id,
                message.member_id,
                message.generation_id_or_member_epoch,
                offsets,
                errors,
                seen.node_id,
                seen.connection,
                since,
                message.producer_id if transactional else -1,
                bool(codes) and PUT_OFF.issuperset(codes),
                self._broker._running.clock.now(),
            )
        )

    def _join(self, seen: SeenRequest, _since: float) -> None:
        before = self._joined.get(seen.client_id)
        if before is None or before.answered_at is None:
            self._joined[seen.client_id] = seen

    def _sync(self, seen: SeenRequest, _since: float) -> None:
        message: Any = seen.message
        response: Any = seen.response
        cooperative = "cooperative" in (message.protocol_name or "")
        if message.assignments and seen.carried_out:
            self._generations.append(
                GenerationAssigned(
                    seen.at,
                    message.group_id,
                    message.generation_id,
                    tuple(
                        (each.member_id, _partitions(each.assignment))
                        for each in message.assignments
                    ),
                )
            )
        if response is None or response.error_code or not seen.carried_out:
            return
        now = self._broker._running.clock.now()
        answer = Assignment(
            now,
            seen.client_id,
            message.group_id,
            message.member_id,
            message.generation_id,
            _partitions(response.assignment),
            cooperative,
        )
        self._assignments.append((seen, answer))

    def _heartbeat(self, seen: SeenRequest, since: float) -> None:
        """Observe a heartbeat of the consumer protocol."""
        message: Any = seen.message
        response: Any = seen.response
        if response is None or response.error_code or not seen.carried_out:
            return
        self._join(seen, since)
        if response.assignment is None:
            return
        partitions = tuple(
            TopicPartition(self._name(topic.topic_id, ""), number)
            for topic in response.assignment.topic_partitions
            for number in topic.partitions
        )
        now, epoch = self._broker._running.clock.now(), response.member_epoch
        group, member = message.group_id, message.member_id
        answer = Assignment(now, seen.client_id, group, member, epoch, partitions, True)
        self._assignments.append((seen, answer))

    def _was_received(self, seen: SeenRequest) -> bool:
        _, last = self._connections[seen.node_id, seen.connection]
        return seen.answered_at is not None and last > seen.correlation_id

    def _fetch(self, seen: SeenRequest, _since: float) -> None:
        response: Any = seen.response
        if response is None or seen.client_id.startswith("broker-"):
            return
        for topic in response.responses:
            for partition in topic.partitions:
                epoch = partition.diverging_epoch
                diverged = epoch is not None and epoch.end_offset >= 0
                if partition.error_code in POSITION_GONE or diverged:
                    name = self._name(topic.topic_id, topic.topic)
                    code = 1 if diverged else partition.error_code
                    index = partition.partition_index
                    self._positions_lost.append(
                        PositionLost(seen.at, seen.client_id, name, index, code)
                    )


_HANDLERS: dict[ApiKey, Callable[[BrokerObserver, SeenRequest, float], None]] = {
    ApiKey.PRODUCE: BrokerObserver._produce,
    ApiKey.OFFSET_COMMIT: BrokerObserver._commit,
    ApiKey.TXN_OFFSET_COMMIT: BrokerObserver._commit,
    ApiKey.JOIN_GROUP: BrokerObserver._join,
    ApiKey.SYNC_GROUP: BrokerObserver._sync,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: BrokerObserver._heartbeat,
    ApiKey.FETCH: BrokerObserver._fetch,
    ApiKey.SHARE_FETCH: BrokerObserver._acknowledge_shares,
    ApiKey.SHARE_ACKNOWLEDGE: BrokerObserver._acknowledge_shares,
}


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic, number)
        for topic in decode_assignment(assignment).assigned_partitions
        for number in topic.partitions
    )
