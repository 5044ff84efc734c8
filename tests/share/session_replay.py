"""Replays share sessions that other members had with Kafka 4.3.0 to this package's session.

The recording has the requests and responses of each member. The session gets the responses and the
calls of the application, and its requests are compared in all fields with those of the recording.
`ALLOWED` are the differences that are intended, and `LEFT_OUT` the requests that this package does
not make.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.abc

from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.hooks import NO_HOOKS
from aiokafkawire.runtime import RealRuntime
from aiokafkawire.share import session_states as states
from aiokafkawire.share.acknowledgements import GAP, AcknowledgeType
from aiokafkawire.share.locks import AcquisitionLock
from aiokafkawire.share.node import HOLDING_WAIT_MS, ShareNode
from aiokafkawire.share.session_events import AcquiredOffsets, FetchedPartition
from aiokafkawire.types import NodeId
from aiokafkawire.wire import Request
from aiokafkawire.wire.json_converter import from_json, to_json
from aiokafkawire.wire.messages.share_acknowledge import ShareAcknowledgeResponse
from aiokafkawire.wire.messages.share_fetch import ShareFetchResponse
from aiokafkawire.wire.primitives import uuid_from_text

__all__ = ("ALLOWED", "LEFT_OUT", "Exchange", "ReplayedSession")

FETCH, ACKNOWLEDGE = "ShareFetch", "ShareAcknowledge"

ALLOWED: Mapping[str, str] = {
    "order": "partitions are in the order of their numbers; others use that of a hash table",
    "ranges": "consecutive offsets are one batch; librdkafka sends a batch for each offset",
    "gaps": "offsets without a record, such as control records, are acknowledged with others",
    "batch size": "batchSize is maxRecords, as in Java",
    "wait": "while records are held, a fetch waits shortly: acknowledgements wait behind it",
}
"""Intended differences by name, with the reason."""

LEFT_OUT: Mapping[str, str] = {
    "epoch": "an epoch that is not the next one of the session",
    "replaced": "a new session in place of one that is open",
    "opening": "a first request with another epoch, with acknowledgements, or after an error for a"
    " whole request, which ends the session of this package",
    "not held": "acknowledgements of records that the member does not hold, or of wrong ranges",
    "renewal": "a renewal in a ShareFetch, without isRenewAck, or together with decisions",
    "in flight": "a request while another one is in flight",
    "final fetch": "a ShareFetch that closes the session; this package sends ShareAcknowledge",
    "forgotten": "a ShareFetch with acknowledgements for a partition that is not read any more: it"
    " would be acquired again; this package sends ShareAcknowledge",
    "empty": "a ShareAcknowledge without acknowledgements, or a ShareFetch that only forgets the"
    " last partition while records are held",
    "backoff": "a ShareFetch soon after an error of the only partition",
}
"""Kinds of requests that this package does not make."""

NODE = NodeId(1)
TYPES = frozenset({GAP, *AcknowledgeType})


@dataclass(slots=True)
class Exchange:
    """A recorded request and its response, in Kafka's JSON form, at their times in seconds."""

    api: str
    version: int
    request: Mapping[str, Any]
    sent_at: float
    is_alone: bool
    """No other request of the session is in flight."""
    response: Mapping[str, Any] = field(default_factory=dict)
    answered_at: float = 0.0

    def acknowledgements(self) -> Iterator[tuple[TopicIdPartition, Mapping[str, Any]]]:
        """Return the batches of acknowledged offsets, by partition."""
        for partition, found in self.partitions():
            for batch in found["acknowledgementBatches"]:
                yield partition, batch

    def partitions(self) -> Iterator[tuple[TopicIdPartition, Mapping[str, Any]]]:
        for topic in self.request["topics"]:
            for found in topic["partitions"]:
                yield partition_of(topic["topicId"], found["partitionIndex"]), found

    def results(self) -> Iterator[tuple[TopicIdPartition, Mapping[str, Any]]]:
        for topic in self.response["responses"]:
            for found in topic["partitions"]:
                yield partition_of(topic["topicId"], found["partitionIndex"]), found

    def forgotten(self) -> set[TopicIdPartition]:
        return {
            partition_of(topic["topicId"], number)
            for topic in self.request.get("forgottenTopicsData", ())
            for number in topic["partitions"]
        }


