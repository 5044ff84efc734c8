"""State machine of a group member: a table with a handler per state and event.

A pair that is missing in `TRANSITIONS` is impossible and raises `ImpossibleEvent`. The eager and
the cooperative protocol share the table: an eager member revokes all partitions and joins without
them (`AttemptingJoin`), a cooperative member keeps them while it rejoins (`CooperativeRejoin`).

Protocol source: consumer group APIs of Kafka's protocol guide (JoinGroup, SyncGroup, Heartbeat,
LeaveGroup), KIP-62, KIP-345, KIP-394, KIP-429, KIP-792.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime.interfaces import NEVER
from aiokafkawire.runtime.transitions import transition

from . import actions, events, heartbeats, joining, leaving, rebalancing, states
from .actions import Handler
from .effects import MembershipEffect

__all__ = (
    "TRANSITIONS",
    "GroupSettings",
    "MembershipMachine",
    "PollTimer",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Consumer options that affect the membership."""

    cooperative: bool
    group_instance_id: str | None
    session_timeout_ms: int
    session_timeout_is_default: bool
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    request_timeout_ms: int


class PollTimer:
    """Timer for max_poll_interval_ms. It stops while a poll is running.

    `interval_s` is max_poll_interval_ms in seconds, `open_polls` the number of running polls.
    """

    __slots__ = ("interval_s", "last_poll", "open_polls")

    def __init__(self, interval_s: float, now: float) -> None:
        self.interval_s = interval_s
        self.last_poll = now
        self.open_polls = 0

    def start_poll(self, now: float) -> None:
        self.open_polls += 1
        self.last_poll = now

    def finish_poll(self, now: float) -> None:
        self.open_polls -= 1
        self.last_poll = now

    @property
    def deadline(self) -> float:
        """When the poll interval ends; `NEVER` during a poll."""
        return NEVER if self.open_polls else self.last_poll + self.interval_s


class MembershipMachine:
    """The state of a group member. `handle` takes an event and returns the effects.

    The caller performs the effects in order, completes each request with one `RequestCompleted`
    event, and calls `handle(DeadlineReached(), now)` at `next_deadline()`.
    """

    def __init__(self, settings: GroupSettings, rng: random.Random, now: float) -> None:
        self.settings = settings
        self.state: states.MembershipState = states.Unjoined()
        self.topics: tuple[str, ...] = ()
        self.session_timeout_ms = settings.session_timeout_ms
        self.poll_timer = PollTimer(settings.max_poll_interval_ms / 1000, now)
        self._rng = rng
        self._backoff = Backoff.from_ms(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._last_request = 0
        self.protocol_violations = 0
        self.unknown_server_errors = 0
        self.join_reason = ""
        self.must_rejoin = False

    @property
    def is_closed(self) -> bool:
        return isinstance(self.state, states.MembershipClosed)

    @property
    def error(self) -> KafkaError | None:
        """The error that ended the membership; None while it can go on."""
        return (
            self.state.error if isinstance(self.state, states.JoinFailed | states.Fenced) else None
        )

    @property
    def generation(self) -> states.Generation | None:
        """The generation in which the member owns partitions; None if it owns none."""
        if isinstance(self.state, states.Assigned) and self.state.generation.member_id:
            return self.state.generation
        return None

    def handle(self, event: events.MembershipEvent, now: float) -> Sequence[MembershipEffect]:
        """Go to the next state and return its effects. Ignore late results of earlier requests."""
        if isinstance(event, events.RequestCompleted) and event.request not in self.state.awaited:
            return ()
        handler = transition(TRANSITIONS, self.state, event)
        self.state, effects = handler(self, self.state, event, now)
        return effects

    def next_deadline(self) -> float:
        """Return when `DeadlineReached` is due."""
        state = self.state
        if not isinstance(state, states.Stable | states.RevocationDue | states.CooperativeRejoin):
            return state.deadline
        if isinstance(state, states.CooperativeRejoin) and state.pending_leave is not None:
            # The member is leaving, so its poll timeout does not matter.
            return state.deadline
        return min(state.deadline, self.poll_timer.deadline)

    # For handlers -------------------------------------------------------------------------------

    def new_request(self) -> int:
        self._last_request += 1
        return self._last_request

    def backoff_s(self, attempt: int) -> float:
        """Return the backoff in seconds before retry number `attempt`, which starts at 1."""
        return self._backoff.delay(attempt, self._rng)

    def new_heartbeat(self, node: int | None, now: float) -> states.HeartbeatState:
        return states.HeartbeatState(
            node=node,
            request=None,
            next_at=now + self.settings.heartbeat_interval_ms / 1000,
            session_ends=now + self.session_timeout_ms / 1000,
        )


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
