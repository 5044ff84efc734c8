"""Transition table of a member of a share group: a handler per state and event.

The states and most handlers are those of the consumer protocol, without revocations and without
static members. A pair that is missing in `TRANSITIONS` is impossible and raises
`InvalidTransition`.

Protocol source: ShareGroupHeartbeat of Kafka's protocol guide, KIP-932.
"""

from __future__ import annotations

from aiokafkawire.group.consumer_protocol import (
    events,
    heartbeats,
    leaving,
    states,
)
from aiokafkawire.group.consumer_protocol.context import ConsumerProtocolContext
from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership import states as outside
from aiokafkawire.group.membership.effects import MembershipEffect
from aiokafkawire.group.membership.leaving import mark_reported, shorten_leave
from aiokafkawire.runtime.state_machine import Transitions, each_of, stay

from . import assigning

__all__ = ("TRANSITIONS",)

TRANSITIONS: Transitions[ConsumerProtocolContext, outside.MembershipState, MembershipEffect] = {
    **each_of(
        (
            outside.Unjoined,
            outside.PollTimedOut,
            outside.JoinFailed,
            outside.Leaving,
            states.LeavingUnpolled,
            states.ConsumerJoining,
            states.ConsumerStable,
        ),
        {
            shared.PollStarted: stay,
            shared.DeadlineReached: stay,
            shared.Subscribed: leaving.store_topics,
            shared.Unsubscribed: leaving.leave_without_partitions,
            shared.CloseRequested: leaving.leave_without_partitions,
            events.TopicsResolved: stay,
        },
    ),
    (outside.Unjoined, shared.Subscribed): heartbeats.start,
    (outside.PollTimedOut, shared.PollStarted): leaving.rejoin_in_poll,
    (states.LeavingUnpolled, shared.PollStarted): leaving.rejoin_after_leaving,
    (states.LeavingUnpolled, shared.Unsubscribed): leaving.stop_while_leaving,
    (states.LeavingUnpolled, shared.CloseRequested): leaving.stop_while_leaving,
    (states.LeavingUnpolled, shared.GroupLeft): leaving.left_unpolled,
    (states.LeavingUnpolled, shared.DeadlineReached): leaving.left_unpolled,
    **each_of(
        (states.ConsumerJoining, states.ConsumerStable),
        {
            shared.Subscribed: heartbeats.resubscribe,
            shared.DeadlineReached: leaving.check_poll_timer,
            shared.CoordinatorFound: heartbeats.coordinator_found,
            shared.CoordinatorNotFound: heartbeats.retry_elsewhere,
            shared.CoordinatorUnavailable: heartbeats.retry_elsewhere,
            shared.CoordinatorLoadInProgress: heartbeats.retry,
            shared.ProtocolViolation: heartbeats.retry_elsewhere,
            shared.UnknownServerErrorReceived: heartbeats.retry_after_error,
            shared.FatalErrorOccurred: leaving.fail,
            events.TopicsUnauthorized: heartbeats.raise_and_stay,
            events.ProtocolUnavailable: leaving.fall_back_or_fail,
        },
    ),
    (states.ConsumerJoining, events.HeartbeatResponded): assigning.joined,
    (states.ConsumerJoining, events.MemberFenced): leaving.fail_to_join,
    (states.ConsumerStable, shared.Unsubscribed): assigning.leave,
    (states.ConsumerStable, shared.CloseRequested): assigning.leave,
    (states.ConsumerStable, events.TopicsResolved): assigning.topics_resolved,
    (states.ConsumerStable, events.HeartbeatResponded): assigning.responded,
    (states.ConsumerStable, events.MemberFenced): heartbeats.lose_and_rejoin,
    (outside.Leaving, shared.GroupLeft): leaving.left,
    (outside.Leaving, shared.DeadlineReached): leaving.left,
    (outside.Leaving, shared.Unsubscribed): leaving.store_topics,
    (outside.Leaving, shared.CloseRequested): shorten_leave,
    (outside.JoinFailed, shared.GroupErrorReported): mark_reported,
    (outside.JoinFailed, shared.PollStarted): leaving.retry_after_failure,
}
