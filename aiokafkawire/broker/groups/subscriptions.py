"""Subscriptions of the members of a consumer group."""

from __future__ import annotations

from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.events import ClassicGroupState
from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire.consumer_protocol import decode_subscription

__all__ = ("CONSUMER_PROTOCOL_TYPE", "is_consumer_group", "subscribed_topics")

CONSUMER_PROTOCOL_TYPE = "consumer"


def is_consumer_group(group: ClassicGroup) -> bool:
    """Return True if the member metadata are subscriptions."""
    return group.protocol_type == CONSUMER_PROTOCOL_TYPE


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """Return the topics of all members, None if they are unknown."""
    if group.state is ClassicGroupState.EMPTY or not is_consumer_group(group):
        return frozenset()
    topics: list[str] = []
    for member in group.members.values():
        try:
            subscription = decode_subscription(member.metadata(group.protocol))
        except MalformedMessage:
            return None
        topics += subscription.topics
    return frozenset(topics)
