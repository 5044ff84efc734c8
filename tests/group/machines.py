"""Membership machines in states that tests start with."""

from __future__ import annotations

import random
from typing import Any

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.membership import events, states
from aiokafkawire.group.membership.context import GroupSettings
from aiokafkawire.group.membership.effects import (
    AssignPartitions,
    FindCoordinator,
    SendHeartbeat,
    SendJoin,
    SendSync,
)
from aiokafkawire.group.membership.membership_machine import MembershipMachine
from aiokafkawire.types import TopicPartition

NODE = 7
REQUEST = 100
HEARTBEAT_REQUEST = 101
TOPICS = ("orders",)
P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)
GENERATION = states.Generation("me", 5, "range", TOPICS, is_leader=False)
HEARTBEAT = states.HeartbeatState(NODE, HEARTBEAT_REQUEST, next_at=3.0, session_ends=45.0)
ATTEMPT = states.JoinAttempt("the consumer subscribed")
KNOWN = states.JoinIdentity(ATTEMPT, "me", 5)
ERROR = KafkaError("refused")
MEMBERS = (
    states.JoinedMember("me", None, b""),
    states.JoinedMember("other", None, b""),
)


def settings(**changes: Any) -> GroupSettings:
    values: dict[str, Any] = {
        "cooperative": False,
        "group_instance_id": None,
        "session_timeout_ms": 45_000,
        "session_timeout_is_default": True,
        "heartbeat_interval_ms": 3_000,
        "max_poll_interval_ms": 300_000,
        "retry_backoff_ms": 100,
        "retry_backoff_max_ms": 1_000,
        "request_timeout_ms": 30_000,
    }
    return GroupSettings(**values | changes)


def machine(state: states.MembershipState | None = None, **changes: Any) -> MembershipMachine:
    membership = MembershipMachine(settings(**changes), random.Random(1), now=0.0)
    if state is not None:
        membership.state = state
        if not isinstance(state, states.Unjoined):
            membership.context.topics = TOPICS
    membership.context._last_request = 1_000
    return membership


def as_response(event: Any, state: states.MembershipState) -> Any:
    """Return the event with the number of a request that the state awaits."""
    if not isinstance(event, events.RequestCompleted) or not state.awaited:
        return event
    awaited = state.awaited[0]
    fields = {name: getattr(event, name) for name in type(event).__dataclass_fields__}  # type: ignore[attr-defined]
    return type(event)(**fields | {"request": awaited})


def only(effects: Any, cls: type) -> Any:
    found = [effect for effect in effects if isinstance(effect, cls)]
    assert len(found) == 1, effects
    return found[0]


def joining(**changes: Any) -> tuple[MembershipMachine, Any]:
    membership = machine(**changes)
    find = only(membership.handle(events.Subscribed(TOPICS), 0.0), FindCoordinator)
    join = only(membership.handle(events.CoordinatorFound(find.request, NODE), 0.0), SendJoin)
    return membership, join


def stable(now: float = 0.0, **changes: Any) -> MembershipMachine:
    membership, join = joining(**changes)
    joined = events.JoinedAsFollower(join.request, "me", 1, "range")
    sync = only(membership.handle(joined, now), SendSync)
    assign = only(membership.handle(events.Synced(sync.request, (P1, P0)), now), AssignPartitions)
    assert assign.partitions == (P0, P1)
    return membership


def answer_heartbeats(membership: MembershipMachine, until: float) -> None:
    """Answer heartbeats until a time."""
    while (now := membership.next_deadline()) < until:
        heartbeat = only(membership.handle(events.DeadlineReached(), now), SendHeartbeat)
        membership.handle(events.HeartbeatSucceeded(heartbeat.request), now)


def cooperative_rejoin(group_instance_id: str | None = None) -> tuple[MembershipMachine, Any]:
    """Return a cooperative member of generation 1 with both partitions, and its next JoinGroup."""
    membership = stable(cooperative=True, group_instance_id=group_instance_id)
    heartbeat = only(membership.handle(events.DeadlineReached(), 3.0), SendHeartbeat)
    join = only(membership.handle(events.RebalanceInProgress(heartbeat.request), 3.0), SendJoin)
    assert isinstance(membership.state, states.Rejoining)
    return membership, join


def resyncing() -> tuple[MembershipMachine, Any]:
    """Return the same member, with its SyncGroup in generation 2."""
    membership, join = cooperative_rejoin()
    joined = events.JoinedAsFollower(join.request, "me", 2, "cooperative-sticky")
    return membership, only(membership.handle(joined, 3.0), SendSync)
