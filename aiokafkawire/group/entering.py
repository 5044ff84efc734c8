"""Handlers of a member that has no partitions yet: from the first look-up to the assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from aiokafkawire.errors import GroupFailed

from . import effects as do
from . import events as on
from . import owning, steps
from . import states as s
from .steps import Outcome

if TYPE_CHECKING:
    from .membership import Membership

OLD_BROKERS_SESSION_TIMEOUT_MS = 30_000
"""The highest session timeout that a broker of release 0.9 grants with its own defaults."""

MAX_CONTRADICTIONS = 5
"""So many contradicting answers in a row, and the member gives up."""

NO_ASSIGNMENTS: Mapping[str, bytes] = {}


def start(m: Membership, state: s.State, event: on.Subscribed, now: float) -> Outcome:
    m.topics = event.topics
    return steps.seek(m, s.NOBODY)


def join_there(
    m: Membership, state: s.FindingCoordinator, event: on.CoordinatorFound, now: float
) -> Outcome:
    return steps.join(m, event.node, state.identity)


def seek_later(m: Membership, state: s.Outside, event: on.Answer, now: float) -> Outcome:
    return steps.back_off(m, state.identity, None, now)


def join_later(m: Membership, state: s.Joining, event: on.Answer, now: float) -> Outcome:
    return steps.back_off(m, state.identity, state.node, now)


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
        reason = f"it requires another member id than {state.identity.member_id!r}"
        return distrust(m, state, on.Contradicted(event.request, reason), now)
    return steps.join(m, state.node, replace(state.identity, member_id=event.member_id))


def lower_session_timeout(
    m: Membership, state: s.Joining, event: on.SessionTimeoutRefused, now: float
) -> Outcome:
    refused = m.session_timeout_ms
    if not m.settings.session_timeout_is_default or refused <= OLD_BROKERS_SESSION_TIMEOUT_MS:
        return s.Failed(event.error), ()
    m.session_timeout_ms = OLD_BROKERS_SESSION_TIMEOUT_MS
    text = (
        f"the coordinator refuses the default session timeout of {refused} ms;"
        f" asking for {OLD_BROKERS_SESSION_TIMEOUT_MS} ms"
    )
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
    leads = isinstance(event, on.JoinedAsLeader)
    generation = s.Generation(
        event.member_id, event.generation, event.protocol, state.topics, leads
    )
    request = m.new_request()
    pulse = m.new_pulse(state.node, now)
    if isinstance(event, on.JoinedAsLeader) and not event.skip_assignment:
        assigning = s.Assigning(generation, pulse, request, attempt)
        return assigning, (do.MakeAssignment(request, event.protocol, event.members),)
    syncing = s.Syncing(generation, pulse, request, attempt)
    watch = (do.WatchPartitions(event.members),) if isinstance(event, on.JoinedAsLeader) else ()
    return syncing, (*watch, do.SendSync(request, state.node, generation, NO_ASSIGNMENTS))


def hand_out(m: Membership, state: s.Assigning, event: on.AssignmentMade, now: float) -> Outcome:
    node = state.pulse.node
    if node is None:
        # The coordinator moved while the assignor ran; by now the group may have changed too.
        return steps.rejoin(m, state)
    request = m.new_request()
    syncing = s.Syncing(state.generation, state.pulse, request, state.attempt)
    return syncing, (do.SendSync(request, node, state.generation, event.assignments),)


def become_stable(m: Membership, state: s.Syncing, event: on.Synced, now: float) -> Outcome:
    subscribed = set(state.generation.topics)
    strange = [tp for tp in event.assignment if tp.topic not in subscribed or tp.partition < 0]
    if strange:
        reason = f"it assigns {strange[0]}, which was not subscribed to"
        return distrust(m, state, on.Contradicted(event.request, reason), now)
    m.contradictions = 0
    assignment = tuple(sorted(set(event.assignment)))
    stable = s.Stable(state.generation, state.pulse, assignment)
    effects = (do.AssignPartitions(assignment, state.generation),)
    if m.topics == state.generation.topics:
        return stable, effects
    after, more = steps.rebalance(m, stable, event, now)
    return after, (*effects, *more)


def distrust(
    m: Membership, state: s.Joining | s.Arriving, event: on.Contradicted, now: float
) -> Outcome:
    """Start over as somebody new; too often in a row is too often."""
    text = f"the group coordinator contradicts itself: {event.reason}"
    identity = steps.identity_of(state)
    leave = steps.quiet_leave(m, identity.member_id, now, "contradicting answers")
    m.contradictions += 1
    if m.contradictions >= MAX_CONTRADICTIONS:
        return s.Failed(GroupFailed(text)), leave
    after, effects = steps.back_off(m, s.Identity(attempt=identity.attempt), None, now)
    return after, (do.Note(text, warning=True), *leave, *effects)


# --- a member of a generation that has no assignment yet --------------------------------------


def rejoin_later(m: Membership, state: s.Arriving, event: on.Answer, now: float) -> Outcome:
    if event.request != state.request:
        return owning.beat_later(m, state, event, now)
    return steps.back_off(m, steps.identity_of(state), state.pulse.node, now)


def rejoin_elsewhere(m: Membership, state: s.Arriving, event: on.Answer, now: float) -> Outcome:
    if event.request != state.request:
        return owning.beat_elsewhere(m, state, event, now)
    return steps.back_off(m, steps.identity_of(state), None, now)


def rejoin_anew(m: Membership, state: s.Arriving, event: on.Answer, now: float) -> Outcome:
    return steps.back_off(m, s.Identity(attempt=state.attempt), state.pulse.node, now)


def rebalance_began(
    m: Membership, state: s.Arriving, event: on.RebalanceBegan, now: float
) -> Outcome:
    """Old brokers answer heartbeats so until SyncGroup is done: only its own answer counts."""
    if event.request != state.request:
        return owning.beaten(m, state, event, now)
    identity = steps.identity_of(state)
    if identity.attempt:
        return steps.back_off(m, identity, state.pulse.node, now)
    return steps.join(m, state.pulse.node, replace(identity, attempt=1))
