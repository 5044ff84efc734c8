"""All errors of this package.

All derive from `KafkaError`. An error carries its context as far as it is known (broker, API,
topic, partition, offset, attempt) and `retriable`: whether the same call can succeed if it is
repeated.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = (
    "AcknowledgementFailed",
    "AuthenticationFailed",
    "AuthorizationFailed",
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
    "DeserializationFailed",
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
    "PartialFailure",
    "ProducerFenced",
    "ProtocolError",
    "RecordTooLarge",
    "RequestTimedOut",
    "SerializationFailed",
    "TlsError",
    "TokenUnavailable",
    "TransactionAborted",
    "TransactionFailed",
    "UnknownServerError",
    "UnknownTopic",
    "UnsupportedVersion",
    "WrongEventLoop",
)

__path__: list[str] = []
"""Makes `from aiokafkawire.errors import …` raise the error of `__getattr__` unchanged."""


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
    """Return True if a text mentions a value, as `topic orders` or unambiguously by itself."""
    forms = [re.escape(f"{name} {value}")]
    if isinstance(value, str):
        forms.append(re.escape(repr(value)))
        if name == "api" or ":" in value:
            forms.append(re.escape(value))
    return re.search(rf"(?<![\w.-])(?:{'|'.join(forms)})(?![\w-]|\.\w)", text) is not None


class KafkaError(Exception):
    """Base class of all errors of this package.

    `reason` is the message without context. `str()` appends the known context that the message does
    not mention: `broker`, `api`, `transactional_id`, `group`, `topic`, `partition`, `offset`,
    `attempt` (None if unknown or not applicable). `retriable` is True if the same call can succeed
    when it is repeated unchanged.

    What to do: follow the message. `KafkaError` itself is raised only if no subclass fits.
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
            # A partition that the text mentions may belong to another topic.
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

    `option` is its name if it is unknown, or if it is a property of Java or librdkafka that cannot
    be converted; None otherwise.

    What to do: correct the call. The message names the option and its valid values; for an unknown
    option, the most similar name.
    """

    def __init__(self, reason: str = "", *, option: str | None = None, **context: Any) -> None:
        super().__init__(reason, **context)
        self.option = option


class IllegalState(KafkaError, RuntimeError):
    """The call is not allowed in the current state, such as `assign` after `subscribe`.

    What to do: correct the program; the message names the state and the call that changes it.
    """


class ClientClosed(KafkaError):
    """The client is closed or was not started.

    What to do: use the client inside its `async with` block, or between `start` and `stop`. A
    closed client cannot be started again: create a new one.
    """


class WrongEventLoop(KafkaError):
    """The client was called in a different event loop from the one in which it was started.

    What to do: start the client in the loop that uses it. With pytest-asyncio, use the same
    `loop_scope` for the test and the fixture that creates the client. From another thread, such as
    a `def` endpoint, use `anyio.from_thread.run` or `asyncio.run_coroutine_threadsafe`.
    """


# --- the network -----------------------------------------------------------------------------


class NoBrokerAvailable(KafkaError):
    """No known broker or bootstrap address responded before the deadline.

    `reasons` has the failure of each address that was tried, as `host:port: reason`.

    What to do: check `bootstrap_servers`, that a broker listens there, and that its advertised
    names and ports (`advertised.listeners`) can be reached from the client.
    """

    retriable = True

    def __init__(self, reason: str = "", *, reasons: Sequence[str] = (), **context: Any) -> None:
        super().__init__(reason, **context)
        self.reasons = tuple(reasons)


class ConnectionFailed(KafkaError):
    """A connection to a broker could not be opened: name, port, network or protocol.

    `refused` is True if the host refused it at once, or its name could not be resolved.

    What to do: nothing was sent, so the call can be repeated; the message says what failed.
    """

    retriable = True
    refused = False


class ConnectionLost(KafkaError):
    """The connection was lost while a request was pending.

    `sent` is True if bytes of the request may have reached the broker. If False, the broker did not
    handle the request.

    What to do: repeat the call if it does no harm that the broker may have handled the first one.
    """

    retriable = True

    def __init__(self, reason: str = "", *, sent: bool = True, **context: Any) -> None:
        super().__init__(reason, **context)
        self.sent = sent


class RequestTimedOut(KafkaError, TimeoutError):
    """A call did not complete before its deadline.

    `sent` is True if bytes of the request may have reached the broker, which may have handled it.

    What to do: repeat the call later, or raise its timeout (`default_api_timeout_ms`,
    `request_timeout_ms`); the message says what the call was waiting for.
    """

    retriable = True

    def __init__(self, reason: str = "", *, sent: bool = True, **context: Any) -> None:
        super().__init__(reason, **context)
        self.sent = sent


class AuthenticationFailed(KafkaError):
    """The broker, or the identity provider that issues OAUTHBEARER tokens, rejected the
    credentials, or could not prove its identity.

    What to do: correct the credentials, or check what listens at that address.
    """


class TokenUnavailable(ConnectionFailed):
    """The OAUTHBEARER token provider has no token now: the identity provider cannot be reached, is
    overloaded, or does not respond as one.

    `retry_after_s` is the delay that the identity provider asked for, if any.

    What to do: check `sasl_oauth_token_provider` and its address; the client keeps trying.
    """

    def __init__(
        self, reason: str = "", *, retry_after_s: float | None = None, **context: Any
    ) -> None:
        super().__init__(reason, **context)
        self.retry_after_s = retry_after_s


class TlsError(AuthenticationFailed):
    """The TLS handshake failed: client and broker do not trust each other, or one has no TLS.

    What to do: the message says which certificate or setting is wrong.
    """


# --- the protocol ----------------------------------------------------------------------------


class ProtocolError(KafkaError):
    """The broker violated the protocol; the connection is closed.

    What to do: check that a Kafka broker listens at that address; if so, report a bug.
    """


class MalformedFrame(ProtocolError):
    """The length prefix of a frame is invalid or above the limit.

    What to do: check that the port is a plaintext listener of Kafka; for a response that really is
    that large, raise `max_response_bytes`.
    """

    peer_speaks_tls = False
    """True if the bytes are those of a TLS server."""


class MalformedMessage(ProtocolError):
    """Bytes could not be decoded as the expected message and version.

    `message`, `version`, `field` (a dotted path) and `position` (byte offset in the message) show
    where decoding stopped.

    What to do: see `ProtocolError`.
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
    """The broker or the negotiated API version does not support the call.

    What to do: avoid the feature or upgrade the broker; the message names what is missing.
    """


