"""Topics and partitions as the cluster and its nodes know them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.callbacks import Callbacks
from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.wire import ErrorCode

__all__ = (
    "CONSUMER_OFFSETS",
    "NO_LEADER",
    "SHARE_GROUP_STATE",
    "TRANSACTION_STATE",
    "Partition",
    "Topic",
    "check_new_topic_name",
    "check_topic_name",
    "is_internal_topic",
)

NO_LEADER = -1

CONSUMER_OFFSETS, TRANSACTION_STATE = "__consumer_offsets", "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

MAX_TOPIC_NAME_LENGTH = 249
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(slots=True, eq=False)
class Partition:
    """One partition. All nodes share its log, so every replica has all records.

    With `replicate` this is the controller's view, and each node has its own `Replica`. `elr` are
    then the eligible leader replicas: out of sync, but no records are lost if one becomes the
    leader. `last_known_leader` was the leader when the ISR became empty (KIP-966). `adding` and
    `removing` are the replicas that a reassignment in progress changes (KIP-455).
    """

    topic: str
    index: int
    replicas: list[int]
    log: PartitionLog
    leader: int = NO_LEADER
    leader_epoch: int = 0
    isr: list[int] = field(default_factory=list)
    elr: list[int] = field(default_factory=list)
    last_known_leader: int = NO_LEADER
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)
    deleted: bool = False
    on_change: Callbacks = field(default_factory=Callbacks)

    @property
    def high_watermark(self) -> int:
        """End of what consumers can read: here the log end offset."""
        return self.log.end_offset

    @property
    def is_high_watermark_current(self) -> bool:
        """Return False while a new leader may be behind the high watermark of the previous one."""
        return True

    @property
    def last_stable_offset(self) -> int:
        """End of what consumers with read_committed can read."""
        first = self.log.first_unstable_offset
        return self.high_watermark if first is None else min(first, self.high_watermark)

    def count_replicas_at(self, offset: int) -> int:
        """Return the number of replicas that have all records before an offset."""
        return len(self.isr)

    def on_append(self) -> None:
        """Notify of new records in the log."""
        self.on_change.notify()

    def make_leader(self, node_id: int) -> None:
        """Make a node the leader and bump the leader epoch."""
        if node_id != self.leader:
            self.leader = node_id
            self.leader_epoch += 1
            self.on_change.notify()

    def check_leader(self, node_id: int) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER unless the node leads."""
        if node_id != self.leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_leader_epoch(self, epoch: int) -> None:
        """Compare a client's leader epoch with the current one; -1 is not checked.

        Raises:
            ApiError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        if epoch < 0 or epoch == self.leader_epoch:
            return
        raise ApiError(
            ErrorCode.FENCED_LEADER_EPOCH
            if epoch < self.leader_epoch
            else ErrorCode.UNKNOWN_LEADER_EPOCH
        )


@dataclass(slots=True, eq=False)
class Topic:
    name: str
    topic_id: UUID
    partitions: list[Partition]
    configs: dict[str, str]


def is_internal_topic(name: str) -> bool:
    """Return True for the topics in which Kafka keeps its own state."""
    return name in INTERNAL_TOPICS


def check_topic_name(name: str) -> None:
    """Raise `ApiError` unless the name is valid for a topic."""
    if TOPIC_NAME.fullmatch(name) and name not in {".", ".."}:
        return
    if not name:
        reason = "the empty string is not allowed"
    elif name in {".", ".."}:
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = (
            f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
        )
    else:
        reason = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics,"
            " '.', '_' and '-'"
        )
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def check_new_topic_name(name: str, known: Iterable[str]) -> None:
    """Raise `ApiError` unless a topic with the name can be created beside the known ones."""
    check_topic_name(name)
    if name in known:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    flat = name.replace(".", "_")
    if "_" not in flat:
        return
    for other in known:
        if other.replace(".", "_") == flat:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )
