"""Effects of the machine that the classic protocol does not have; the others are shared."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.membership.effects import MembershipEffect
from aiokafkawire.group.topic_id_partition import Partitions
from aiokafkawire.types import NodeId

__all__ = (
    "ChangeEpoch",
    "RaiseError",
    "RefreshTopics",
    "SendConsumerHeartbeat",
    "SendLeaveEpoch",
    "UseClassicProtocol",
)


@dataclass(frozen=True, slots=True)
class SendConsumerHeartbeat(MembershipEffect):
    """Send a ConsumerGroupHeartbeat.

    `full` adds what never changes, such as the rebalance timeout. `topics`, `owned` and `pattern`
    are None if the coordinator knows them; the pattern is empty if there is none any more.
    """

    request: int
    node: NodeId
    epoch: int
    full: bool
    topics: tuple[str, ...] | None
    owned: Partitions | None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class SendLeaveEpoch(MembershipEffect):
    """Leave with epoch -1, or with -2 if the static member returns.

    `GroupLeft` follows whether or not the request succeeds.
    """

    request: int
    epoch: int
    deadline: float
    reason: str


@dataclass(frozen=True, slots=True)
class ChangeEpoch(MembershipEffect):
    """Offsets of `owned` are committed with this member epoch from now on."""

    epoch: int
    owned: Partitions


@dataclass(frozen=True, slots=True)
class RefreshTopics(MembershipEffect):
    """Refresh the metadata: names of assigned topics are not known."""


@dataclass(frozen=True, slots=True)
class UseClassicProtocol(MembershipEffect):
    """Join in the classic protocol instead. This member is closed."""

    error: KafkaError


@dataclass(frozen=True, slots=True)
class RaiseError(MembershipEffect):
    """The application's next call raises an error that does not end the membership."""

    error: KafkaError
