"""The membership of a consumer group: one table of (state, event) pairs.

A pair that is not in `TRANSITIONS` cannot happen, and raises. The cooperative protocol is a matter
of rows: where an eager member gives everything back and joins with nothing (`Outside`), a
cooperative one becomes a `Keeper`, which owns what it had until it learns what it has now.

Protocol source: "Consumer group" APIs of Kafka's protocol guide (JoinGroup, SyncGroup, Heartbeat,
LeaveGroup), KIP-62, KIP-345, KIP-394, KIP-429, KIP-792.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime.base import NEVER
from aiokafkawire.runtime.transitions import transition

from . import effects as do
from . import entering, leaving, owning, steps
from . import events as on
from . import states as s
from .steps import Handler

__all__ = (
    "TRANSITIONS",
    "GroupSettings",
    "Membership",
    "Presence",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What of a consumer's options the membership hangs on."""

    cooperative: bool
    group_instance_id: str | None
    session_timeout_ms: int
    session_timeout_is_default: bool
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    request_timeout_ms: int


class Presence:
    """Whether the application is here: in a call now, or when it last was.

    `allowance_s` is max_poll_interval_ms in seconds.
    """

    __slots__ = ("allowance_s", "last_call", "waiting")

    def __init__(self, allowance_s: float, now: float) -> None:
        self.allowance_s = allowance_s
        self.last_call = now
        self.waiting = 0

    def enter(self, now: float) -> None:
        self.waiting += 1
        self.last_call = now

    def leave(self, now: float) -> None:
        self.waiting -= 1
        self.last_call = now

    @property
    def deadline(self) -> float:
        """When the application counts as gone."""
        return NEVER if self.waiting else self.last_call + self.allowance_s