class BrokerError(KafkaError):
    """A broker returned an error code.

    `code` is the number (an `ErrorCode` if this package knows it), `name` is Kafka's name for it;
    `retriable` is as Kafka defines it for the code. `is_of_other_record` is True if the broker
    refused a record because of another record of its batch (KIP-467).

    What to do: see the code in Kafka's documentation; the most common cause is missing permissions.
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
        self.is_of_other_record = False


class AuthorizationFailed(BrokerError):
    """The principal may not perform an operation on a topic, group, transactional id or cluster.

    `resource_type` is "topic", "group", "transactional_id", "cluster" or "delegation_token", and
    `resource_name` its name, None if unknown. `operation` is Kafka's name of the operation that is
    missing, such as "Read"; None if unknown. A topic that does not exist looks the same to a
    principal without permissions.

    What to do: add an ACL for the principal, such as with `kafka-acls --add`; the message says for
    which operation and resource. The client does not retry.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        resource_type: str,
        operation: str | None = None,
        **context: Any,
    ) -> None:
        super().__init__(reason, **context)
        self.resource_type = resource_type
        self.operation = operation

    @property
    def resource_name(self) -> str | None:
        """Name of the resource, None for the cluster or if unknown."""
        name: str | None = getattr(self, self.resource_type, None)
        return name


class UnknownServerError(BrokerError):
    """The broker had an internal error (code -1), or returned a code unknown to this package.

    What to do: check the broker's log.
    """


# --- the admin client ------------------------------------------------------------------------


