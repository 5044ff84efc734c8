"""A producer that records its sends and transactions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafkawire import Producer
from aiokafkawire.errors import (
    DeliveryUnknown,
    ProducerFenced,
    RequestTimedOut,
    TransactionFailed,
)
from aiokafkawire.producer import Delivery, DetachedTransaction
from aiokafkawire.types import RecordMetadata, TopicPartition
from verify.invariants.events import (
    Acknowledged,
    Ending,
    EndTxnRequested,
    Failed,
    Offsets,
    OffsetsSent,
    OutcomeMissing,
    RecordsBuffered,
    Sending,
    TransactionBegan,
    TransactionEnded,
    make_value,
)
from verify.invariants.recorded_client import RecordedClient
from verify.invariants.recorder import MAX_TEXT, Journal, error_name, typed

__all__ = ("RecordedDelivery", "RecordedProducer")

_HANDED = re.compile(r"send_many: (\d+) of \d+ records are in the buffer")

MAX_OPEN = 1_000_000
"""Deliveries that nobody awaited are kept so that their outcomes are recorded after a flush."""


class RecordedDelivery:
    """A `Delivery` that records its outcome when the application receives it."""

    __slots__ = ("_delivery", "_producer", "_send", "_value")

    def __init__(
        self, delivery: Delivery, producer: RecordedProducer, send: int, value: bytes
    ) -> None:
        self._delivery = delivery
        self._producer = producer
        self._send = send
        self._value = value

    @property
    def done(self) -> bool:
        return self._delivery.done

    def result(self) -> RecordMetadata:
        try:
            metadata = self._delivery.result()
        except Exception as error:
            self._producer.failed(self._send, self._value, error)
            raise
        self._producer.acknowledged(self._send, self._value, metadata)
        return metadata

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        since = self._producer.now()
        try:
            metadata = yield from self._delivery.__await__()
        except Exception as error:
            self._producer.failed(self._send, self._value, error, since)
            raise
        self._producer.acknowledged(self._send, self._value, metadata, since)
        return metadata


class RecordedProducer(RecordedClient[Producer]):
    """As `Producer`, with `value()` for unique values."""

    def __init__(self, producer: Producer, journal: Journal) -> None:
        super().__init__(producer, journal)
        self._sends = 0
        self._values = 0
        self._transactions = 0
        self._transaction: int | None = None
        self._open: dict[bytes, RecordedDelivery] = {}

    def value(self, payload: bytes = b"") -> bytes:
        """Return the value of this producer's next record."""
        self._values += 1
        return make_value(self.name, self._values, payload)

    # --- life ---

    @property
    def _start_s(self) -> float:
        config = self.config
        limit = config.default_api_timeout_ms
        if config.transactional_id is not None:
            limit += config.max_block_ms
        return float(limit) / 1_000

    def _left(self, error: str | None, cancelled: bool = False) -> None:
        super()._left(error)
        if error is None or error == "DeliveriesFailed":
            self._journal.closed()
            self.settle()
            for delivery in self._open.values():
                self._journal.note(OutcomeMissing, delivery._send, (delivery._value,))
        self._open.clear()

    # --- sending ---

    async def send(self, topic: str, value: bytes, **named: Any) -> RecordedDelivery:
        send = self._sending(topic, (value,), named.get("partition"))
        try:
            delivery = await self.inner.send(topic, value, **named)
        except BaseException as error:
            # A cancelled `send` has not added its record to the buffer.
            self._journal.note(Failed, send, (value,), *_error_fields(error, written=False))
            raise
        return self._handed(send, value, delivery)

    def send_nowait(self, topic: str, value: bytes, **named: Any) -> RecordedDelivery:
        send = self._sending(topic, (value,), named.get("partition"))
        try:
            delivery = self.inner.send_nowait(topic, value, **named)
        except Exception as error:
            self._journal.note(Failed, send, (value,), *_error_fields(error, written=False))
            raise
        return self._handed(send, value, delivery)

    async def send_and_wait(self, topic: str, value: bytes, **named: Any) -> RecordMetadata:
        limit = (self.config.max_block_ms + self.config.delivery_timeout_ms) / 1_000
        send = self._sending(topic, (value,), named.get("partition"), limit)
        try:
            metadata = await self.inner.send_and_wait(topic, value, **named)
        except BaseException as error:
            written = not isinstance(error, Exception)
            self._journal.note(Failed, send, (value,), *_error_fields(error, written=written))
            raise
        self.acknowledged(send, value, metadata)
        return metadata

    async def send_many(
        self, topic: str, values: Sequence[bytes], **named: Any
    ) -> list[RecordedDelivery]:
        values = tuple(values)
        limit = max(1, len(values)) * self.config.max_block_ms / 1_000
        send = self._sending(topic, values, named.get("partition"), limit)
        try:
            deliveries = await self.inner.send_many(topic, values, **named)
        except BaseException as error:
            self._partly(send, values, error)
            raise
        self._journal.note(RecordsBuffered, send, self.config.delivery_timeout_ms / 1_000)
        self._journal.look()
        recorded = [
            RecordedDelivery(delivery, self, send, value)
            for delivery, value in zip(deliveries, values, strict=True)
        ]
        self._open.update(zip(values, recorded, strict=True))
        return recorded

    def _partly(self, send: int, values: tuple[bytes, ...], error: BaseException) -> None:
        notes = getattr(error, "__notes__", ())
        found = next(filter(None, (_HANDED.match(note) for note in notes)), None)
        count = int(found[1]) if found else 0
        if values[:count]:
            self._journal.note(Failed, send, values[:count], *_error_fields(error, written=True))
        if values[count:]:
            self._journal.note(Failed, send, values[count:], *_error_fields(error, written=False))

    def _sending(
        self,
        topic: str,
        values: tuple[bytes, ...],
        partition: int | None,
        limit_s: float | None = None,
    ) -> int:
        self._sends += 1
        limit = self.config.max_block_ms / 1_000 if limit_s is None else limit_s
        self._journal.note(Sending, self._sends, topic, values, partition, self._transaction, limit)
        return self._sends

    def _handed(self, send: int, value: bytes, delivery: Delivery) -> RecordedDelivery:
        self._journal.note(RecordsBuffered, send, self.config.delivery_timeout_ms / 1_000)
        self._journal.look()
        recorded = RecordedDelivery(delivery, self, send, value)
        if len(self._open) < MAX_OPEN:
            self._open[value] = recorded
        return recorded

    def now(self) -> float:
        return self._journal.now()

    def acknowledged(
        self, send: int, value: bytes, metadata: RecordMetadata, since: float | None = None
    ) -> None:
        """Record the outcome of a record that the application awaited since `since`."""
        self._open.pop(value, None)
        topic, partition = metadata.topic_partition
        record = (metadata.offset, value)
        self._journal.note(Acknowledged, send, topic, partition, (record,), since)

    def failed(
        self, send: int, value: bytes, error: BaseException, since: float | None = None
    ) -> None:
        """Record the outcome of a record, as `acknowledged`."""
        self._open.pop(value, None)
        self._journal.note(Failed, send, (value,), *_error_fields(error, written=False), since)

    def settle(self) -> None:
        """Record the available outcomes of deliveries that were never awaited."""
        for delivery in list(self._open.values()):
            if delivery.done:
                try:
                    delivery.result()
                except Exception:
                    continue

    async def flush(self, timeout_s: float | None = None) -> None:
        limit = self.config.delivery_timeout_ms / 1_000 if timeout_s is None else timeout_s
        try:
            with self._journal.call("flush", limit):
                await self.inner.flush(timeout_s)
        finally:
            self.settle()

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        with self._journal.call("partitions_for", self.config.max_block_ms / 1_000):
            return await self.inner.partitions_for(topic)

    def metrics(self) -> dict[str, int | float]:
        return self.inner.metrics()

    # --- transactions ---

    @property
    def _block_s(self) -> float:
        return self.config.max_block_ms / 1_000

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """As `Producer.transaction`. The outcome follows from the exception, if any."""
        scope = self.inner.transaction()
        with self._journal.call("begin_transaction", self._block_s):
            await scope.__aenter__()
        number = self._began()
        try:
            yield
        except BaseException as raised:
            self._journal.note(EndTxnRequested, number, False)
            try:
                with self._journal.call("abort_transaction", self._block_s):
                    await scope.__aexit__(type(raised), raised, raised.__traceback__)
            finally:
                self._ended(number, "aborted")
            raise
        self._journal.note(EndTxnRequested, number, True)
        outcome: Ending = "unknown"
        try:
            with self._journal.call("commit_transaction", 2 * self._block_s):
                await scope.__aexit__(None, None, None)
            outcome = "committed"
        except Exception as error:
            outcome = _ending_of(error)
            raise
        finally:
            self._ended(number, outcome)

    async def begin_transaction(self) -> None:
        with self._journal.call("begin_transaction", self._block_s):
            await self.inner.begin_transaction()
        self._began()

    async def commit_transaction(self) -> None:
        """As in the producer. Another call may report an outcome that is unknown now."""
        number = self._transaction
        if number is not None:
            self._journal.note(EndTxnRequested, number, True)
        outcome: Ending | None = "unknown"
        try:
            with self._journal.call("commit_transaction", self._block_s):
                await self.inner.commit_transaction()
            outcome = "committed"
        except Exception as error:
            # A transaction that failed before EndTxn is aborted by another call.
            outcome = None if isinstance(error, TransactionFailed) else _ending_of(error)
            raise
        finally:
            if number is not None and outcome is not None:
                self._ended(number, outcome)

    async def abort_transaction(self) -> None:
        number = self._transaction
        if number is not None:
            self._journal.note(EndTxnRequested, number, False)
        try:
            with self._journal.call("abort_transaction", self._block_s):
                await self.inner.abort_transaction()
        finally:
            if number is not None:
                self._ended(number, "aborted")

    async def send_offsets_to_transaction(self, source: Any, group_metadata: Any = None) -> None:
        number = self._transaction
        if isinstance(source, Mapping):
            offsets, group = source, group_metadata.group_id
            given: tuple[Any, ...] = (source, group_metadata)
        else:
            offsets, group = source.positions(), source.config.group_id
            given = (source,)
        if number is not None:
            self._journal.note(OffsetsSent, number, group, plain_offsets(offsets))
        with self._journal.call("send_offsets_to_transaction", self._block_s):
            await self.inner.send_offsets_to_transaction(*given)

    async def detach_transaction(self) -> DetachedTransaction:
        """As in the producer; `Recorder.end_detached_transaction` ends it."""
        number = self._transaction
        limit = (self.config.max_block_ms + self.config.delivery_timeout_ms) / 1_000
        with self._journal.call("detach_transaction", limit):
            detached = await self.inner.detach_transaction()
        if number is not None:
            self._journal.recorder.detached(detached, self._journal, number)
            self._transaction = None
        return detached

    def _began(self) -> int:
        self._transactions += 1
        self._transaction = self._transactions
        self._journal.note(TransactionBegan, self._transactions)
        return self._transactions

    def _ended(self, number: int, outcome: Ending) -> None:
        if self._transaction == number and outcome != "unknown":
            self._transaction = None
        self._journal.note(TransactionEnded, number, outcome)
        self.settle()


def plain_offsets(offsets: Mapping[TopicPartition, Any]) -> Offsets:
    """Return offsets in the form of events."""
    return tuple(
        (TopicPartition(*tp), offset if isinstance(offset, int) else offset.offset)
        for tp, offset in offsets.items()
    )


def _error_fields(error: BaseException, *, written: bool) -> tuple[str, bool, bool, str]:
    """Return the fields of an event for an error: its class, whether the log may hold the records,
    …"""
    unknown = written or isinstance(error, DeliveryUnknown)
    text = str(error)[:MAX_TEXT] if isinstance(error, Exception) else ""
    return error_name(error), unknown, typed(error), text


def _ending_of(error: Exception) -> Ending:
    """Return how a transaction ended whose commit raised this."""
    text = str(error)
    if "committed or not" in text or "not known" in text or isinstance(error, RequestTimedOut):
        return "unknown"
    if isinstance(error, ProducerFenced):
        return "unknown" if "commit was under way" in text else "fenced"
    if isinstance(error, TransactionFailed):
        return "aborted"
    return "unknown"
