"""Events of a share session, and the effects that it asks for.

An event that completes a request has its number, so that late events are recognized.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.errors import AcknowledgementFailed, KafkaError
from aiokafkawire.group.topic_id_partition import TopicIdPartition

from .acknowledgements import PartitionAcknowledgements
from .locks import AcquisitionLock
from .session_states import SentAcknowledgements

__all__ = (
    "AcknowledgeResponded",
    "AcquiredOffsets",
    "CompleteAcknowledgements",
    "DemandChanged",
    "FetchResponded",
    "FetchedPartition",
    "FlushRequested",
    "PartitionsChanged",
    "RecordsAcknowledged",
    "ReplaceConnection",
    "ReportPartitionError",
    "RequestDue",
    "RequestFailed",
    "SendAcknowledge",
    "SendFetch",
    "SessionCloseRequested",
    "SessionEffect",
    "SessionEvent",
)


class SessionEvent:
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PartitionsChanged(SessionEvent):
    """These are the assigned partitions that the broker leads."""

    partitions: frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True)
class DemandChanged(SessionEvent):
    """The application needs records, or has enough of them."""

    wants_records: bool


@dataclass(frozen=True, slots=True)
class RecordsAcknowledged(SessionEvent):
    """The application has acknowledged records. Those that are not held under `lock` are ignored.

    Without a `lock`, the current lock of an offset counts. With `only_undecided`, records that are
    acknowledged already are left out.
    """

    partition: TopicIdPartition
    offsets: Sequence[int]
    type: int
    lock: AcquisitionLock | None
    only_undecided: bool = False


@dataclass(frozen=True, slots=True)
class FlushRequested(SessionEvent):
    """A call waits for the result of the acknowledgements: send them as soon as possible."""


@dataclass(frozen=True, slots=True)
class SessionCloseRequested(SessionEvent):
    """The client is closing: send all acknowledgements and close the session."""


@dataclass(frozen=True, slots=True)
class RequestDue(SessionEvent):
    """A request may be due. The caller sends this event after each other one."""


class SessionRequestCompleted(SessionEvent):
    """Base of the events that complete the request with this number."""

    __slots__ = ()
    request: int


class AcquiredOffsets(NamedTuple):
    """Offsets from `first` to `last` that a fetch has acquired."""

    first: int
    last: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """A partition in a ShareFetch response. Its acquired records are held under `lock`."""

    partition: TopicIdPartition
    lock: AcquisitionLock
    error: KafkaError | None = None
    acknowledge_error: KafkaError | None = None
    acquired: tuple[AcquiredOffsets, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchResponded(SessionRequestCompleted):
    """A ShareFetch succeeded."""

    request: int
    partitions: tuple[FetchedPartition, ...]


@dataclass(frozen=True, slots=True)
class AcknowledgeResponded(SessionRequestCompleted):
    """A ShareAcknowledge succeeded. `errors` has an entry for each partition in the response.

    The locks of renewed records expire at `renewed_until`.
    """

    request: int
    errors: Mapping[TopicIdPartition, KafkaError | None]
    renewed_until: float


@dataclass(frozen=True, slots=True)
class RequestFailed(SessionRequestCompleted):
    """The broker rejected the request as a whole, or did not respond.

    Another session may be opened at `retry_at`.
    """

    request: int
    error: KafkaError
    retry_at: float


class SessionEffect:
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SendFetch(SessionEffect):
    """Send a ShareFetch. `added` and `forgotten` change the partitions of the session.

    With `holds_records` the broker must respond soon: acknowledgements wait behind this request.
    """

    request: int
    epoch: int
    added: frozenset[TopicIdPartition]
    forgotten: frozenset[TopicIdPartition]
    acknowledgements: SentAcknowledgements
    holds_records: bool


@dataclass(frozen=True, slots=True)
class SendAcknowledge(SessionEffect):
    """Send a ShareAcknowledge."""

    request: int
    epoch: int
    acknowledgements: SentAcknowledgements


@dataclass(frozen=True, slots=True)
class CompleteAcknowledgements(SessionEffect):
    """The result of acknowledgements is known. Offsets whose lock expired failed in any case."""

    partition: TopicIdPartition
    acknowledgements: PartitionAcknowledgements
    error: AcknowledgementFailed | None


@dataclass(frozen=True, slots=True)
class ReportPartitionError(SessionEffect):
    """A partition cannot be fetched; it is tried again after a backoff."""

    partition: TopicIdPartition
    error: KafkaError


@dataclass(frozen=True, slots=True)
class ReplaceConnection(SessionEffect):
    """Close the connection: the broker then releases the records of the lost session at once."""
