"""Transition table of a group member: a handler per state and event.

A pair that is missing in `TRANSITIONS` is impossible and raises `InvalidTransition`. The eager and
the cooperative protocol share the table: an eager member revokes all partitions and joins without
them (`AttemptingJoin`), a cooperative member keeps them while it rejoins (`CooperativeRejoin`).

Protocol source: consumer group APIs of Kafka's protocol guide (JoinGroup, SyncGroup, Heartbeat,
LeaveGroup), KIP-62, KIP-345, KIP-394, KIP-429, KIP-792.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from . import actions, events, heartbeats, joining, leaving, rebalancing, states
from .actions import Handler

__all__ = ("TRANSITIONS",)


def _transitions(
    state_types: Iterable[type[states.MembershipState]],
    handlers: Mapping[type[events.MembershipEvent], Handler],
) -> dict[tuple[type[states.MembershipState], type[events.MembershipEvent]], Handler]:
    return {(state, event): handler for state in state_types for event, handler in handlers.items()}


TRANSITIONS: Mapping[tuple[type[states.MembershipState], type[events.MembershipEvent]], Handler] = {
    **_transitions(
        (states.Unjoined,),
        {
            events.Subscribed: joining.start,
            events.Unsubscribed: actions.ignore,
            events.CloseRequested: leaving.leave_without_partitions,
            events.PollStarted: actions.ignore,
            events.RejoinRequested: actions.ignore,
            events.CommitRejected: actions.ignore,
            events.DeadlineReached: actions.ignore,
        },
    ),
    **_transitions(
        (states.FindingCoordinator, states.BackingOff, states.Joining),
        {
            events.Subscribed: actions.record_subscription,
            events.Unsubscribed: leaving.leave_without_partitions,
            events.CloseRequested: leaving.leave_without_partitions,
            events.PollStarted: actions.ignore,
            events.RejoinRequested: actions.ignore,
            events.CommitRejected: actions.ignore,
            events.DeadlineReached: actions.ignore,
        },
    ),
    (states.FindingCoordinator, events.CoordinatorFound): joining.join_at_coordinator,
    (states.FindingCoordinator, events.CoordinatorNotFound): joining.find_coordinator_later,
    (states.FindingCoordinator, events.UnknownServerErrorReceived): joining.on_unknown_server_error,
    (states.FindingCoordinator, events.FatalErrorOccurred): leaving.fail,
    (states.BackingOff, events.DeadlineReached): joining.join_when_due,
    **_transitions(
        (states.Joining,),
        {
            events.JoinedAsFollower: joining.joined,
            events.JoinedAsLeader: joining.joined,
            events.MemberIdAssigned: joining.join_with_member_id,
            events.SessionTimeoutRejected: joining.lower_session_timeout,
            events.CoordinatorUnavailable: joining.find_coordinator_later,
            events.CoordinatorLoadInProgress: joining.join_later,
            events.RebalanceInProgress: joining.join_later,
            events.UnknownMemberId: joining.join_as_new_member_later,
            events.IllegalGeneration: joining.join_as_new_member_later,
            events.ProtocolViolation: joining.on_protocol_violation,
            events.InstanceFenced: leaving.fence,
            events.UnknownServerErrorReceived: joining.on_unknown_server_error,
            events.FatalErrorOccurred: leaving.fail,
        },
    ),
    **_transitions(
        (states.Assigning, states.Syncing),
        {
            events.Subscribed: actions.record_subscription,
            events.Unsubscribed: leaving.leave_without_partitions,
            events.CloseRequested: leaving.leave_without_partitions,
            events.PollStarted: actions.ignore,
            events.RejoinRequested: actions.ignore,
            events.CommitRejected: actions.ignore,
            events.DeadlineReached: heartbeats.on_deadline,
            events.HeartbeatSucceeded: heartbeats.heartbeat_succeeded,
            events.CoordinatorFound: heartbeats.coordinator_found,
            events.CoordinatorNotFound: heartbeats.coordinator_lost,
            events.CoordinatorUnavailable: joining.find_coordinator_and_rejoin,
            events.CoordinatorLoadInProgress: joining.rejoin_later,
            events.RebalanceInProgress: joining.on_rebalance_in_progress,
            events.UnknownMemberId: joining.reset_and_rejoin,
            events.IllegalGeneration: joining.reset_and_rejoin,
            events.ProtocolViolation: joining.on_protocol_violation,
            events.InstanceFenced: leaving.fence,
            events.UnknownServerErrorReceived: joining.on_unknown_server_error,
            events.FatalErrorOccurred: leaving.fail,
        },
    ),
    (states.Assigning, events.AssignmentComputed): joining.send_assignments,
    (states.Syncing, events.Synced): joining.become_stable,
    **_transitions(
        (states.Stable, states.RevocationDue, states.Revoking),
        {
            events.Subscribed: actions.record_subscription,
            events.Unsubscribed: leaving.revoke_and_leave,
            events.CloseRequested: leaving.revoke_and_leave,
            events.PollStarted: actions.ignore,
            events.RejoinRequested: actions.ignore,
            events.CommitRejected: heartbeats.heartbeat_now,
            events.DeadlineReached: rebalancing.check_poll_timer,
            events.HeartbeatSucceeded: heartbeats.heartbeat_succeeded,
            events.CoordinatorFound: heartbeats.coordinator_found,
            events.CoordinatorNotFound: heartbeats.coordinator_lost,
            events.CoordinatorUnavailable: heartbeats.coordinator_lost,
            events.CoordinatorLoadInProgress: heartbeats.retry_heartbeat,
            events.RebalanceInProgress: heartbeats.heartbeat_succeeded,
            events.UnknownMemberId: rebalancing.lose_and_rejoin,
            events.IllegalGeneration: rebalancing.lose_and_rejoin,
            events.ProtocolViolation: heartbeats.coordinator_lost,
            events.InstanceFenced: leaving.fence,
            events.UnknownServerErrorReceived: heartbeats.retry_heartbeat_after_error,
            events.FatalErrorOccurred: leaving.fail,
        },
    ),
    (states.Stable, events.Subscribed): rebalancing.resubscribe,
    (states.Stable, events.RejoinRequested): rebalancing.rejoin_on_request,
    (states.Stable, events.RebalanceInProgress): rebalancing.rebalance,
    (states.RevocationDue, events.Subscribed): rebalancing.resubscribe_before_revocation,
    (states.RevocationDue, events.RebalanceInProgress): rebalancing.rebalance_before_revocation,
    (states.RevocationDue, events.PollStarted): rebalancing.revoke_now,
    **_transitions(
        (states.Revoking,),
        {
            events.Unsubscribed: leaving.leave_after_revocation,
            events.CloseRequested: leaving.leave_after_revocation,
            events.CommitRejected: actions.ignore,
            events.DeadlineReached: heartbeats.on_deadline,
            events.UnknownMemberId: rebalancing.forget_member_id,
            events.IllegalGeneration: rebalancing.forget_member_id,
            events.PartitionsRevoked: rebalancing.revoked,
        },
    ),
    **_transitions(
        (states.RejoinBackoff, states.Rejoining, states.Reassigning, states.Resyncing),
        {
            events.Subscribed: actions.record_subscription,
            events.Unsubscribed: leaving.leave_after_rebalance,
            events.CloseRequested: leaving.leave_after_rebalance,
            events.PollStarted: actions.ignore,
            events.RejoinRequested: actions.ignore,
            events.CommitRejected: heartbeats.heartbeat_now,
            events.DeadlineReached: rebalancing.check_pending_leave,
            events.HeartbeatSucceeded: heartbeats.heartbeat_succeeded,
            events.CoordinatorFound: heartbeats.coordinator_found,
            events.CoordinatorNotFound: heartbeats.coordinator_lost,
            events.CoordinatorUnavailable: joining.find_coordinator_and_rejoin,
            events.CoordinatorLoadInProgress: joining.rejoin_later,
            events.RebalanceInProgress: joining.on_rebalance_in_progress,
            events.UnknownMemberId: rebalancing.lose_and_rejoin,
            events.IllegalGeneration: rebalancing.lose_and_rejoin,
            events.ProtocolViolation: joining.on_protocol_violation,
            events.InstanceFenced: leaving.fence,
            events.UnknownServerErrorReceived: joining.on_unknown_server_error,
            events.FatalErrorOccurred: leaving.fail,
        },
    ),
    **_transitions(
        (states.RejoinBackoff,),
        {
            events.Unsubscribed: leaving.revoke_and_leave,
            events.CloseRequested: leaving.revoke_and_leave,
            events.DeadlineReached: rebalancing.rejoin_when_due,
            events.CoordinatorUnavailable: heartbeats.coordinator_lost,
            events.CoordinatorLoadInProgress: heartbeats.retry_heartbeat,
            events.RebalanceInProgress: heartbeats.heartbeat_succeeded,
            events.ProtocolViolation: heartbeats.coordinator_lost,
            events.UnknownServerErrorReceived: heartbeats.retry_heartbeat_after_error,
        },
    ),
    **_transitions(
        (states.Rejoining,),
        {
            events.JoinedAsFollower: joining.rejoined,
            events.JoinedAsLeader: joining.rejoined,
            events.MemberIdAssigned: joining.reject_member_id,
            events.SessionTimeoutRejected: joining.lower_session_timeout,
            events.CoordinatorFound: rebalancing.rejoin_at_new_coordinator,
            events.IllegalGeneration: rebalancing.illegal_generation_while_rejoining,
        },
    ),
    (states.Reassigning, events.AssignmentComputed): joining.send_assignments,
    (states.Resyncing, events.Synced): joining.apply_cooperative_assignment,
    **_transitions(
        (states.PollTimedOut,),
        {
            events.Subscribed: joining.start,
            events.Unsubscribed: leaving.leave_without_partitions,
            events.CloseRequested: leaving.leave_without_partitions,
            events.PollStarted: leaving.rejoin_after_poll_timeout,
            events.RejoinRequested: actions.ignore,
            events.CommitRejected: actions.ignore,
            events.DeadlineReached: actions.ignore,
        },
    ),
    **_transitions(
        (states.AwaitingMemberId, states.Leaving),
        {
            events.Subscribed: actions.record_subscription,
            events.Unsubscribed: leaving.stay_left,
            events.CloseRequested: leaving.shorten_leave,
            events.PollStarted: actions.ignore,
            events.RejoinRequested: actions.ignore,
            events.CommitRejected: actions.ignore,
            events.DeadlineReached: leaving.left,
        },
    ),
    **_transitions(
        (states.AwaitingMemberId,),
        {
            events.JoinedAsFollower: leaving.leave_with_member_id,
            events.JoinedAsLeader: leaving.leave_with_member_id,
            events.MemberIdAssigned: leaving.leave_with_member_id,
            events.SessionTimeoutRejected: leaving.left,
            events.CoordinatorUnavailable: leaving.left,
            events.CoordinatorLoadInProgress: leaving.left,
            events.RebalanceInProgress: leaving.left,
            events.UnknownMemberId: leaving.left,
            events.IllegalGeneration: leaving.left,
            events.ProtocolViolation: leaving.left,
            events.InstanceFenced: leaving.left,
            events.UnknownServerErrorReceived: leaving.left,
            events.FatalErrorOccurred: leaving.left,
        },
    ),
    (states.Leaving, events.GroupLeft): leaving.left,
    **_transitions(
        (states.Fenced, states.JoinFailed),
        {
            events.Subscribed: actions.record_subscription,
            events.Unsubscribed: leaving.leave_without_partitions,
            events.CloseRequested: leaving.leave_without_partitions,
            events.PollStarted: actions.ignore,
            events.RejoinRequested: actions.ignore,
            events.CommitRejected: actions.ignore,
            events.DeadlineReached: actions.ignore,
            events.GroupErrorReported: leaving.mark_reported,
        },
    ),
    (states.JoinFailed, events.PollStarted): leaving.retry_after_failure,
}
