"""Every error that this package raises.

All derive from `KafkaError`. An error carries where it happened (broker, API, topic, partition,
offset, attempt: whichever are known) and `retriable`, which says whether the same call can succeed
when it is made again unchanged.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = (
    "AuthenticationFailed",
    "BrokerError",
    "BufferFull",
    "ClientClosed",
    "CommitFailed",
    "ConnectionFailed",
    "ConnectionLost",
    "CorruptRecord",
    "DeliveriesFailed",
    "DeliveryTimedOut",
    "DeliveryUnknown",
    "FencedInstanceId",
    "GroupFailed",
    "IllegalState",
    "InvalidOption",
    "InvalidTxnState",
    "KafkaError",
    "LogTruncated",
    "MalformedFrame",
    "MalformedMessage",
    "NoBrokerAvailable",
    "NoOffsetForPartition",
    "ProducerFenced",
    "ProtocolError",
    "RecordTooLarge",
    "RequestTimedOut",
    "TransactionAborted",
    "TransactionFailed",
    "UnknownServerError",
    "UnknownTopic",
    "UnsupportedVersion",
    "WrongEventLoop",
)

__path__: list[str] = []
"""Makes `from aiokafkawire.errors import …` raise what `__getattr__` says, as a package does."""


def __getattr__(name: str) -> object:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    caller = sys._getframe(1).f_code.co_name
    raise import_module("aiokafkawire.config.name_hints").absent_name_error(__name__, name, caller)


_CONTEXT = (
    "broker",
    "api",
    "transactional_id",
    "group",
    "topic",
    "partition",
    "offset",
    "attempt",
)


def _mentions(text: str, name: str, value: Any) -> bool:
    """Return whether a text names a value: as `topic orders`, or by itself if that is clear."""
    forms = [re.escape(f"{name} {value}")]
    if isinstance(value, str):
        forms.append(re.escape(repr(value)))
        if name == "api" or ":" in value:
            forms.append(re.escape(value))
    return re.search(rf"(?<![\w.-])(?:{'|'.join(forms)})(?![\w-]|\.\w)", text) is not None


class KafkaError(Exception):
    """The root of all errors of this package.

    `reason` is the sentence without the context; `str()` appends the context that is known and that
    the sentence does not name: `broker`, `api`, `transactional_id`, `group`, `topic`, `partition`,
    `offset`, `attempt` (None where it is not known or does not apply). `retriable` says whether the
    same call, made again unchanged, can succeed.

    What to do: as the text says; it is raised itself only for what no other class tells better.
    """

    retriable: bool = False

    def __init__(
        self,
        reason: str = "",
        *,
        broker: str | None = None,
        api: str | None = None,
        transactional_id: str | None = None,
        group: str | None = None,
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
        self.transactional_id = transactional_id
        self.group = group
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.attempt = attempt
        if retriable is not None:
            self.retriable = retriable

    def __str__(self) -> str:
        text = self.reason or type(self).__name__
        known = {name: value for name in _CONTEXT if (value := getattr(self, name)) is not None}
        rest = {name: value for name, value in known.items() if not _mentions(text, name, value)}
        if "topic" in rest and "partition" in known:
            # The partition that the text names may be one of another topic.
            rest = {name: value for name, value in known.items() if name in {*rest, "partition"}}
        if not rest:
            return text
        return f"{text} ({', '.join(f'{name} {value}' for name, value in rest.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only context does not survive Exception's own pickling.
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(cls: type[KafkaError], args: tuple[Any, ...], state: dict[str, Any]) -> KafkaError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidOption(KafkaError, ValueError):
    """An option is unknown, or its value is out of range or contradicts another.

    What to do: correct the call. The text names the option, what it may be, and for an unknown one
    the nearest that exists.
    """


class IllegalState(KafkaError, RuntimeError):
    """The call does not fit the state of the client, as `assign` while topics are subscribed to.

    What to do: correct the program; the text says what the state is and which call changes it.
    """


class ClientClosed(KafkaError):
    """The client was closed, or was never entered.

    What to do: call it inside of its `async with`, or between `start` and `stop`. A client does
    not open again: make a new one.
    """


class WrongEventLoop(KafkaError):
    """The client was called in another event loop than the one in which it was started.

    What to do: start it in the loop that uses it. With pytest-asyncio, give the fixture that makes
    it and the test the same `loop_scope`. From another thread, as in a `def` endpoint, hand the
    call over: `anyio.from_thread.run` or `asyncio.run_coroutine_threadsafe`.
    """


# --- the network -----------------------------------------------------------------------------


class NoBrokerAvailable(KafkaError):
    """None of the known or bootstrap addresses answered before the deadline.

    What to do: check `bootstrap_servers`, that a broker listens there, and that the names and ports
    that it advertises (`advertised.listeners`) can be reached from here.
    """

    retriable = True


class ConnectionFailed(KafkaError):
    """A connection to a broker could not be made: name, port, network or protocol.

    What to do: nothing was sent, so the call can be made again; the text says what failed.
    """

    retriable = True


class ConnectionLost(KafkaError):
    """A connection ended while a request was waiting on it.

    `sent` tells whether bytes of the request may have reached the broker: if not, it surely was
    not carried out.

    What to do: make the call again, if it does no harm that the first one may have been carried
    out.
    """

    retriable = True

    def __init__(self, reason: str = "", *, sent: bool = True, **context: Any) -> None:
        super().__init__(reason, **context)
        self.sent = sent


class RequestTimedOut(KafkaError, TimeoutError):
    """A call met its deadline.

    `sent` tells whether bytes of the request may have reached the broker: if so, it may have been
    carried out.

    What to do: make the call again later, or give it more time (`default_api_timeout_ms`,
    `request_timeout_ms`); the text tells what the call was waiting for.
    """

    retriable = True

    def __init__(self, reason: str = "", *, sent: bool = True, **context: Any) -> None:
        super().__init__(reason, **context)
        self.sent = sent


class AuthenticationFailed(KafkaError):
    """The broker refused the credentials, or proved not to be who it should be.

    What to do: correct the credentials, or find out who answers at that address.
    """


# --- the protocol ----------------------------------------------------------------------------


class ProtocolError(KafkaError):
    """The peer broke the protocol; its connection is of no further use.

    What to do: check that what listens there is Kafka; if it is, report a defect.
    """


class MalformedFrame(ProtocolError):
    """The length before a frame is impossible, or larger than allowed.

    What to do: check that the port is Kafka's and expects plaintext; for a response that is really
    that large, raise `max_response_bytes`.
    """


class MalformedMessage(ProtocolError):
    """The bytes are not a message of the expected class and version.

    `message`, `version`, `field` (a dotted path) and `position` (byte offset in the message) say
    where decoding stopped.

    What to do: as for `ProtocolError`.
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
        whole = message if version is None else f"{message} v{version}"
        where = [
            text
            for text in (
                whole if message is not None else "",
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
    """The broker, or the version in use, lacks what was asked for.

    What to do: do without it, or use a newer broker; the text names what is missing.
    """


class BrokerError(KafkaError):
    """A broker answered with an error code.

    `code` is its number (an `ErrorCode` where this package knows it), `name` Kafka's name of it;
    `retriable` is as Kafka defines it for the code.

    What to do: what Kafka's documentation says of the code; most often rights are missing.
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
    """The broker failed inside (error -1), or sent a code that this package does not know.

    What to do: look into the broker's log.
    """


# --- records ---------------------------------------------------------------------------------


class CorruptRecord(KafkaError):
    """Stored bytes are not valid records: checksum, lengths, counts or compression lie.

    `next_offset` is where the damaged batch ends, as far as what is around it can be trusted; None
    if that is not known.

    What to do: the consumer stands before them and raises this again; `seek` to `next_offset` (or
    else past `offset`) to go on. The damage may reach to the end of a batch.
    """

    def __init__(self, reason: str = "", *, next_offset: int | None = None, **context: Any) -> None:
        super().__init__(reason, **context)
        self.next_offset = next_offset


class RecordTooLarge(KafkaError):
    """A record or batch is over a size limit; `size_bytes` is what it takes, if known.

    What to do: send less, or raise the limit that the text names (`max_request_size_bytes` here,
    `max.message.bytes` of the topic). When reading: raise `max_response_bytes`, or `seek` past it.
    """

    def __init__(self, reason: str = "", *, size_bytes: int | None = None, **context: Any) -> None:
        super().__init__(reason, **context)
        self.size_bytes = size_bytes


# --- the producer ----------------------------------------------------------------------------


class BufferFull(KafkaError):
    """`send_nowait` found no room in the buffer; `send` waits for it up to `max_block_ms`.

    What to do: send more slowly: the brokers do not keep up, or none can be reached.
    """

    retriable = True


class DeliveryTimedOut(KafkaError, TimeoutError):
    """A record's `delivery_timeout_ms` passed, and no broker has it.

    What to do: send it again, which cannot make a duplicate; the text tells what it failed of.
    """

    retriable = True


class DeliveryUnknown(KafkaError):
    """A record was sent and no answer came in time: the log may hold it or not.

    What to do: the client does not send it again. Send it again if a duplicate does no harm, else
    look into the log first.
    """


class DeliveriesFailed(KafkaError):
    """Records failed and nobody awaited their `Delivery`.

    Raised by `flush` and by leaving the producer. `count` is how many, `counts` how many of each
    topic and partition; `first` is the first record's error.

    What to do: await each `Delivery` whose outcome matters; for these records look at `first`.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        count: int,
        first: BaseException | None,
        counts: Mapping[Any, int] | None = None,
    ) -> None:
        super().__init__(reason)
        self.count = count
        self.counts = dict(counts or {})
        self.first = first


class ProducerFenced(KafkaError):
    """Another producer with the same `transactional_id` took over, or the coordinator took it for
    gone and ended its transaction, as `transaction_timeout_ms` had passed.

    The transaction that was open is aborted, unless its commit was under way, which the text says.

    What to do: close this producer; every further call raises it. If no other one took over, make a
    new one and do the work of the transaction again.
    """


class InvalidTxnState(KafkaError):
    """A call does not fit where the transaction stands: nothing is open, or something is.

    What to do: correct the program; the text says what came and what was expected. One producer has
    one transaction at a time: for several at once make several producers.
    """


class TransactionFailed(KafkaError):
    """The transaction cannot be committed any more; the cause (`__cause__`) tells why.

    What to do: abort it (leaving `async with producer.transaction()` does), and do its work again
    in a new one.
    """


class TransactionAborted(KafkaError):
    """The record's transaction was aborted, so that no reader of committed records will see it.

    What to do: nothing for the single record; do the work of the transaction again.
    """


# --- the consumer and the group --------------------------------------------------------------


class UnknownTopic(KafkaError):
    """A topic does not exist, and was not made on demand before the deadline.

    What to do: make it, or check its name. A consumer that raised this reads on when it is there.
    """

    retriable = True


class NoOffsetForPartition(KafkaError):
    """A position is missing or out of range, and `auto_offset_reset` is "none".

    `partitions` are those that it is about.

    What to do: `seek` each of them, or choose another `auto_offset_reset`.
    """

    def __init__(self, reason: str = "", *, partitions: Sequence[Any] = (), **context: Any) -> None:
        super().__init__(reason, **context)
        self.partitions = tuple(partitions)


class LogTruncated(KafkaError):
    """The log was cut behind the position: records that were read no longer exist (KIP-320).

    `offset` is the position. From `diverging_offset` on the log holds other records than those that
    were read; `leader_epoch` is the last epoch before it. Both are None if that is not known.

    What to do: decide what the effects of those records are worth, then `seek` to where reading
    shall go on.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        diverging_offset: int | None = None,
        leader_epoch: int | None = None,
        **context: Any,
    ) -> None:
        super().__init__(reason, **context)
        self.diverging_offset = diverging_offset
        self.leader_epoch = leader_epoch


class CommitFailed(KafkaError):
    """Offsets were not committed: this member does not own the partitions, or lost them.

    What was read from a lost partition is delivered again to its new owner.

    What to do: go on reading, and do not repeat the commit; undo the work, or make it such that
    doing it twice does no harm.
    """


class GroupFailed(KafkaError):
    """The group cannot be joined: its protocol, its id or its limits do not fit this member.

    What to do: make the options of all its members fit together; the text names what does not.
    """


class FencedInstanceId(GroupFailed):
    """Another member joined with the same `group_instance_id`.

    What to do: close this one, and give each member an id of its own.
    """
