"""States of a share session. A state owns the data that is valid only in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokafkawire.group.topic_id_partition import TopicIdPartition

from .acknowledgements import PartitionAcknowledgements

__all__ = (
    "FINAL_EPOCH",
    "OPENING_EPOCH",
    "NoSession",
    "SentAcknowledgements",
    "SessionBusy",
    "SessionClosed",
    "SessionEnding",
    "SessionIdle",
    "SessionState",
    "next_epoch",
)

OPENING_EPOCH = 0
"""Epoch of a ShareFetch that opens a session, or replaces one."""

FINAL_EPOCH = -1
"""Epoch of a request that closes a session; the broker releases all its records."""

MAX_EPOCH = 2**31 - 1

SentAcknowledgements = Mapping[TopicIdPartition, PartitionAcknowledgements]


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request after one with `epoch`."""
    return 1 if epoch == MAX_EPOCH else epoch + 1


@dataclass(frozen=True, slots=True)
class NoSession:
    """The broker has no session of this member. One may be opened from `not_before` on."""

    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionIdle:
    """No request is in flight; the next one has `epoch`. `listed` are the session's partitions."""

    epoch: int
    listed: frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True)
class SessionBusy:
    """A request with `epoch` is in flight. `listed` are the session's partitions after it."""

    request: int
    epoch: int
    listed: frozenset[TopicIdPartition]
    sent: SentAcknowledgements


@dataclass(frozen=True, slots=True)
class SessionEnding:
    """The request that closes the session is in flight."""

    request: int
    sent: SentAcknowledgements


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The client is closing: no session is opened any more."""


SessionState = NoSession | SessionIdle | SessionBusy | SessionEnding | SessionClosed
