"""Handlers of a worker, and what they get."""

from __future__ import annotations

import contextvars
import dataclasses
import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from aiokafkawire.errors import IllegalState
from aiokafkawire.records import Record, Records
from aiokafkawire.records.kernel import Buffer
from aiokafkawire.serialization import Deserializer
from aiokafkawire.share.record import ShareRecord
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.batch_policy import BatchPolicy
from aiokafkawire.worker.outputs import AttemptOutput
from aiokafkawire.worker.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from aiokafkawire.worker.partition_work import WorkItem

__all__ = ("OrderBy", "RecordHandler", "WorkerRecord", "call_in_context")

OrderBy = Literal["partition", "key"] | None | Callable[[Record], Hashable]
"""Records with the same partition, key or result are processed one after the other."""

HandlerFunction = Callable[[Any], Any]
"""Takes a `WorkerRecord`, or a list of them."""

_KeyT = TypeVar("_KeyT")
_ValueT = TypeVar("_ValueT")


class WorkerRecord(Generic[_KeyT, _ValueT]):
    """A record as a handler gets it.

    Attributes:
        record: The record with the bytes of its key and value.
        key: Decoded key; None if the record has none.
        value: Decoded value; None for a tombstone.
        attempt: Number of this attempt; 1 for the first.
    """

    __slots__ = ("_item", "_output", "attempt", "key", "record", "value")

    # Without `__init__`, which takes half of the time; who creates one sets all attributes.
    _item: WorkItem
    _output: AttemptOutput | None
    record: Record
    key: _KeyT
    value: _ValueT
    attempt: int

    def __repr__(self) -> str:
        return (
            f"WorkerRecord({self.topic}-{self.partition} offset {self.offset}, attempt"
            f" {self.attempt}, key={self.key!r:.80}, value={self.value!r:.80})"
        )

    @property
    def topic(self) -> str:
        """Topic that the record was read from; for a delayed retry, the retry topic."""
        return self.record.topic

    @property
    def partition(self) -> int:
        """Partition that the record was read from."""
        return self.record.partition

    @property
    def offset(self) -> int:
        """Offset in the partition."""
        return self.record.offset

    @property
    def timestamp_ms(self) -> int:
        """Timestamp in milliseconds since 1970; -1 for none."""
        return self.record.timestamp_ms

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """Headers of the record."""
        return self.record.headers

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition that the record was read from."""
        return self.record.topic_partition

    @property
    def is_lost(self) -> bool:
        """True if another member may process the record.

        Its partition was revoked or lost; in a share group, its lock has expired.
        """
        if self._item.partition.is_fenced:
            return True
        return isinstance(self.record, ShareRecord) and self.record.lock_expires_at is None

    def send(  # noqa: PLR0917 - a record's parts in their usual order
        self,
        topic: str,
        value: Buffer | None = None,
        key: Buffer | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, Buffer | None]] | None = None,
    ) -> None:
        """Write a record in the transaction that commits the offset of this one.

        The record is written after the handler has returned; if the handler raises, it is not. Does
        not block, so that handlers in threads may call it too.

        Args:
            topic: Name of the topic.
            value: Value, bytes-like; None is a tombstone.
            key: Key, bytes-like.
            partition: Partition number. By default the key decides, as in `Producer.send`.
            timestamp_ms: Milliseconds since 1970; defaults to the time of the transaction.
            headers: Pairs of name and bytes-like value or None.

        Raises:
            IllegalState: The worker has no `processing_guarantee="exactly_once_v2"`, or the attempt
                has ended.
            RecordTooLarge: The record is larger than `max_request_size_bytes`.
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range, or the name of the topic or of a header is
                invalid.
        """
        if self._output is None:
            raise IllegalState(
                "send() needs Worker(processing_guarantee='exactly_once_v2'); otherwise use a"
                " Producer in the handler"
            )
        self._output.send(self.record, topic, value, key, partition, timestamp_ms, headers)


@dataclass(frozen=True, slots=True, eq=False)
class RecordHandler:
    """A function that processes the records of topics.

    Attributes:
        function: Called with a `WorkerRecord`, or with a list of them if it has a `batch`.
        topics: Topics whose records it processes.
        order_by: Which records are processed one after the other.
        decode_key: Deserializer of keys; None for bytes.
        decode_value: Deserializer of values; None for bytes.
        timeout_s: Limit of one attempt; None for no limit.
        retries: What happens after a failure.
        batch: Limits of a batch; None if the function takes single records.
        is_async: Whether the function is a coroutine function; others run in threads.
        is_plain: Whether it is async, without decoders and without a time limit.
    """

    function: HandlerFunction
    topics: tuple[str, ...]
    order_by: OrderBy
    decode_key: Deserializer | None
    decode_value: Deserializer | None
    timeout_s: float | None
    retries: RetryPolicy
    batch: BatchPolicy | None = None
    is_async: bool = field(init=False)
    is_plain: bool = field(init=False)

    def __post_init__(self) -> None:
        function = self.function
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async `__call__`
        )
        has_extras = (self.decode_key, self.decode_value, self.timeout_s) != (None, None, None)
        object.__setattr__(self, "is_async", is_async)
        object.__setattr__(self, "is_plain", is_async and not has_extras)

    @property
    def name(self) -> str:
        """Name of the function, for logs and topics."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def ordering_key(self, record: Record) -> Hashable:
        """Return what orders the record among those of its partition; None for any order.

        Raises:
            Exception: That of a function `order_by`, or TypeError if its result has no hash.
        """
        if self.order_by == "key":
            return record.key
        if callable(self.order_by):
            key = self.order_by(record)
            hash(key)
            return key
        return True if self.order_by == "partition" else None

    def ordering_keys(self, records: Sequence[Record]) -> Sequence[Hashable]:
        """Return the ordering key of each record, for an `order_by` that calls no function."""
        if self.order_by is None:
            return [None] * len(records)
        if type(records) is Records:
            return records.keys()
        return [record.key for record in records]

    def failing(self, error: BaseException) -> RecordHandler:
        """Return a handler whose only attempt raises an error."""

        async def fail(_: WorkerRecord[Any, Any]) -> None:
            raise error

        return dataclasses.replace(
            self,
            function=fail,
            order_by=None,
            decode_key=None,
            decode_value=None,
            timeout_s=None,
            retries=RetryPolicy(attempts=1),
            batch=None,
        )

    async def decode(
        self, item: WorkItem, record: Record, output: AttemptOutput | None
    ) -> WorkerRecord[Any, Any]:
        """Return what the function gets."""
        key, value = record.key, record.value
        if key is not None and self.decode_key is not None:
            key = await _decoded(self.decode_key(key))
        if value is not None and self.decode_value is not None:
            value = await _decoded(self.decode_value(value))
        made: WorkerRecord[Any, Any] = WorkerRecord()
        made._item, made._output, made.record = item, output, record
        made.key, made.value, made.attempt = key, value, item.failures.total_attempts + 1
        return made


async def _decoded(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def call_in_context(
    context: contextvars.Context, function: Callable[[Any], object], argument: object
) -> tuple[object, BaseException | None]:
    """Call a function in a thread; return its result, or its exception of any kind."""
    try:
        return context.run(function, argument), None
    except BaseException as error:
        return None, error
