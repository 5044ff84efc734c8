"""Events and records that a client passes to hooks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from aiokafkawire.types import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafkawire.records import Record

__all__ = (
    "BatchFetched",
    "BatchWritten",
    "ClientInfo",
    "Connected",
    "Disconnected",
    "GroupEvent",
    "Processing",
    "RecordsReceived",
    "RequestEnded",
    "Sending",
    "Throttled",
)

Header = tuple[str, bytes | None]


class ClientInfo(NamedTuple):
    """The client that calls a hook.

    Attributes:
        kind: `"producer"`, `"consumer"`, `"share consumer"`, `"admin client"` or `"worker"`.
        client_id: `client_id`.
        group_id: `group_id`; None without a group.
    """

    kind: str
    client_id: str
    group_id: str | None


@dataclass(frozen=True, slots=True)
class Connected:
    """An attempt to connect to a broker has ended.

    Attributes:
        broker: Broker, as `3 at host:9092`, or the bootstrap address.
        duration_s: Time of the attempt, including TLS, versions and authentication.
        error: Why it failed; None if the connection is open.
    """

    broker: str
    duration_s: float
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Disconnected:
    """An open connection has ended.

    Attributes:
        broker: Broker, as in `Connected`.
        error: Reason.
        by_client: True if the client closed it, for example when it was idle.
    """

    broker: str
    error: Exception
    by_client: bool


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """A request has its response, or has failed.

    Attributes:
        broker: Broker, as in `Connected`.
        api: Name of the API, as `Produce`.
        api_version: Version of the request.
        latency_s: Time from sending; None if the request was not sent.
        request_bytes: Size of the request.
        response_bytes: Size of the response; 0 without one.
        error: Why there is no response. Error codes inside of a response are not errors here.
    """

    broker: str
    api: str
    api_version: int
    latency_s: float | None
    request_bytes: int
    response_bytes: int
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Throttled:
    """A broker has asked the client to send nothing for some time (KIP-219).

    Attributes:
        broker: Broker, as in `Connected`.
        api: Name of the API whose quota was exceeded.
        throttle_s: The time.
    """

    broker: str
    api: str
    throttle_s: float


@dataclass(frozen=True, slots=True)
class BatchWritten:
    """A broker has acknowledged a batch of a producer.

    Attributes:
        topic: Topic of the batch.
        partition: Its partition.
        base_offset: Offset of the first record; -1 if unknown, as with `acks=0`.
        records: Number of records.
        size_bytes: Size of the batch as it was sent, after compression.
        attempts: Number of requests it took.
    """

    topic: str
    partition: int
    base_offset: int
    records: int
    size_bytes: int
    attempts: int


@dataclass(frozen=True, slots=True)
class BatchFetched:
    """A consumer has fetched records of a partition, which are not decompressed yet.

    Attributes:
        topic: Topic of the records.
        partition: Their partition.
        first_offset: Offset that was fetched.
        next_offset: Offset after the records.
        size_bytes: Size of the records as they were received.
        node_id: Id of the broker.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    size_bytes: int
    node_id: int


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """The membership of a consumer in its group has changed.

    Attributes:
        kind: `"joined"`: the member has a new generation, in which it owns the partitions.
            `"assigned"` and `"revoked"`: partitions were added or removed. `"lost"`: partitions
            were removed without a commit.
        partitions: The partitions.
        reason: Why partitions were lost; otherwise empty.
    """

    kind: Literal["joined", "assigned", "revoked", "lost"]
    partitions: Collection[TopicPartition]
    reason: str = ""


@dataclass(slots=True, eq=False)
class Sending:
    """A record from the call that sends it to its outcome. The same object begins and ends.

    Attributes:
        topic: Topic.
        value: Serialized value.
        key: Serialized key.
        headers: Headers, which `on_send_begun` may change.
        metadata: The outcome at the end; None if the record failed.
        error: Why it failed.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    headers: list[Header]
    metadata: RecordMetadata | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class RecordsReceived:
    """A call of a consumer returns records.

    An iterator over records reports up to 256 records at once, when it returns the first of them.

    Attributes:
        records: The records by partition. During the call, keys and values are bytes.
        duration_s: Time that the call took.
    """

    records: Mapping[TopicPartition, Sequence[Record[Any, Any]]]
    duration_s: float


@dataclass(slots=True, eq=False)
class Processing:
    """An attempt of a worker to process records. The same object begins and ends.

    Attributes:
        records: One record, or the batch of a handler of batches.
        is_batch: True for a handler of batches.
        attempt: Number of the attempt, from 1.
        error: Exception of the attempt, at the end; None if it succeeded.
    """

    records: Sequence[Record[Any, Any]]
    is_batch: bool
    attempt: int
    error: BaseException | None = None