class Membership:
    """Holds the state; `handle` is given what happened and says what is to be done.

    Whoever drives it performs the effects in their order, answers each request with one event of
    its number (`Answer`), and calls `handle(Tick(), now)` when `next_deadline()` has come.
    """

    def __init__(self, settings: GroupSettings, rng: random.Random, now: float) -> None:
        self.settings = settings
        self.state: s.State = s.Unjoined()
        self.topics: tuple[str, ...] = ()
        self.session_timeout_ms = settings.session_timeout_ms
        self.presence = Presence(settings.max_poll_interval_ms / 1000, now)
        self._rng = rng
        self._backoff = Backoff.from_ms(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._last_request = 0
        self.contradictions = 0
        self.server_failures = 0
        self.reason = ""
        self.owes_join = False

    @property
    def done(self) -> bool:
        return isinstance(self.state, s.Closed)

    @property
    def error(self) -> KafkaError | None:
        """Why nothing will come any more, if so."""
        return self.state.error if isinstance(self.state, s.Failed | s.Fenced) else None

    @property
    def generation(self) -> s.Generation | None:
        """The generation in which this member owns partitions, if it does."""
        if isinstance(self.state, s.Owner) and self.state.generation.member_id:
            return self.state.generation
        return None

    def handle(self, event: on.Event, now: float) -> Sequence[do.Effect]:
        """Go to the next state. An answer that the state does not wait for is late: no effect."""
        if isinstance(event, on.Answer) and event.request not in self.state.awaited:
            return ()
        handler = transition(TRANSITIONS, self.state, event)
        self.state, effects = handler(self, self.state, event, now)
        return effects

    def next_deadline(self) -> float:
        """When to call `handle(Tick(), now)` at the latest."""
        state = self.state
        if not isinstance(state, s.Stable | s.RevocationDue | s.Keeper):
            return state.deadline
        if isinstance(state, s.Keeper) and state.departure is not None:
            # It leaves soon anyway.
            return state.deadline
        return min(state.deadline, self.presence.deadline)

    # What handlers share ------------------------------------------------------------------------

    def new_request(self) -> int:
        self._last_request += 1
        return self._last_request

    def backoff_s(self, attempt: int) -> float:
        """Seconds before attempt number `attempt` (1 is the first repetition)."""
        return self._backoff.delay(attempt, self._rng)

    def new_pulse(self, node: int | None, now: float) -> s.Pulse:
        return s.Pulse(
            node=node,
            request=None,
            next_at=now + self.settings.heartbeat_interval_ms / 1000,
            session_ends=now + self.session_timeout_ms / 1000,
        )


def _rows(
    states: Iterable[type[s.State]], rows: Mapping[type[on.Event], Handler]
) -> dict[tuple[type[s.State], type[on.Event]], Handler]:
    return {(state, event): handler for state in states for event, handler in rows.items()}


TRANSITIONS: Mapping[tuple[type[s.State], type[on.Event]], Handler] = {
    **_rows(
        (s.Unjoined,),
        {
            on.Subscribed: entering.start,
            on.Unsubscribed: steps.stay,
            on.Closing: leaving.leave_early,
            on.ApplicationEntered: steps.stay,
            on.Rejoin: steps.stay,
            on.Doubted: steps.stay,
            on.Tick: steps.stay,
        },
    ),
    **_rows(
        (s.FindingCoordinator, s.BackingOff, s.Joining),
        {
            on.Subscribed: steps.subscribe,
            on.Unsubscribed: leaving.leave_early,
            on.Closing: leaving.leave_early,
            on.ApplicationEntered: steps.stay,
            on.Rejoin: steps.stay,
            on.Doubted: steps.stay,
            on.Tick: steps.stay,
        },
    ),
    (s.FindingCoordinator, on.CoordinatorFound): entering.join_there,
    (s.FindingCoordinator, on.CoordinatorMissing): entering.seek_later,
    (s.FindingCoordinator, on.ServerFailed): entering.doubt_server,
    (s.FindingCoordinator, on.Refused): leaving.fail,
    (s.BackingOff, on.Tick): entering.resume,
    **_rows(
        (s.Joining,),
        {
            on.JoinedAsFollower: entering.joined,
            on.JoinedAsLeader: entering.joined,
            on.MemberIdAssigned: entering.join_under_id,
            on.SessionTimeoutRefused: entering.lower_session_timeout,
            on.CoordinatorLost: entering.seek_later,
            on.CoordinatorLoading: entering.join_later,
            on.RebalanceBegan: entering.join_later,
            on.MemberUnknown: entering.join_anew_later,
            on.GenerationOutdated: entering.join_anew_later,
            on.Contradicted: entering.distrust,
            on.InstanceFenced: leaving.fence,
            on.ServerFailed: entering.doubt_server,
            on.Refused: leaving.fail,
        },
    ),
    **_rows(
        (s.Assigning, s.Syncing),
        {
            on.Subscribed: steps.subscribe,
            on.Unsubscribed: leaving.leave_early,
            on.Closing: leaving.leave_early,
            on.ApplicationEntered: steps.stay,
            on.Rejoin: steps.stay,
            on.Doubted: steps.stay,
            on.Tick: owning.beat_on,
            on.HeartbeatAnswered: owning.beaten,
            on.CoordinatorFound: owning.beat_there,
            on.CoordinatorMissing: owning.beat_elsewhere,
            on.CoordinatorLost: entering.rejoin_elsewhere,
            on.CoordinatorLoading: entering.rejoin_later,
            on.RebalanceBegan: entering.rebalance_began,
            on.MemberUnknown: entering.rejoin_anew,
            on.GenerationOutdated: entering.rejoin_anew,
            on.Contradicted: entering.distrust,
            on.InstanceFenced: leaving.fence,
            on.ServerFailed: entering.doubt_server,
            on.Refused: leaving.fail,
        },
    ),
    (s.Assigning, on.AssignmentMade): entering.hand_out,
    (s.Syncing, on.Synced): entering.become_stable,
    **_rows(
        (s.Stable, s.RevocationDue, s.Revoking),
        {
            on.Subscribed: steps.subscribe,
            on.Unsubscribed: leaving.leave_as_owner,
            on.Closing: leaving.leave_as_owner,
            on.ApplicationEntered: steps.stay,
            on.Rejoin: steps.stay,
            on.Doubted: owning.beat_at_once,
            on.Tick: owning.watch,
            on.HeartbeatAnswered: owning.beaten,
            on.CoordinatorFound: owning.beat_there,
            on.CoordinatorMissing: owning.beat_elsewhere,
            on.CoordinatorLost: owning.beat_elsewhere,
            on.CoordinatorLoading: owning.beat_later,
            on.RebalanceBegan: owning.beaten,
            on.MemberUnknown: owning.lose_and_rejoin,
            on.GenerationOutdated: owning.lose_and_rejoin,
            on.Contradicted: owning.beat_elsewhere,
            on.InstanceFenced: leaving.fence,
            on.ServerFailed: owning.beat_in_spite,
            on.Refused: leaving.fail,
        },
    ),
    (s.Stable, on.Subscribed): owning.resubscribe,
    (s.Stable, on.Rejoin): owning.rejoin_for,
    (s.Stable, on.RebalanceBegan): owning.rebalance,
    (s.RevocationDue, on.Subscribed): owning.resubscribe_due,
    (s.RevocationDue, on.RebalanceBegan): owning.rebalance_while_due,
    (s.RevocationDue, on.ApplicationEntered): owning.revoke_now,
    **_rows(
        (s.Revoking,),
        {
            on.Unsubscribed: leaving.leave_after_revocation,
            on.Closing: leaving.leave_after_revocation,
            on.Doubted: steps.stay,
            on.Tick: owning.beat_on,
            on.MemberUnknown: owning.forget_identity,
            on.GenerationOutdated: owning.forget_identity,
            on.Revoked: owning.revoked,
        },
    ),
    **_rows(
        (s.Returning, s.Rejoining, s.Reassigning, s.Resyncing),
        {
            on.Subscribed: steps.subscribe,
            on.Unsubscribed: leaving.leave_when_settled,
            on.Closing: leaving.leave_when_settled,
            on.ApplicationEntered: steps.stay,
            on.Rejoin: steps.stay,
            on.Doubted: owning.beat_at_once,
            on.Tick: owning.watch_keeper,
            on.HeartbeatAnswered: owning.beaten,
            on.CoordinatorFound: owning.beat_there,
            on.CoordinatorMissing: owning.beat_elsewhere,
            on.CoordinatorLost: entering.rejoin_elsewhere,
            on.CoordinatorLoading: entering.rejoin_later,
            on.RebalanceBegan: entering.rebalance_began,
            on.MemberUnknown: owning.lose_and_rejoin,
            on.GenerationOutdated: owning.lose_and_rejoin,
            on.Contradicted: entering.distrust,
            on.InstanceFenced: leaving.fence,
            on.ServerFailed: entering.doubt_server,
            on.Refused: leaving.fail,
        },
    ),
    **_rows(
        (s.Returning,),
        {
            on.Unsubscribed: leaving.leave_as_owner,
            on.Closing: leaving.leave_as_owner,
            on.Tick: owning.return_when_due,
            on.CoordinatorLost: owning.beat_elsewhere,
            on.CoordinatorLoading: owning.beat_later,
            on.RebalanceBegan: owning.beaten,
            on.Contradicted: owning.beat_elsewhere,
            on.ServerFailed: owning.beat_in_spite,
        },
    ),
    **_rows(
        (s.Rejoining,),
        {
            on.JoinedAsFollower: entering.rejoined,
            on.JoinedAsLeader: entering.rejoined,
            on.MemberIdAssigned: entering.distrust_id,
            on.SessionTimeoutRefused: entering.lower_session_timeout,
            on.CoordinatorFound: owning.join_elsewhere,
            on.GenerationOutdated: owning.outdated_while_joining,
        },
    ),
    (s.Reassigning, on.AssignmentMade): entering.hand_out,
    (s.Resyncing, on.Synced): entering.take_difference,
    **_rows(
        (s.Lapsed,),
        {
            on.Subscribed: entering.start,
            on.Unsubscribed: leaving.leave_early,
            on.Closing: leaving.leave_early,
            on.ApplicationEntered: leaving.come_back,
            on.Rejoin: steps.stay,
            on.Doubted: steps.stay,
            on.Tick: steps.stay,
        },
    ),
    **_rows(
        (s.AwaitingIdentity, s.Leaving),
        {
            on.Subscribed: steps.subscribe,
            on.Unsubscribed: leaving.stay_away,
            on.Closing: leaving.hurry,
            on.ApplicationEntered: steps.stay,
            on.Rejoin: steps.stay,
            on.Doubted: steps.stay,
            on.Tick: leaving.left,
        },
    ),
    **_rows(
        (s.AwaitingIdentity,),
        {
            on.JoinedAsFollower: leaving.leave_known,
            on.JoinedAsLeader: leaving.leave_known,
            on.MemberIdAssigned: leaving.leave_known,
            on.SessionTimeoutRefused: leaving.left,
            on.CoordinatorLost: leaving.left,
            on.CoordinatorLoading: leaving.left,
            on.RebalanceBegan: leaving.left,
            on.MemberUnknown: leaving.left,
            on.GenerationOutdated: leaving.left,
            on.Contradicted: leaving.left,
            on.InstanceFenced: leaving.left,
            on.ServerFailed: leaving.left,
            on.Refused: leaving.left,
        },
    ),
    (s.Leaving, on.LeftGroup): leaving.left,
    **_rows(
        (s.Fenced, s.Failed),
        {
            on.Subscribed: steps.subscribe,
            on.Unsubscribed: leaving.leave_early,
            on.Closing: leaving.leave_early,
            on.ApplicationEntered: steps.stay,
            on.Rejoin: steps.stay,
            on.Doubted: steps.stay,
            on.Tick: steps.stay,
            on.Told: leaving.told,
        },
    ),
    (s.Failed, on.ApplicationEntered): leaving.try_anew,
}
