"""Storage of the offsets of a group, and the member that commits them."""

from __future__ import annotations

from typing import NamedTuple

from aiokafkawire.cluster.routing import ToAnyNode, ToCoordinator
from aiokafkawire.errors import UnsupportedVersion

from .membership.states import NO_GENERATION

__all__ = ("CommitIdentity", "OffsetStorage", "explain_unsupported")


class CommitIdentity(NamedTuple):
    """Generation and member id for OffsetCommit. Without a membership: the defaults."""

    generation: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    in_cooperative_rejoin: bool = False
    """True while the member is rejoining and keeps its partitions (KIP-429)."""
    has_epoch: bool = False
    """True if `generation` is a member epoch (KIP-848), which OffsetFetch v9+ has too."""


class OffsetStorage(NamedTuple):
    """Destination of offsets: broker, and versions of OffsetCommit and OffsetFetch."""

    route: ToCoordinator | ToAnyNode
    min_version: int
    max_version: int | None

    @classmethod
    def from_option(cls, kind: str, group_id: str) -> OffsetStorage:
        """Return the storage for the option `offsets_storage`.

        Version 0 of both APIs stores in ZooKeeper, through any broker; later versions in Kafka.
        """
        if kind == "zookeeper":
            return cls(ToAnyNode(), 0, 0)
        return cls(ToCoordinator(group_id), 1, None)


def explain_unsupported(error: UnsupportedVersion) -> None:
    """Add the releases that have each storage."""
    error.reason += (
        '; brokers from 0.8.2 store offsets in Kafka (offsets_storage="kafka"), those from 0.8.1 to'
        ' 2.8 in ZooKeeper (offsets_storage="zookeeper"), and 0.8.0 stores none'
    )
