"""The client of a broker of 0.7."""

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
from aiokafkawire.logs import fields_of
from aiokafkawire.records.compression import Compression, compress
from aiokafkawire.runtime import NEVER, Address, Host, Runtime
from aiokafkawire.runtime import Client as BaseClient
from aiokafkawire.wire import kafka07
from aiokafkawire.wire.kafka07 import EARLIEST, LATEST
from aiokafkawire.wire.primitives import check_string

__all__ = ("ANY_PARTITION", "Client")

ANY_PARTITION = -1
"""The broker chooses a partition, at random."""

CODEC_IDS = {"none": 0, "gzip": int(Compression.GZIP), "snappy": int(Compression.SNAPPY)}

CompressionName = Literal["none", "gzip", "snappy"]

T = TypeVar("T")


class Client(BaseClient[Kafka07Session]):
    """Talks to one broker of Kafka 0.7, at `server` ("host:port"), on one connection.

    Calls of several tasks take turns. A call makes one attempt, within `request_timeout_ms`, and
    connects where there is no connection; a call that is cancelled or meets its deadline ends the
    connection, and the next call makes a new one. Calls raise `ConnectionFailed`, `ConnectionLost`
    and `RequestTimedOut`, which a repeat may overcome; `ProtocolError` for what is no answer; and
    `ValueError` or `TypeError` for what cannot stand in a request.

    0.7 does not answer a PRODUCE. `produce` returns when the request is handed to the network, and
    whether the log has the messages can only be concluded: the broker ends the connection at a
    request that it refuses, and it works in order, so an answer to a later request tells that what
    came before was carried out. `flush` asks for such an answer, as `stop` does. Messages whose
    connection ended before that may be in the log or not; the next call raises `ConnectionLost`,
    once, and says how many calls it is about. What the broker drops in silence nobody is told: a
    payload above its `max.message.size`.
    """

    def __init__(self, server: str, **options: Unpack[Kafka07Options]) -> None:
        """Check the options; nothing is connected before `start` or `async with`.

        Raises `InvalidOption`.
        """
        self.config: Kafka07Config = make_config(server, options)
        self._address = Address(*parse_address(self.config.server))
        self._name = str(self._address)
        super().__init__(
            "client",
            f"kafka07.Client server={self._name!r}",
            fields=fields_of(broker=self._name),
        )

    # --- life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect. Raises `ConnectionFailed`. The same as entering `async with`."""
        await super().start()

    async def stop(self) -> None:
        """Hear that what was produced is carried out, for `close_timeout_ms`, and close.

        Without a produce since the last answer that takes no time. Raises `ConnectionLost` or
        `RequestTimedOut` if the broker did not say so. Calling it again does nothing.
        """
        await super().stop()

    async def _start(self, runtime: Runtime, host: Host) -> Kafka07Session:
        session = Kafka07Session(self.config, self._address, runtime, host)
        await session.connect()
        return session

    async def _close(self, left_with: BaseException | None) -> Exception | None:
        self._lifecycle.check_loop()
        session = self._lifecycle.session
        unreported = self._lifecycle.untold()
        deadline = NEVER
        if session is not None:
            deadline = session.runtime.clock.now() + self.config.close_timeout_ms / 1_000
        failures: list[KafkaError] = []

        async def flush_session(session: Kafka07Session) -> None:
            try:
                await session.flush(session.deadline())
            except KafkaError as error:
                failures.append(error)

        await self._lifecycle.leave(flush_session, deadline)
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
        """Append messages to a partition, in one set: all of them or none.

        With a codec they become one compressed message, as large as the broker's
        `max.message.size` at most. Returns when the request is handed to the network, which
        promises nothing; see the class. Raises `RecordTooLarge` before anything is sent.
        """
        request = self._build_produce_request(topic, partition, payloads, compression_type)
        session = self._lifecycle.running_here()
        await session.send(request, "PRODUCE", topic, session.deadline())

    async def multi_produce(
        self,
        sets: Iterable[tuple[str, int, Sequence[bytes]]],
        *,
        compression_type: CompressionName | None = None,
    ) -> None:
        """Append sets of messages (topic, partition, payloads) in one request.

        Each set is written as by `produce`. The broker goes through them in order: where it refuses
        one it ends the connection, and those before it stay.
        """
        requests = tuple(
            self._build_produce_request(topic, partition, payloads, compression_type)
            for topic, partition, payloads in sets
        )
        if requests:
            request = kafka07.MultiProduceRequest(requests=requests)
            session = self._lifecycle.running_here()
            await session.send(request, "MULTIPRODUCE", requests[-1].topic, session.deadline())

    async def flush(self) -> None:
        """Hear from the broker that it has carried out every produce before this call.

        Asks for the end of a log, unless something else was answered since the last produce. Raises
        `ConnectionLost` if the connection ended before, `RequestTimedOut`.
        """
        session = self._lifecycle.running_here()
        await session.flush(session.deadline())

    # --- reading -----------------------------------------------------------------------------

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_size: int | None = None
    ) -> FetchResult:
        """Read at most `max_size` bytes (`fetch_size_bytes` unless given) of a log.

        At the end of the log, and of a topic that was never written to, there is nothing to read,
        which is no error. Raises `BrokerError` with `code` OFFSET_OUT_OF_RANGE or WRONG_PARTITION,
        `UnknownServerError` for a topic whose name is not allowed.
        """
        return await self._fetch_once(self._build_fetch_request(topic, partition, offset, max_size))

    async def multi_fetch(
        self, positions: Iterable[tuple[str, int, int]], *, max_size: int | None = None
    ) -> list[FetchResult]:
        """Read of several partitions (topic, partition, offset) in one request, each as `fetch`.

        The result has their order. An error of one is its `error`, and the others stand.
        """
        requests = tuple(self._build_fetch_request(*position, max_size) for position in positions)
        if not requests:
            return []
        request = kafka07.MultiFetchRequest(requests=requests)
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
        """Read a partition from `offset` on, for ever, or with `until_end` to its present end.

        An async iterator of `Message`. It asks anew every `fetch_backoff_ms` at the end of the log,
        asks for more (`fetch_size_max_bytes` at most) where a message is larger than a fetch, and
        repeats what can be repeated for `default_api_timeout_ms`. Raises as `fetch` does;
        `RecordTooLarge`; `CorruptRecords`, whose `next_offset` is where to go on if that is known.
        After an error it may be asked again, and stands where it stood.
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
        """At most `max_number` starts of segments last written by `time` (ms), newest first.

        `LATEST` begins with the end of the log; `EARLIEST` gives its begin alone. A partition that
        was never written to has 0 for both, and nothing for a time. Where there is no such topic or
        partition the broker ends the connection, which is `ConnectionLost`.
        """
        check_string(topic)
        if max_number < 0:
            raise ValueError(f"max_number must not be below 0, it is {max_number}")
        request = kafka07.OffsetsRequest(
            topic=topic, partition=partition, time=time, max_number=max_number
        )
        response = await self._request(request, "OFFSETS", kafka07.decode_offsets_response)
        if response.error:
            raise broker_error(
                response.error, broker=self._name, api="OFFSETS", topic=topic, partition=partition
            )
        return response.offsets

    async def beginning_offset(self, topic: str, partition: int) -> int:
        """The first offset of a partition."""
        return await self._get_one_offset(topic, partition, EARLIEST)

    async def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next message of a partition will begin at."""
        return await self._get_one_offset(topic, partition, LATEST)

    # --- requests ----------------------------------------------------------------------------

    def _build_produce_request(
        self,
        topic: str,
        partition: int,
        payloads: Sequence[bytes],
        compression_type: CompressionName | None,
    ) -> kafka07.ProduceRequest:
        check_string(topic)
        if isinstance(payloads, bytes | bytearray | memoryview | str):
            raise TypeError("payloads must be a sequence of bytes, not one of them")
        for payload in payloads:
            if not isinstance(payload, bytes):
                raise TypeError(f"a payload must be bytes, not {type(payload).__name__}")
        messages = [kafka07.Message(payload=payload) for payload in payloads]
        codec = _codec_id(compression_type or self.config.compression_type)
        if codec and messages:
            compressed = compress(codec, kafka07.encode_messages(messages))
            messages = [kafka07.Message(payload=compressed, attributes=codec)]
        limit = self.config.max_message_size_bytes
        for message in messages:
            if len(message.payload) > limit:
                raise RecordTooLarge(
                    f"a payload is over max_message_size_bytes ({limit}): the broker would drop it",
                    size_bytes=len(message.payload),
                    topic=topic,
                    partition=partition,
                )
        return kafka07.ProduceRequest(
            topic=topic, partition=partition, messages=kafka07.encode_messages(messages)
        )

    def _build_fetch_request(
        self, topic: str, partition: int, offset: int, max_size: int | None
    ) -> kafka07.FetchRequest:
        check_string(topic)
        size = self.config.fetch_size_bytes if max_size is None else max_size
        if size < 0:
            raise ValueError(f"max_size must not be below 0, it is {size}")
        return kafka07.FetchRequest(topic=topic, partition=partition, offset=offset, max_size=size)

    async def _get_one_offset(self, topic: str, partition: int, time: int) -> int:
        offsets = await self.offsets(topic, partition, time)
        if not offsets:
            raise MalformedMessage(
                "no offset",
                message="kafka07 OFFSETS response",
                broker=self._name,
                topic=topic,
                partition=partition,
            )
        return offsets[0]

    async def _fetch_once(self, request: kafka07.FetchRequest) -> FetchResult:
        response = await self._request(request, "FETCH", kafka07.decode_fetch_response)
        fetched = self._fetch_result(request, response, "FETCH")
        if fetched.error is not None:
            raise fetched.error
        return fetched

    async def _request(
        self, request: kafka07.Request, api: str, decode: Callable[[memoryview], T]
    ) -> T:
        session = self._lifecycle.running_here()
        frame = await session.request(request, api, session.deadline())
        try:
            return decode(frame)
        except MalformedMessage as error:
            error.broker, error.api = self._name, api
            session.broken(error)
            raise

    def _fetch_result(
        self, request: kafka07.FetchRequest, response: kafka07.FetchResponse, api: str
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
                f"{len(response.messages)} bytes came where {request.max_size} were asked for",
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
        return self._lifecycle.running_here().runtime


def _decode_multi_fetch(frame: memoryview, count: int) -> tuple[kafka07.FetchResponse, ...]:
    response = kafka07.decode_multi_fetch_response(frame)
    message = "kafka07 MULTIFETCH response"
    if response.error:
        raise MalformedMessage(f"an error of {response.error} for all", message=message)
    if len(response.responses) != count:
        raise MalformedMessage(
            f"{len(response.responses)} answers to {count} fetches", message=message
        )
    return response.responses


def _codec_id(name: str) -> int:
    if name not in CODEC_IDS:
        raise InvalidOption(f"compression_type must be one of {', '.join(CODEC_IDS)}, not {name!r}")
    return CODEC_IDS[name]