class PartialFailure(KafkaError):
    """Some items of a call of `Admin` failed, such as one of several topics.

    `succeeded` has the results of the items that succeeded, `failed` the error of each other item,
    by item. `retriable` is True if each of these errors is retriable.

    What to do: handle the errors in `failed`; the items in `succeeded` are done. With
    `return_errors=True`, the call returns the errors with the results instead.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        succeeded: Mapping[Any, Any],
        failed: Mapping[Any, KafkaError],
        **context: Any,
    ) -> None:
        super().__init__(reason, **context)
        self.succeeded = succeeded
        self.failed = failed


# --- records ---------------------------------------------------------------------------------


class CorruptRecord(KafkaError):
    """Stored records are corrupt: a checksum, length, count or compressed block is invalid.

    `next_offset` is the offset after the corrupt batch as far as its header can be trusted; None if
    unknown.

    What to do: a `Consumer` stays before the records and raises this again; to continue, `seek` to
    `next_offset`, or past `offset` without it. The rest of the batch may be corrupt too. A
    `ShareConsumer` continues with the next call; reject its `corrupt_records`. A `Worker` of a
    consumer group stops: commit an offset behind the batch (`aiokafkawire offsets reset`), and
    start it again. In a share group, it handles these records as it does those that cannot be
    deserialized.
    """

    def __init__(self, reason: str = "", *, next_offset: int | None = None, **context: Any) -> None:
        super().__init__(reason, **context)
        self.next_offset = next_offset


class DeserializationFailed(KafkaError):
    """The key or value of a record cannot be deserialized; the cause is the deserializer's error.

    `record` has the bytes of the key and value.

    What to do: the record counts as delivered, so the next call returns the one after it, and
    commits this one as any other. To stop at it instead, let the error leave `async with`, which
    commits nothing of this task, or `seek` to its offset.
    """

    def __init__(self, reason: str = "", *, record: Any = None, **context: Any) -> None:
        if record is not None:
            context.update(topic=record.topic, partition=record.partition, offset=record.offset)
        super().__init__(reason, **context)
        self.record = record


class RecordTooLarge(KafkaError):
    """A record or batch exceeds a size limit; `size_bytes` is its size, if known.

    What to do: send less, or raise the limit in the message (`max_request_size_bytes` of the
    producer, `max.message.bytes` of the topic). When reading, raise `max_response_bytes`, or `seek`
    past the record.
    """

    def __init__(self, reason: str = "", *, size_bytes: int | None = None, **context: Any) -> None:
        super().__init__(reason, **context)
        self.size_bytes = size_bytes


# --- the producer ----------------------------------------------------------------------------


class SerializationFailed(KafkaError):
    """A key or value cannot be serialized; the cause is the serializer's error. Nothing is sent.

    What to do: correct the value or the serializer.
    """


class BufferFull(KafkaError):
    """The send buffer is full. `send` waits up to `max_block_ms`; `send_nowait` does not wait.

    What to do: send more slowly: the brokers do not keep up, or none can be reached.
    """

    retriable = True


class DeliveryTimedOut(KafkaError, TimeoutError):
    """`delivery_timeout_ms` expired for a record, and no broker stored it.

    What to do: send it again, which cannot cause a duplicate; the message gives the last failure.
    """

    retriable = True


class DeliveryUnknown(KafkaError):
    """A record was sent without an acknowledgement in time; the log may contain it.

    What to do: the client does not retry. Send the record again if a duplicate does no harm;
    otherwise, check the topic first.
    """


class DeliveriesFailed(KafkaError):
    """Records failed, and no call has raised their errors.

    Their `Delivery` was not awaited, or the wait was cancelled before the outcome. Raised by
    `flush` and when the producer is closed. `count` is the number of records, `counts` the number
    per topic and partition; `first` is the error of the first record.

    What to do: await each `Delivery` whose result matters; for these records, check `first`.
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
    """A newer producer with the same `transactional_id` replaced this one, or its transaction
    exceeded `transaction_timeout_ms` and the coordinator aborted it.

    The open transaction is aborted, unless its commit was in progress, which the message says.

    What to do: close this producer; all further calls raise this error. If no other producer took
    over, create a new one and repeat the transaction.
    """


class InvalidTxnState(KafkaError):
    """The call is not allowed in the current state of the transaction.

    What to do: correct the program; the message gives the call and the state. A producer has one
    transaction at a time: for concurrent transactions, create several producers.
    """


class TransactionFailed(KafkaError):
    """The transaction can no longer be committed; `__cause__` is the reason.

    What to do: abort it, which leaving `async with producer.transaction()` does, and repeat its
    work in a new transaction.
    """


class TransactionAborted(KafkaError):
    """The transaction of the record was aborted: `read_committed` consumers never see the record.

    What to do: repeat the transaction as a whole.
    """


# --- the consumer and the group --------------------------------------------------------------


class UnknownTopic(KafkaError):
    """A topic does not exist and was not created automatically before the deadline.

    What to do: create the topic, or check its name. A consumer continues once the topic exists.
    """

    retriable = True


class NoOffsetForPartition(KafkaError):
    """A partition has no committed offset or its position is out of range, and `auto_offset_reset`
    is "none".

    `partitions` are the affected partitions.

    What to do: `seek` each of them, or choose another `auto_offset_reset`.
    """

    def __init__(self, reason: str = "", *, partitions: Sequence[Any] = (), **context: Any) -> None:
        super().__init__(reason, **context)
        self.partitions = tuple(partitions)


class LogTruncated(KafkaError):
    """The log was truncated below the position: records that were read no longer exist (KIP-320).

    `offset` is the position. From `diverging_offset` on, the log contains other records than those
    that were read; `leader_epoch` is the last epoch before it. Both are None if unknown.

    What to do: decide how to handle the effects of the lost records, then `seek` to the offset at
    which reading continues.
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
    """Offsets were not committed, because this member does not own the partitions any more.

    The uncommitted records are delivered again to the new owner of the partition.

    What to do: continue reading, and do not repeat the commit; undo the work on these records, or
    make it idempotent.
    """


class AcknowledgementFailed(KafkaError):
    """The acknowledgement of a record of a share group failed.

    The lock of the record has expired, or its share session has ended, for example with its
    connection. The record is delivered again, unless it reached the group's limit of deliveries.

    What to do: continue reading; make the processing idempotent, and renew the locks of records
    that take longer than the group's lock duration.
    """


class GroupFailed(KafkaError):
    """The member cannot join the group: its protocol, ids or timeouts are not accepted.

    What to do: make the options of all members compatible; the message names the conflict.
    """


class FencedInstanceId(GroupFailed):
    """Another member joined with the same `group_instance_id`.

    What to do: close this member, and give each member a different `group_instance_id`.
    """