def partition_of(topic_id: str, number: int) -> TopicIdPartition:
    return TopicIdPartition(uuid_from_text(topic_id), topic_id, number)


@dataclass(slots=True)
class SentRequest:
    message: Request[Any]
    response: Any = None
    answered: anyio.Event = field(default_factory=anyio.Event)


class RecordedBroker:
    """The parts of a client below the session: they keep its request until it is answered."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self.now = 0.0
        self.sent: SentRequest | None = None
        self.is_running, self.hooks = True, NO_HOOKS
        self.max_records = 0
        self.clock = SimpleNamespace(now=lambda: self.now)
        self.offload = RealRuntime().offload

    # --- the client ---

    def start(self, send: Callable[[], Awaitable[None]] | None) -> None:
        if send is not None:
            self._tasks.start_soon(send)

    async def send(self, node: NodeId, message: Request[Any], *, min_version: int) -> Any:
        assert self.sent is None, "two requests are in flight"
        sent = self.sent = SentRequest(message)
        await sent.answered.wait()
        return sent.response

    def back_off(self, node: NodeId, error: Exception) -> float:
        return self.now

    def broker_client(self, node: NodeId) -> Any:
        return SimpleNamespace(api_versions=None)

    def update_leader(self, *leader: object) -> None: ...

    def replace_connection(self, node: NodeId, kind: object) -> None: ...

    # --- the owner of the session ---

    def on_records(self, *records: object) -> None: ...

    on_fetched = on_acknowledged = on_partition_error = on_session_lost = on_records
    accept_processed = on_records

    def acquire_limit(self) -> int:
        return self.max_records

    # --- the recording ---

    async def answer(self, response: Any) -> None:
        sent, self.sent = self.sent, None
        assert sent is not None
        sent.response = response
        sent.answered.set()
        await anyio.wait_all_tasks_blocked()


class ReplayedSession:
    """The session of one recorded member at one broker."""

    def __init__(self, tasks: anyio.abc.TaskGroup, member_id: str) -> None:
        self.equal: Counter[str] = Counter()
        self.allowed: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.intended = 0
        self.differences: list[str] = []
        self._member_id = member_id
        self._broker = RecordedBroker(tasks)
        self._options = SimpleNamespace(check_crcs=True, max_decompressed_bytes=2**20)
        self._node = self._open()

    def _open(self) -> ShareNode:
        broker: Any = self._broker
        options: Any = self._options
        parts = {"config": options, "sender": broker, "owner": broker}
        return ShareNode(NODE, broker, broker, broker, member_id=self._member_id, **parts)

    @property
    def _context(self) -> Any:
        return self._node._session.context

    async def replay(self, exchange: Exchange) -> None:
        """Make the request of the recording, and pass its response."""
        if self._node._session.is_closed:
            self._node = self._open()
        self._broker.now = exchange.sent_at
        reason = self._why_left_out(exchange)
        if reason is not None:
            self.left_out[reason] += 1
            self._follow(exchange)
            return
        self._act(exchange)
        self._start()
        await anyio.wait_all_tasks_blocked()
        sent = self._broker.sent
        if sent is None:
            self.differences.append(f"{exchange.sent_at}: not sent: {exchange.request}")
            self._follow(exchange)
            return
        self._compare(exchange, to_json(sent.message, exchange.version))
        self._broker.now = exchange.answered_at
        kind: Any = ShareFetchResponse if exchange.api == FETCH else ShareAcknowledgeResponse
        await self._broker.answer(from_json(kind, exchange.version, exchange.response))
        self._start()

    def _start(self) -> None:
        """Send the next request, as `ShareNode.run` does."""
        send, self._node._request = self._node._request, None
        self._broker.start(send)

    # --- the application ---

    def _act(self, exchange: Exchange) -> None:
        """Make the calls that the request shows."""
        request = exchange.request
        self._options.group_id = request["groupId"]
        wanted = set(self._context.partitions) - exchange.forgotten()
        if exchange.api == FETCH:
            self._options.fetch_max_wait_ms = request["maxWaitMs"]
            self._options.fetch_min_bytes = request["minBytes"]
            self._options.fetch_max_bytes = request["maxBytes"]
            self._broker.max_records = request["maxRecords"]
            limited = bool(request.get("shareAcquireMode"))
            self._options.share_acquire_mode = "record_limit" if limited else "batch_optimized"
            wanted.update(partition for partition, _ in exchange.partitions())
        self._node.set_partitions(frozenset(wanted))
        for partition, batch in exchange.acknowledgements():
            first, types = batch["firstOffset"], expanded(batch)
            for offset, kind in enumerate(types, first):
                self._node.acknowledge(partition, (offset,), kind, None)
        if exchange.api == FETCH:
            self._node.set_demand(wants_records=True)
            self._node.set_demand(wants_records=False)
        elif request["shareSessionEpoch"] == states.FINAL_EPOCH:
            self._node.close()
        else:
            self._node.flush()

    # --- requests that this package does not make ---

    def _why_left_out(self, exchange: Exchange) -> str | None:
        """Return the kind in `LEFT_OUT`, or None."""
        request, state = exchange.request, self._node._session.state
        epoch, has_acknowledgements = request["shareSessionEpoch"], any(exchange.acknowledgements())
        if not exchange.is_alone:
            return "in flight"
        if not isinstance(state, states.SessionIdle):
            if exchange.api != FETCH or epoch != states.OPENING_EPOCH or has_acknowledgements:
                return "opening"
            wanted = {partition for partition, _ in exchange.partitions()}
            return "backoff" if wanted <= self._context.backing_off.keys() else None
        if epoch == states.OPENING_EPOCH:
            return "replaced"
        if epoch not in (state.epoch, states.FINAL_EPOCH):
            return "epoch"
        if not self._holds_all(exchange):
            return "not held"
        kinds = {kind for _, batch in exchange.acknowledgements() for kind in expanded(batch)}
        if AcknowledgeType.RENEW in kinds and (
            len(kinds) > 1 or exchange.api != ACKNOWLEDGE or not request.get("isRenewAck", False)
        ):
            return "renewal"
        if exchange.api == FETCH:
            if epoch == states.FINAL_EPOCH:
                return "final fetch"
            forgotten = exchange.forgotten()
            if forgotten and forgotten == self._context.partitions and self._context.holds_records:
                return "empty"
            known = self._context.partitions
            if any(partition not in known for partition, _ in exchange.acknowledgements()):
                return "forgotten"
        elif epoch != states.FINAL_EPOCH and not has_acknowledgements:
            return "empty"
        return None

    def _holds_all(self, exchange: Exchange) -> bool:
        acknowledged: dict[TopicIdPartition, int] = defaultdict(lambda: -1)
        for partition, batch in exchange.acknowledgements():
            first, last, types = (
                batch["firstOffset"],
                batch["lastOffset"],
                batch["acknowledgeTypes"],
            )
            if not acknowledged[partition] < first <= last or not TYPES.issuperset(types):
                return False
            if len(types) not in (1, last - first + 1):
                return False
            acknowledged[partition] = last
            for offset in range(first, last + 1):
                if not self._node.is_held(partition, offset, None):
                    return False
        return True

    def _follow(self, exchange: Exchange) -> None:
        """Continue with the session and the locks that the broker has after the request."""
        session, epoch = self._node._session, exchange.request["shareSessionEpoch"]
        if exchange.response["errorCode"]:
            session.state = states.NoSession()
            return
        listed = {partition for partition, _ in exchange.partitions()} - exchange.forgotten()
        if epoch == states.FINAL_EPOCH:
            session.context.release_all()
            session.state = states.NoSession()
            return
        if exchange.api == FETCH:
            before = self._context.partitions - exchange.forgotten()
            listed |= before if epoch != states.OPENING_EPOCH else set()
            self._context.partitions = frozenset(listed)
        session.state = states.SessionIdle(
            states.next_epoch(epoch) if epoch else 1, self._context.partitions
        )
        self._follow_acknowledgements(exchange)
        timeout_ms = exchange.response.get("acquisitionLockTimeoutMs") or 30_000
        for partition, found in exchange.results():
            lock = AcquisitionLock(exchange.sent_at, timeout_ms / 1000)
            ranges = tuple(
                AcquiredOffsets(each["firstOffset"], each["lastOffset"], each["deliveryCount"])
                for each in found.get("acquiredRecords", ())
            )
            self._context.acquire(FetchedPartition(partition, lock, acquired=ranges))

    def _follow_acknowledgements(self, exchange: Exchange) -> None:
        name = "acknowledgeErrorCode" if exchange.api == FETCH else "errorCode"
        done = {partition for partition, found in exchange.results() if not found[name]}
        for partition, batch in exchange.acknowledgements():
            if partition in done:
                for offset, kind in enumerate(expanded(batch), batch["firstOffset"]):
                    if kind != AcknowledgeType.RENEW:
                        self._context.locks_of(partition).remove(offset, offset)

    # --- the comparison ---

    def _compare(self, exchange: Exchange, ours: Mapping[str, Any]) -> None:
        wanted = exchange.request
        kinds = {
            kind
            for name in wanted.keys() | ours.keys()
            if (kind := _difference(name, ours[name], wanted[name])) is not None
        }
        if None in kinds or "" in kinds:
            self.differences.append(f"{exchange.sent_at}: {kinds} {ours} is not {wanted}")
        elif kinds:
            self.allowed.update(kinds)
            self.intended += 1
        else:
            self.equal[exchange.api] += 1


def expanded(batch: Mapping[str, Any]) -> list[int]:
    """Return the type of each offset."""
    types: list[int] = batch["acknowledgeTypes"]
    count = batch["lastOffset"] - batch["firstOffset"] + 1
    return types * count if len(types) == 1 else types


def _difference(name: str, ours: Any, wanted: Any) -> str | None:
    """Return the kind of a difference in one field: None if there is none, "" if it is a bug."""
    if ours == wanted:
        return None
    if name == "batchSize":
        return "batch size"
    if name == "maxWaitMs":
        return "wait" if ours == min(wanted, HOLDING_WAIT_MS) else ""
    if name == "forgottenTopicsData":
        return ""
    if name != "topics":
        return ""
    mine, theirs = _by_partition(ours), _by_partition(wanted)
    if mine == theirs:
        return "order" if _batches(ours) == _batches(wanted) else "ranges"
    if mine.keys() >= theirs.keys() and all(
        mine[place].items() >= types.items() for place, types in theirs.items()
    ):
        more = {
            kind
            for place, types in mine.items()
            for offset, kind in types.items()
            if offset not in theirs.get(place, {})
        }
        return "gaps" if more <= {GAP} else ""
    return ""


def _by_partition(topics: Any) -> dict[tuple[str, int], dict[int, int]]:
    """Return the type by offset of each partition."""
    found: dict[tuple[str, int], dict[int, int]] = {}
    for topic in topics:
        for partition in topic["partitions"]:
            types = found.setdefault((topic["topicId"], partition["partitionIndex"]), {})
            for batch in partition["acknowledgementBatches"]:
                types.update(enumerate(expanded(batch), batch["firstOffset"]))
    return found


def _batches(topics: Any) -> set[tuple[Any, ...]]:
    return {
        (topic["topicId"], partition["partitionIndex"], batch["firstOffset"], batch["lastOffset"])
        for topic in topics
        for partition in topic["partitions"]
        for batch in partition["acknowledgementBatches"]
    }
