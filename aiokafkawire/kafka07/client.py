"""Client of a Kafka 0.7 broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar, Unpack

from aiokafkawire.config import parse_address
from aiokafkawire.errors import (
    ConnectionLost,
    InvalidOption,
    KafkaError,
    MalformedMessage,
    ProtocolError,
    RecordTooLarge,
)
from aiokafkawire.kafka07.message_stream import MessageStream
from aiokafkawire.kafka07.options import Kafka07Config, Kafka07Options, make_config
from aiokafkawire.kafka07.partition_reader import FetchResult, PartitionReader, broker_error
from aiokafkawire.kafka07.session import Kafka07Session
from aiokafkawire.logs import log_fields
from aiokafkawire.records.compression import Compression, compress
from aiokafkawire.runtime import NEVER, Address, BaseClient, Runtime, Supervisor
from aiokafkawire.wire import kafka07
from aiokafkawire.wire.kafka07 import EARLIEST, LATEST
from aiokafkawire.wire.primitives import check_string

__all__ = ("ANY_PARTITION", "Client")

ANY_PARTITION = -1
"""Partition of a produce request for which the broker chooses a random partition."""

CODEC_IDS = {"none": 0, "gzip": int(Compression.GZIP), "snappy": int(Compression.SNAPPY)}

CompressionName = Literal["none", "gzip", "snappy"]

T = TypeVar("T")


class Client(BaseClient[Kafka07Session]):
    """Client of one Kafka 0.7 broker, on one connection.

    Several tasks may call it; their calls run one after another. A call makes one attempt within
    `request_timeout_ms` and connects first if there is no connection. A cancelled or timed-out call
    closes the connection, and the next call opens a new one.

    Every call may raise `ConnectionFailed`, `ConnectionLost` and `RequestTimedOut`, which are worth
    a retry; `ProtocolError` for a malformed response; and `ValueError` or `TypeError` for arguments
    that do not fit into a request.

    Kafka 0.7 has no response to PRODUCE. `produce` returns once the request is written to the
    connection. The broker handles requests in order and closes the connection on a request that it
    rejects, so a response to a later request confirms all produce requests before it. `flush` and
    `stop` request such a response. If the connection is lost before, the messages may or may not be
    in the log: the next call raises `ConnectionLost` once, with the number of produce calls
    concerned. The broker silently drops a message that exceeds its `max.message.size`.
    """

    def __init__(self, server: str, **options: Unpack[Kafka07Options]) -> None:
        """Validate the options. `start` or `async with` connects.

        Args:
            server: Address of the broker, "host:port".
            **options: See `Kafka07Config`.

        Raises:
            InvalidOption: An option is unknown or out of range.
        """
        self.config: Kafka07Config = make_config(server, options)
        self._address = Address(*parse_address(self.config.server))
        self._name = str(self._address)
        super().__init__(
            "client",
            f"kafka07.Client server={self._name!r}",
            fields=log_fields(broker=self._name),
        )

    # --- start and stop ----------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the broker, as entering `async with` does.

        Raises:
            ConnectionFailed: The connection could not be opened.
        """
        await super().start()

    async def stop(self) -> None:
        """Flush for at most `close_timeout_ms` and close the connection.

        Returns at once if no produce request is unconfirmed. Calling it again does nothing.

        Raises:
            ConnectionLost: The connection was lost before the broker confirmed all produce
                requests.
            RequestTimedOut: The broker did not confirm them in time.
        """
        await super().stop()

    async def _start(self, runtime: Runtime, supervisor: Supervisor) -> Kafka07Session:
        session = Kafka07Session(self.config, self._address, runtime, supervisor)
        await session.connect()
        return session

    async def _close(self, body_error: BaseException | None) -> Exception | None:
        self._lifecycle.check_loop()
        session = self._lifecycle.session
        unreported = self._lifecycle.take_unreported_failure()
        deadline = NEVER
        if session is not None:
            deadline = session.runtime.clock.now() + self.config.close_timeout_ms / 1_000
        failures: list[KafkaError] = []

        async def flush_session(session: Kafka07Session) -> None:
            try:
                await session.flush(session.deadline())
            except KafkaError as error:
                failures.append(error)

        await self._lifecycle.stop(flush_session, deadline)
        try:
            if session is not None:
                session.raise_if_produces_lost()
        except ConnectionLost as error:
            failures.append(error)
        return next(iter([*failures, *([unreported] if unreported else [])]), None)

    # --- writing -----------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        payloads: Sequence[bytes],
        partition: int = ANY_PARTITION,
        *,
        compression_type: CompressionName | None = None,
    ) -> None:
        """Append messages to a partition as one message set: all of them or none.

        Returns once the request is written, without any confirmation; see the class.

        Args:
            topic: Topic to write to; created by the broker if it does not exist.
            payloads: The messages.
            partition: Partition number. Default: the broker chooses one at random.
            compression_type: Codec of this call, instead of the option `compression_type`. The
                messages become one compressed message, which the broker's `max.message.size`
                limits.

        Raises:
            RecordTooLarge: A message exceeds `max_message_size_bytes`. Nothing was sent.
        """
        request = self._build_produce_request(topic, partition, payloads, compression_type)
        session = self._lifecycle.require_session_in_loop()
        await session.send(request, "PRODUCE", topic, session.deadline())

    async def multi_produce(
        self,
        sets: Iterable[tuple[str, int, Sequence[bytes]]],
        *,
        compression_type: CompressionName | None = None,
    ) -> None:
        """Append several message sets in one MULTIPRODUCE request.

        The broker appends the sets in order. At a set that it rejects it closes the connection; the
        sets before it stay in the log.

        Args:
            sets: Tuples of topic, partition and payloads, as for `produce`.
            compression_type: As for `produce`.
        """
        requests = tuple(
            self._build_produce_request(topic, partition, payloads, compression_type)
            for topic, partition, payloads in sets
        )
        if requests:
            request = kafka07.Kafka07MultiProducerRequest(requests=requests)
            session = self._lifecycle.require_session_in_loop()
            await session.send(request, "MULTIPRODUCE", requests[-1].topic, session.deadline())

    async def flush(self) -> None:
        """Wait until the broker confirms all earlier produce requests.

        Sends an OFFSETS request, unless a response was received since the last produce request.

        Raises:
            ConnectionLost: The connection was lost before; messages may or may not be in the log.
            RequestTimedOut: No response within `request_timeout_ms`.
        """
        session = self._lifecycle.require_session_in_loop()
        await session.flush(session.deadline())

    # --- reading -----------------------------------------------------------------------------

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_size: int | None = None
    ) -> FetchResult:
        """Fetch messages of one partition, starting at a byte offset.

        The result is empty at the end of the log and for a topic that does not exist.

        Args:
            topic: Topic to read.
            partition: Partition number.
            offset: Byte offset of the start of a message.
            max_size: Maximum number of bytes. Default: `fetch_size_bytes`.

        Raises:
            BrokerError: `code` is OFFSET_OUT_OF_RANGE or WRONG_PARTITION.
            UnknownServerError: The topic name is invalid, or the broker failed.
        """
        return await self._fetch_once(self._build_fetch_request(topic, partition, offset, max_size))

    async def multi_fetch(
        self, positions: Iterable[tuple[str, int, int]], *, max_size: int | None = None
    ) -> list[FetchResult]:
        """Fetch messages of several partitions in one MULTIFETCH request.

        Args:
            positions: Tuples of topic, partition and byte offset.
            max_size: Maximum number of bytes per partition. Default: `fetch_size_bytes`.

        Returns:
            One result per position, in the same order. The error of a partition is its `error`.
        """
        requests = tuple(self._build_fetch_request(*position, max_size) for position in positions)
        if not requests:
            return []
        request = kafka07.Kafka07MultiFetchRequest(requests=requests)
        responses = await self._request(
            request, "MULTIFETCH", lambda frame: _decode_multi_fetch(frame, len(requests))
        )
        return [
            self._fetch_result(request, response, "MULTIFETCH")
            for request, response in zip(requests, responses, strict=True)
        ]

    def messages(
        self, topic: str, partition: int, offset: int, *, until_end: bool = False
    ) -> MessageStream:
        """Return an async iterator over the messages of a partition.

        At the end of the log it fetches again every `fetch_backoff_ms`. For a message larger than
        `fetch_size_bytes` it increases the fetch size up to `fetch_size_max_bytes`. It retries
        connection errors and timeouts for `default_api_timeout_ms`. After an error, iteration may
        continue from the same position.

        Args:
            topic: Topic to read.
            partition: Partition number.
            offset: Byte offset of the start of a message.
            until_end: Stop at the end of the log instead of waiting for new messages.

        Raises:
            RecordTooLarge: Raised by the iterator: a message exceeds `fetch_size_max_bytes`.
            CorruptRecord: Raised by the iterator: a message is corrupt. `next_offset` is the
                offset after it, or None if unknown.
            BrokerError: Raised by the iterator, as by `fetch`.
        """
        check_string(topic)
        reader = PartitionReader(
            topic,
            partition,
            offset,
            size_bytes=self.config.fetch_size_bytes,
            max_size_bytes=self.config.fetch_size_max_bytes,
        )
        return MessageStream(
            reader, self._fetch_once, self._runtime, self.config, until_end=until_end
        )

    async def offsets(
        self, topic: str, partition: int, time: int = LATEST, max_number: int = 1
    ) -> tuple[int, ...]:
        """Return start offsets of log segments last modified by a given time, newest first.

        Args:
            topic: Topic of the partition.
            partition: Partition number.
            time: Unix time in ms, `LATEST` (the end of the log first) or `EARLIEST` (only the
                start of the log).
            max_number: Maximum number of offsets.

        Returns:
            Byte offsets. Without messages in the partition, the list is [0] for `LATEST` and
            `EARLIEST`, and empty for a time.

        Raises:
            ConnectionLost: Also raised if the topic or the partition does not exist, because the
                broker then closes the connection.
        """
        check_string(topic)
        if max_number < 0:
            raise ValueError(f"max_number must be at least 0, not {max_number}")
        request = kafka07.Kafka07OffsetRequest(
            topic=topic, partition=partition, time=time, max_number=max_number
        )
        response = await self._request(request, "OFFSETS", kafka07.decode_offsets_response)
        if response.error:
            raise broker_error(
                response.error, broker=self._name, api="OFFSETS", topic=topic, partition=partition
            )
        return response.offsets

    async def beginning_offset(self, topic: str, partition: int) -> int:
        """Return the first offset of a partition, in bytes."""
        return await self._get_one_offset(topic, partition, EARLIEST)

    async def end_offset(self, topic: str, partition: int) -> int:
        """Return the end offset of a partition, at which the next message will start, in bytes."""
        return await self._get_one_offset(topic, partition, LATEST)

    # --- requests ----------------------------------------------------------------------------

    def _build_produce_request(
        self,
        topic: str,
        partition: int,
        payloads: Sequence[bytes],
        compression_type: CompressionName | None,
    ) -> kafka07.Kafka07ProducerRequest:
        check_string(topic)
        if isinstance(payloads, bytes | bytearray | memoryview | str):
            kind = type(payloads).__name__
            raise TypeError(f"payloads must be a sequence of bytes objects, not a single {kind}")
        for payload in payloads:
            if not isinstance(payload, bytes):
                raise TypeError(f"a payload must be bytes, not {type(payload).__name__}")
        messages = [kafka07.Kafka07Message(payload=payload) for payload in payloads]
        codec = _codec_id(compression_type or self.config.compression_type)
        if codec and messages:
            compressed = compress(codec, kafka07.encode_messages(messages))
            messages = [kafka07.Kafka07Message(payload=compressed, attributes=codec)]
        limit = self.config.max_message_size_bytes
        for message in messages:
            if len(message.payload) > limit:
                raise RecordTooLarge(
                    f"a message exceeds max_message_size_bytes ({limit}): the broker would drop it",
                    size_bytes=len(message.payload),
                    topic=topic,
                    partition=partition,
                )
        return kafka07.Kafka07ProducerRequest(
            topic=topic, partition=partition, messages=kafka07.encode_messages(messages)
        )

    def _build_fetch_request(
        self, topic: str, partition: int, offset: int, max_size: int | None
    ) -> kafka07.Kafka07FetchRequest:
        check_string(topic)
        size = self.config.fetch_size_bytes if max_size is None else max_size
        if size < 0:
            raise ValueError(f"max_size must be at least 0, not {size}")
        return kafka07.Kafka07FetchRequest(
            topic=topic, partition=partition, offset=offset, max_size=size
        )

    async def _get_one_offset(self, topic: str, partition: int, time: int) -> int:
        offsets = await self.offsets(topic, partition, time)
        if not offsets:
            raise MalformedMessage(
                "the response has no offset",
                message="kafka07 OFFSETS response",
                broker=self._name,
                topic=topic,
                partition=partition,
            )
        return offsets[0]

    async def _fetch_once(self, request: kafka07.Kafka07FetchRequest) -> FetchResult:
        response = await self._request(request, "FETCH", kafka07.decode_fetch_response)
        fetched = self._fetch_result(request, response, "FETCH")
        if fetched.error is not None:
            raise fetched.error
        return fetched

    async def _request(
        self, request: kafka07.Request, api: str, decode: Callable[[memoryview], T]
    ) -> T:
        session = self._lifecycle.require_session_in_loop()
        frame = await session.request(request, api, session.deadline())
        try:
            return decode(frame)
        except MalformedMessage as error:
            error.broker, error.api = self._name, api
            session.on_task_failed(error)
            raise

    def _fetch_result(
        self, request: kafka07.Kafka07FetchRequest, response: kafka07.Kafka07FetchResponse, api: str
    ) -> FetchResult:
        topic, partition, offset = request.topic, request.partition, request.offset
        error: KafkaError | None = None
        if response.error:
            error = broker_error(
                response.error,
                broker=self._name,
                api=api,
                topic=topic,
                partition=partition,
                offset=offset,
            )
        elif len(response.messages) > request.max_size:
            error = ProtocolError(
                f"received {len(response.messages)} bytes, requested at most {request.max_size}",
                broker=self._name,
                api=api,
                topic=topic,
                partition=partition,
                offset=offset,
            )
        return FetchResult(
            topic=topic,
            partition=partition,
            offset=offset,
            data=response.messages,
            max_decompressed_bytes=self.config.max_decompressed_bytes,
            error=error,
        )

    def _runtime(self) -> Runtime:
        return self._lifecycle.require_session_in_loop().runtime


def _decode_multi_fetch(frame: memoryview, count: int) -> tuple[kafka07.Kafka07FetchResponse, ...]:
    response = kafka07.decode_multi_fetch_response(frame)
    message = "kafka07 MULTIFETCH response"
    if response.error:
        raise MalformedMessage(f"error code {response.error} for the request", message=message)
    if len(response.responses) != count:
        raise MalformedMessage(
            f"{len(response.responses)} responses to {count} fetches", message=message
        )
    return response.responses


def _codec_id(name: str) -> int:
    if name not in CODEC_IDS:
        raise InvalidOption(f"compression_type must be one of {', '.join(CODEC_IDS)}, not {name!r}")
    return CODEC_IDS[name]
