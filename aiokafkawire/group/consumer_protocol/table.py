"""Transition table of a member of the consumer protocol: a handler per state and event.

A pair that is missing in `TRANSITIONS` is impossible and raises `InvalidTransition`.

Protocol source: ConsumerGroupHeartbeat of Kafka's protocol guide, KIP-848, KIP-1082.
"""

from __future__ import annotations

from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership import states as outside
from aiokafkawire.group.membership.effects import MembershipEffect
from aiokafkawire.group.membership.leaving import mark_reported, shorten_leave
from aiokafkawire.runtime.state_machine import Transitions, each_of, stay

from . import events, heartbeats, leaving, reconciling, states
from .context import ConsumerProtocolContext

__all__ = ("TRANSITIONS",)

TRANSITIONS: Transitions[ConsumerProtocolContext, outside.MembershipState, MembershipEffect] = {
    **each_of(
        (
            outside.Unjoined,
            outside.PollTimedOut,
            outside.JoinFailed,
            outside.Fenced,
            outside.Leaving,
            states.LeavingUnpolled,
            states.ConsumerJoining,
            states.ConsumerStable,
            states.ConsumerRevocationDue,
            states.ConsumerRevoking,
        ),
        {
            shared.PollStarted: stay,
            shared.CommitRejected: stay,
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
        (
            states.ConsumerJoining,
            states.ConsumerStable,
            states.ConsumerRevocationDue,
            states.ConsumerRevoking,
        ),
        {
            shared.Subscribed: heartbeats.resubscribe,
            shared.DeadlineReached: leaving.check_poll_timer,
            shared.CoordinatorFound: heartbeats.coordinator_found,
            shared.CoordinatorNotFound: heartbeats.retry_elsewhere,
            shared.CoordinatorUnavailable: heartbeats.retry_elsewhere,
            shared.CoordinatorLoadInProgress: heartbeats.retry,
            shared.ProtocolViolation: heartbeats.retry_elsewhere,
            shared.UnknownServerErrorReceived: heartbeats.retry_after_error,
            shared.InstanceFenced: leaving.fence,
            shared.FatalErrorOccurred: leaving.fail,
            events.TopicsUnauthorized: heartbeats.raise_and_stay,
            events.ProtocolUnavailable: leaving.fall_back_or_fail,
        },
    ),
    (states.ConsumerJoining, events.HeartbeatResponded): heartbeats.joined,
    (states.ConsumerJoining, events.MemberFenced): leaving.fail_to_join,
    (states.ConsumerJoining, events.InstanceIdUnreleased): heartbeats.wait_until_released,
    **each_of(
        (states.ConsumerStable, states.ConsumerRevocationDue, states.ConsumerRevoking),
        {
            shared.CommitRejected: heartbeats.send_now,
            shared.Unsubscribed: leaving.revoke_and_leave,
            shared.CloseRequested: leaving.revoke_and_leave,
            events.TopicsResolved: reconciling.topics_resolved,
            events.HeartbeatResponded: heartbeats.responded,
            events.MemberFenced: heartbeats.lose_and_rejoin,
            events.InstanceIdUnreleased: leaving.fence,
        },
    ),
    (states.ConsumerRevocationDue, shared.PollStarted): reconciling.revoke_in_poll,
    (states.ConsumerRevoking, shared.PartitionsRevoked): reconciling.revoked,
    (states.ConsumerRevoking, shared.Unsubscribed): leaving.leave_after_revocation,
    (states.ConsumerRevoking, shared.CloseRequested): leaving.leave_after_revocation,
    (states.ConsumerRevoking, events.MemberFenced): reconciling.fenced_while_revoking,
    (outside.Leaving, shared.GroupLeft): leaving.left,
    (outside.Leaving, shared.DeadlineReached): leaving.left,
    (outside.Leaving, shared.Unsubscribed): leaving.store_topics,
    (outside.Leaving, shared.CloseRequested): shorten_leave,
    (outside.JoinFailed, shared.GroupErrorReported): mark_reported,
    (outside.JoinFailed, shared.PollStarted): leaving.retry_after_failure,
    (outside.Fenced, shared.GroupErrorReported): mark_reported,
}
