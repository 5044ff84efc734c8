"""Handlers of the way into a generation, the first or the next: from the look-up to the assignment.

A `Keeper` goes this way with what it owns; any other member has nothing until it is `Stable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aiokafkawire.errors import GroupFailed
from aiokafkawire.types import NodeId, TopicPartition

from . import effects as do
from . import events as on
from . import leaving, owning, steps
from . import states as s
from .steps import Outcome

if TYPE_CHECKING:
    from .membership import Membership

OLD_BROKERS_SESSION_TIMEOUT_MS = 30_000
"""The highest session timeout that a broker of release 0.9 grants with its own defaults."""

MAX_CONTRADICTIONS = 5
"""So many contradicting answers in a row, and the member gives up."""

MAX_SERVER_FAILURES = 10
"""So many failures inside of the coordinator in a row, and the application is told."""

GAVE_BACK = "it gave back partitions that others are to have"

NO_ASSIGNMENTS: Mapping[str, bytes] = {}


def start(m: Membership, state: s.State, event: on.Subscribed, now: float) -> Outcome:
    m.topics = event.topics
    return steps.ended(m, s.After.JOIN)


def join_there(
    m: Membership, state: s.FindingCoordinator, event: on.CoordinatorFound, now: float
) -> Outcome:
    return steps.join(m, event.node, state.identity)


def seek_later(m: Membership, state: s.Outside, event: on.Answer, now: float) -> Outcome:
    return steps.back_off(m, state.identity, None, now)


def join_later(
    m: Membership, state: s.Joining | s.Rejoining, event: on.Answer, now: float
) -> Outcome:
    return steps.try_again(m, state, state.node, now)


def doubt_server(
    m: Membership,
    state: s.Outside | s.Arriving | s.Keeper,
    event: on.ServerFailed,
    now: float,
) -> Outcome:
    """An error without a reason may pass; if it stays it is one that the application hears of."""
    if isinstance(state, s.Inside) and event.request == state.pulse.request:
        return owning.beat_in_spite(m, state, event, now)
    m.server_failures += 1
    if m.server_failures >= MAX_SERVER_FAILURES:
        return leaving.fail(m, state, on.Refused(event.request, event.error), now)
    after, effects = steps.try_again(m, state, None, now)
    if m.server_failures > 1:
        return after, effects
    return after, (
        do.Note(f"JoinGroup or SyncGroup failed: {event.error}; joining again", warning=True),
        *effects,
    )


def join_anew_later(m: Membership, state: s.Joining, event: on.Answer, now: float) -> Outcome:
    """The coordinator does not know the member id: it has to give another one."""
    return steps.back_off(m, s.Identity(attempt=state.identity.attempt), state.node, now)


def resume(m: Membership, state: s.BackingOff, event: on.Tick, now: float) -> Outcome:
    if now < state.until:
        return state, ()
    return steps.join(m, state.node, state.identity)


def join_under_id(
    m: Membership, state: s.Joining, event: on.MemberIdAssigned, now: float
) -> Outcome:
    if state.identity.member_id or not event.member_id:
        return distrust_id(m, state, event, now)
    return steps.join(m, state.node, replace(state.identity, member_id=event.member_id))


def distrust_id(
    m: Membership, state: s.Joining | s.Rejoining, event: on.MemberIdAssigned, now: float
) -> Outcome:
    reason = f"it requires another member id than {steps.identity_of(state).member_id!r}"
    return distrust(m, state, on.Contradicted(event.request, reason), now)


def lower_session_timeout(
    m: Membership, state: s.Joining | s.Rejoining, event: on.SessionTimeoutRefused, now: float
) -> Outcome:
    refused = m.session_timeout_ms
    if not m.settings.session_timeout_is_default or refused <= OLD_BROKERS_SESSION_TIMEOUT_MS:
        return leaving.fail(m, state, on.Refused(event.request, event.error), now)
    m.session_timeout_ms = OLD_BROKERS_SESSION_TIMEOUT_MS
    text = (
        f"the coordinator refuses the default session timeout of {refused} ms;"
        f" asking for {OLD_BROKERS_SESSION_TIMEOUT_MS} ms"
    )
    if isinstance(state, s.Rejoining):
        after, effects = steps.try_again(m, state, state.node, now)
    else:
        after, effects = steps.join(m, state.node, state.identity)
    return after, (do.Note(text), *effects)


def contradiction(
    identity: s.Identity, event: on.JoinedAsFollower | on.JoinedAsLeader
) -> str | None:
    """What is wrong with an answer to JoinGroup that says that it went well."""
    if not event.member_id:
        return "it joins a member without an id"
    if identity.member_id and event.member_id != identity.member_id:
        return f"it joins member {event.member_id!r} instead of {identity.member_id!r}"
    if event.generation < 0:
        return f"it gives generation {event.generation}"
    if identity.member_id and event.generation < identity.previous:
        return f"generation {event.generation} comes after {identity.previous}"
    if isinstance(event, on.JoinedAsLeader) and not event.skip_assignment:
        ids = [member.member_id for member in event.members]
        if event.member_id not in ids:
            return "it makes this member the leader without naming it among the members"
        if len(set(ids)) != len(ids):
            return "it names a member twice"
    return None


def joined(
    m: Membership, state: s.Joining, event: on.JoinedAsFollower | on.JoinedAsLeader, now: float
) -> Outcome:
    wrong = contradiction(state.identity, event)
    if wrong is not None:
        return distrust(m, state, on.Contradicted(event.request, wrong), now)
    attempt = state.identity.attempt
    if m.topics != state.topics:
        # Subscribed to other topics meanwhile: this generation's assignment is of no use.
        return steps.join(m, state.node, s.Identity(event.member_id, event.generation, attempt))
    generation = generation_of(event, state.topics)
    request = m.new_request()
    pulse = m.new_pulse(state.node, now)
    effects = next_requests(event, request, state.node, generation)
    if isinstance(effects[0], do.MakeAssignment):
        return s.Assigning(generation, pulse, request, attempt), effects
    return s.Syncing(generation, pulse, request, attempt), effects


def rejoined(
    m: Membership, state: s.Rejoining, event: on.JoinedAsFollower | on.JoinedAsLeader, now: float
) -> Outcome:
    """As `joined`, with partitions of the generation before."""
    wrong = contradiction(steps.identity_of(state), event)
    if wrong is not None:
        return distrust(m, state, on.Contradicted(event.request, wrong), now)
    # mutation: missed-generation-ignored
    if event.generation > state.generation.number + 1:
        # In between, what this member has may have been given to others.
        m.reason = "the group had a generation without this member"
        identity = s.Identity(event.member_id, event.generation, state.attempt)
        after, effects = steps.join(m, state.node, identity)
        return steps.or_leave(m, state, (after, (*steps.lose(state, m.reason), *effects)))
    generation = generation_of(event, state.topics)
    request = m.new_request()
    effects = next_requests(event, request, state.node, generation)
    assigns = isinstance(effects[0], do.MakeAssignment)
    busy = s.Reassigning if assigns else s.Resyncing
    pulse = m.new_pulse(state.node, now)
    return busy(generation, pulse, state.assignment, request, state.attempt, state.leaving), effects


def generation_of(
    event: on.JoinedAsFollower | on.JoinedAsLeader, topics: tuple[str, ...]
) -> s.Generation:
    leads = isinstance(event, on.JoinedAsLeader)
    return s.Generation(event.member_id, event.generation, event.protocol, topics, leads)


def next_requests(
    event: on.JoinedAsFollower | on.JoinedAsLeader,
    request: int,
    node: NodeId,
    generation: s.Generation,
) -> Sequence[do.Effect]:
    """Divide the partitions, or ask for those of this member."""
    sync = do.SendSync(request, node, generation, NO_ASSIGNMENTS)
    if not isinstance(event, on.JoinedAsLeader):
        return (sync,)
    if event.skip_assignment:
        return do.WatchPartitions(event.members), sync
    return (do.MakeAssignment(request, event.protocol, event.members),)


def hand_out(
    m: Membership,
    state: s.Assigning | s.Reassigning,
    event: on.AssignmentMade,
    now: float,
) -> Outcome:
    node = state.pulse.node
    if node is None:
        # The coordinator moved while the assignor ran; by now the group may have changed too.
        return steps.try_again(m, state, None, now)
    request = m.new_request()
    send = do.SendSync(request, node, state.generation, event.assignments)
    if isinstance(state, s.Reassigning):
        return s.Resyncing(
            state.generation, state.pulse, state.assignment, request, state.attempt, state.leaving
        ), (send,)
    return s.Syncing(state.generation, state.pulse, request, state.attempt), (send,)


def mismatch(state: s.Arriving, event: on.Synced) -> TopicPartition | None:
    """Something in an assignment that this member cannot have asked for."""
    subscribed = set(state.generation.topics)
    for tp in event.assignment:
        if tp.topic not in subscribed or tp.partition < 0:
            return tp
    return None


def refuse_assignment(
    m: Membership, state: s.Arriving, event: on.Synced, strange: TopicPartition, now: float
) -> Outcome:
    """Take nothing of it, and have the partitions divided anew.

    A static member that comes back with another subscription gets what it had with the old one.
    """
    wrong = f"it assigns {strange}, which was not subscribed to"
    m.contradictions += 1
    if m.contradictions >= MAX_CONTRADICTIONS:
        return distrust(m, state, on.Contradicted(event.request, wrong), now)
    m.reason = "the assignment does not fit the subscription"
    after, effects = steps.try_again(m, state, state.pulse.node, now)
    return after, (do.Note(f"rejoining: {wrong}"), *effects)


def become_stable(m: Membership, state: s.Syncing, event: on.Synced, now: float) -> Outcome:
    strange = mismatch(state, event)
    if strange is not None:
        return refuse_assignment(m, state, event, strange, now)
    given = tuple(sorted(dict.fromkeys(event.assignment)))
    return settle(m, s.Stable(state.generation, state.pulse, given), given, now)


def settle(m: Membership, stable: s.Stable, coming: s.Assignment, now: float) -> Outcome:
    m.contradictions = m.server_failures = 0
    effects = (
        do.EnterGeneration(stable.generation, stable.assignment),
        do.AssignPartitions(coming),
    )
    owes_join, m.owes_join = m.owes_join, False
    if m.topics != stable.generation.topics:
        reason = "the subscription changed"
    elif owes_join and m.settings.group_instance_id is not None:
        reason = GAVE_BACK
    else:
        return stable, effects
    after, more = steps.rebalance(m, stable, reason, now)
    return after, (*effects, *more)


def take_difference(m: Membership, state: s.Resyncing, event: on.Synced, now: float) -> Outcome:
    """Take what is new at once; give back what is not given any more, and join again without it."""
    strange = mismatch(state, event)
    if strange is not None:
        return refuse_assignment(m, state, event, strange, now)
    given = tuple(sorted(dict.fromkeys(event.assignment)))
    stays, had = set(given), set(state.assignment)
    going = tuple(tp for tp in state.assignment if tp not in stays)
    # mutation: new-partition-dropped-in-cooperative-rebalance
    coming = tuple(tp for tp in given if tp not in had)
    if not going and state.leaving is None:
        return settle(m, s.Stable(state.generation, state.pulse, given), coming, now)
    m.contradictions = m.server_failures = 0
    enter = do.EnterGeneration(state.generation, state.assignment)
    if state.leaving is not None:
        after, effects = steps.revoke(m, state, state.assignment, state.leaving.after)
    else:
        m.reason = GAVE_BACK
        after, effects = steps.give_back(m, state, going, coming)
    return after, (enter, *effects)


def distrust(
    m: Membership, state: s.Joining | s.Arriving | s.Keeper, event: on.Contradicted, now: float
) -> Outcome:
    """Start over as somebody new; too often in a row is too often."""
    if isinstance(state, s.Inside) and event.request == state.pulse.request:
        return owning.beat_elsewhere(m, state, event, now)
    text = f"the group coordinator contradicts itself: {event.reason}"
    identity = steps.identity_of(state)
    lost = steps.lose(state, text)
    leave = steps.quiet_leave(m, identity.member_id, now, "contradicting answers")
    m.contradictions += 1
    if m.contradictions >= MAX_CONTRADICTIONS:
        return steps.or_leave(m, state, (s.Failed(GroupFailed(text)), (*lost, *leave)))
    after, effects = steps.back_off(m, s.Identity(attempt=identity.attempt), None, now)
    note = do.Note(text, warning=True)
    return steps.or_leave(m, state, (after, (note, *lost, *leave, *effects)))


# --- a member of a generation that has no assignment of it yet --------------------------------


def rejoin_later(
    m: Membership, state: s.Arriving | s.Rejoining, event: on.Answer, now: float
) -> Outcome:
    if event.request != state.request:
        return owning.beat_later(m, state, event, now)
    return steps.try_again(m, state, state.pulse.node, now)


def rejoin_elsewhere(
    m: Membership, state: s.Arriving | s.Rejoining, event: on.Answer, now: float
) -> Outcome:
    if event.request != state.request:
        return owning.beat_elsewhere(m, state, event, now)
    return steps.try_again(m, state, None, now)


def rejoin_anew(m: Membership, state: s.Arriving, event: on.Answer, now: float) -> Outcome:
    """Forget the generation; the id as well, unless it is the generation alone that is over.

    Under a new id the group would wait for the old member until its session ends.
    """
    known = isinstance(event, on.GenerationOutdated)
    member_id = state.generation.member_id if known else ""
    identity = s.Identity(member_id, attempt=state.attempt)
    return steps.back_off(m, identity, state.pulse.node, now)


def rebalance_began(
    m: Membership, state: s.Arriving | s.Rejoining, event: on.RebalanceBegan, now: float
) -> Outcome:
    """Old brokers answer heartbeats so until SyncGroup is done: only its own answer counts."""
    if event.request != state.request:
        return owning.beaten(m, state, event, now)
    if state.attempt or isinstance(state, s.Keeper):
        return steps.try_again(m, state, state.pulse.node, now)
    identity = steps.identity_of(state)
    return steps.join(m, state.pulse.node, replace(identity, attempt=1))
