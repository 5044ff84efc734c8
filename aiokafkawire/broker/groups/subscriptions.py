"""What the members of a consumer group say that they read."""

from __future__ import annotations

from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.events import GroupState
from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire.consumer_protocol import decode_subscription

__all__ = ("is_consumer_group", "subscribed_topics")

CONSUMER_PROTOCOL_TYPE = "consumer"


def is_consumer_group(group: ClassicGroup) -> bool:
    """Whether its members' metadata are subscriptions."""
    return group.protocol_type == CONSUMER_PROTOCOL_TYPE


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """The topics of all members; None when that cannot be told, so that it may be any."""
    if group.state is GroupState.EMPTY or not is_consumer_group(group):
        return frozenset()
    topics: list[str] = []
    for member in group.members.values():
        try:
            subscription = decode_subscription(member.metadata(group.protocol))
        except MalformedMessage:
            return None
        topics += subscription.topics
    return frozenset(topics)
