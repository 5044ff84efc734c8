"""Observe the members of an embedded broker's groups: removals, and partitions given twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from aiokafkawire.broker import Broker, SeenRequest
from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.events import ClassicGroupState
from aiokafkawire.broker.groups.group_coordinator import Group
from aiokafkawire.wire import ApiKey
from verify.invariants.observed import MemberRemoved, SharedPartition

__all__ = ("GroupObserver", "members_of")

APIS = frozenset(
    {
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
    }
)
"""Requests after which the members of their group are compared with the earlier ones."""


def members_of(group: Group) -> Mapping[str, Any]:
    """Return the members of a group of either type, by member id."""
    return group.data.members if isinstance(group, ConsumerGroup) else group.members


REVOKED_AFTER_S = 10.0
"""Time after a rebalance in which cooperative members may still revoke partitions."""


class GroupObserver:
    """Compares the members of a group after each request of one of them."""

    def __init__(self, broker: Broker) -> None:
        self.removed: list[MemberRemoved] = []
        self.shared: list[SharedPartition] = []
        self._broker = broker
        self._clients: dict[str, frozenset[str]] = {}
        self._rebalanced_at: dict[str, float] = {}

    def saw(self, seen: SeenRequest) -> None:
        if seen.api_key not in APIS:
            return
        message: Any = seen.message
        state = self._broker._running
        group = state.group_coordinator.get(message.group_id)
        now = state.clock.now()
        clients: frozenset[str] = frozenset()
        if group is not None:
            clients = frozenset(member.client_id for member in members_of(group).values())
        gone = self._clients.get(message.group_id, frozenset()) - clients
        if getattr(message, "member_epoch", None) == 0:
            # The coordinator takes all partitions of a member that joins again as revoked.
            gone |= {seen.client_id}
        if isinstance(group, ClassicGroup):
            rebalances = group.state is not ClassicGroupState.STABLE
            if rebalances or seen.api_key is ApiKey.SYNC_GROUP:
                self._rebalanced_at[message.group_id] = now
        elif now < self._rebalanced_at.pop(message.group_id, -REVOKED_AFTER_S) + REVOKED_AFTER_S:
            # A conversion takes the assignment of the classic group, as in Kafka. It lacks what
            # cooperative members still have to revoke.
            self.removed += [
                MemberRemoved(now, name, message.group_id, by_conversion=True)
                for name in sorted(clients - gone)
            ]
        self.removed += [MemberRemoved(now, name, message.group_id) for name in sorted(gone)]
        self._clients[message.group_id] = clients
        if isinstance(group, ConsumerGroup):
            self._compare_partitions(group, now)

    def _compare_partitions(self, group: ConsumerGroup, now: float) -> None:
        owners: dict[tuple[UUID, int], str] = {}
        for member in group.data.members.values():
            for given in (member.assigned, member.pending_revocation):
                for topic, partitions in given.items():
                    for partition in partitions:
                        other = owners.setdefault((topic, partition), member.client_id)
                        if other != member.client_id:
                            clients = (other, member.client_id)
                            shared = SharedPartition(now, group.group_id, partition, clients)
                            self.shared.append(shared)
