"""Every error that this package raises.

All derive from `KafkaError`. An error carries where it happened (broker, API, topic, partition,
offset, attempt: whichever are known) and `retriable`, which says whether the same call can succeed
when it is made again unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = (
    "AuthenticationFailed",
    "BrokerError",
    "BufferFull",
    "ClientClosed",
    "CommitFailed",
    "ConnectionFailed",
    "ConnectionLost",
    "CorruptRecords",
    "DeliveriesFailed",
    "DeliveryTimedOut",
    "DeliveryUnknown",
    "GroupFailed",
    "InvalidOption",
    "KafkaError",
    "LogTruncated",
    "MalformedFrame",
    "MalformedMessage",
    "MemberFenced",
    "NoBrokerAvailable",
    "NoOffset",
    "ProducerFenced",
    "ProtocolError",
    "RecordTooLarge",
    "RequestTimedOut",
    "UnknownServerError",
    "UnknownTopic",
    "UnsupportedVersion",
)


class KafkaError(Exception):
    """The root of all errors of this package.

    `reason` is the sentence without the context; `str()` appends the context that is known.
    """

    retriable: bool = False

    def __init__(
        self,
        reason: str = "",
        *,
        broker: str | None = None,
        api: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        attempt: int | None = None,
        retriable: bool | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.broker = broker
        self.api = api
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.attempt = attempt
        if retriable is not None:
            self.retriable = retriable

    def __str__(self) -> str:
        known = [
            f"{name} {value}"
            for name in ("broker", "api", "topic", "partition", "offset", "attempt")
            if (value := getattr(self, name)) is not None
        ]
        text = self.reason or type(self).__name__
        return f"{text} ({', '.join(known)})" if known else text

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only context does not survive Exception's own pickling.
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(cls: type[KafkaError], args: tuple[Any, ...], state: dict[str, Any]) -> KafkaError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidOption(KafkaError, ValueError):
    """An option is unknown, or its value is out of range or contradicts another."""


class ClientClosed(KafkaError):
    """The client was closed, or was never entered."""


# --- the network -----------------------------------------------------------------------------


class NoBrokerAvailable(KafkaError):
    """None of the known or bootstrap addresses answered before the deadline."""

    retriable = True


class ConnectionFailed(KafkaError):
    """A connection to a broker could not be made: name, port, network or protocol."""

    retriable = True


class ConnectionLost(KafkaError):
    """A connection ended while a request was waiting on it.

    `sent` tells whether bytes of the request may have reached the broker: if not, it surely was
    not carried out.
    """

    retriable = True

    def __init__(self, reason: str = "", *, sent: bool = True, **context: Any) -> None:
        super().__init__(reason, **context)
        self.sent = sent


class RequestTimedOut(KafkaError, TimeoutError):
    """A call met its deadline.

    `sent` tells whether bytes of the request may have reached the broker: if so, it may have been
    carried out.
    """

    retriable = True

    def __init__(self, reason: str = "", *, sent: bool = True, **context: Any) -> None:
        super().__init__(reason, **context)
        self.sent = sent


class AuthenticationFailed(KafkaError):
    """The broker refused the credentials, or proved not to be who it should be."""


# --- the protocol ----------------------------------------------------------------------------


class ProtocolError(KafkaError):
    """The peer broke the protocol; its connection is of no further use."""


class MalformedFrame(ProtocolError):
    """The length before a frame is impossible, or larger than allowed."""


class MalformedMessage(ProtocolError):
    """The bytes are not a message of the expected class and version.

    `message`, `version`, `field` (a dotted path) and `position` (byte offset in the message) say
    where decoding stopped.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        message: str | None = None,
        version: int | None = None,
        field: str | None = None,
        position: int | None = None,
        **context: Any,
    ) -> None:
        where = [
            text
            for text in (
                f"{message} v{version}" if message is not None else "",
                f"field {field}" if field else "",
                f"byte {position}" if position is not None else "",
            )
            if text
        ]
        super().__init__(f"{reason} at {', '.join(where)}" if where else reason, **context)
        self.message = message
        self.version = version
        self.field = field
        self.position = position


class UnsupportedVersion(KafkaError):
    """The broker, or the version in use, lacks what was asked for."""


class BrokerError(KafkaError):
    """A broker answered with an error code.

    `code` is its number (an `ErrorCode` where this package knows it), `name` Kafka's name of it.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        code: int,
        name: str,
        retriable: bool = False,
        **context: Any,
    ) -> None:
        super().__init__(reason or name, retriable=retriable, **context)
        self.code = code
        self.name = name


class UnknownServerError(BrokerError):
    """The broker failed inside (error -1), or sent a code that this package does not know."""


# --- records ---------------------------------------------------------------------------------


class CorruptRecords(KafkaError):
    """Stored bytes are not valid records: checksum, lengths, counts or compression lie.

    Consumption goes on past them only after an explicit seek.
    """


class RecordTooLarge(KafkaError):
    """A record or batch is over a size limit; `size_bytes` is what it takes, if known."""

    def __init__(self, reason: str = "", *, size_bytes: int | None = None, **context: Any) -> None:
        super().__init__(reason, **context)
        self.size_bytes = size_bytes


# --- the producer ----------------------------------------------------------------------------


class BufferFull(KafkaError):
    """`send_nowait` found no room in the buffer; `send` waits for it up to `max_block_ms`."""

    retriable = True


class DeliveryTimedOut(KafkaError, TimeoutError):
    """A record's `delivery_timeout_ms` passed, and no broker has it: sending it again is safe."""

    retriable = True


class DeliveryUnknown(KafkaError):
    """A record was sent and no answer came in time: the log may hold it or not.

    The client does not send it again. An application that does may make a duplicate.
    """


class DeliveriesFailed(KafkaError):
    """Records failed and nobody awaited their `Delivery`.

    `count` is how many; `first` is the first record's error.
    """

    def __init__(self, reason: str = "", *, count: int, first: BaseException | None) -> None:
        super().__init__(reason)
        self.count = count
        self.first = first


class ProducerFenced(KafkaError):
    """A newer producer of the same identity took over; this one must be closed."""


# --- the consumer and the group --------------------------------------------------------------


class UnknownTopic(KafkaError):
    """A topic does not exist, and was not made on demand before the deadline."""

    retriable = True


class NoOffset(KafkaError):
    """A position is missing or out of range, and `auto_offset_reset` is "none"."""

    def __init__(self, reason: str = "", *, partitions: Sequence[Any] = (), **context: Any) -> None:
        super().__init__(reason, **context)
        self.partitions = tuple(partitions)


class LogTruncated(KafkaError):
    """The log was cut behind the position: records that were read no longer exist."""


class CommitFailed(KafkaError):
    """Offsets were not committed: the partitions are not this member's any more.

    What was read from them is delivered again to their new owner.
    """


class GroupFailed(KafkaError):
    """The group cannot be joined: its protocol, its id or its limits do not fit this member."""


class MemberFenced(GroupFailed):
    """Another member joined with the same `group_instance_id`; this one must be closed."""
