"""State diagram of the membership machine: `python -m tests.group.diagram` prints it.

The target states of a transition are found by attempting it with all variants that make a
difference to a handler.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from aiokafkawire.group.membership import events, joining, states
from aiokafkawire.group.membership.effects import MembershipEffect
from aiokafkawire.group.membership.membership_machine import MembershipMachine
from aiokafkawire.group.membership.table import TRANSITIONS

from .machines import ATTEMPT, GENERATION, NODE, P0, P1, TOPICS, machine
from .test_membership_machine import EVENTS, STATES

FRAMES: Mapping[str, tuple[type[states.MembershipState], ...]] = {
    "AttemptingJoin": (states.FindingCoordinator, states.BackingOff, states.Joining),
    "AwaitingAssignment": (states.Assigning, states.Syncing),
    "Assigned": (states.Stable, states.RevocationDue, states.Revoking),
    "CooperativeRejoin": (
        states.RejoinBackoff,
        states.Rejoining,
        states.Reassigning,
        states.Resyncing,
    ),
    "NotMember": (
        states.Unjoined,
        states.AwaitingMemberId,
        states.Leaving,
        states.MembershipClosed,
    ),
}
"""States that are drawn in one frame."""

Destinations = dict[tuple[str, str], tuple[str, ...]]


def states_like(state: states.MembershipState) -> Iterator[states.MembershipState]:
    """Return the state and its variants."""
    yield state
    names = {field.name for field in fields(state)}  # type: ignore[arg-type]
    changes: list[dict[str, Any]] = []
    if "identity" in names:
        changes += [{"identity": states.JoinIdentity(ATTEMPT)}, {"node": None}]
    if "heartbeat" in names:
        changes += [{"heartbeat": replace(state.heartbeat, node=None)}]  # type: ignore[attr-defined]
    if isinstance(state, states.Stable):
        changes += [{"assignment": ()}]
    if isinstance(state, states.Revoking):
        changes += [{"assignment": (P0, P1)}, {"to_add": (P1,)}]
        changes += [{"next_action": after} for after in states.NextAction]
        changes += [{"next_action": after, "assignment": (P0, P1)} for after in states.NextAction]
    if isinstance(state, states.RevocationDue):
        changes += [{"to_add": (P1,)}]
    if "attempt" in names:
        changes += [{"attempt": replace(ATTEMPT, failures=3)}]
    if "pending_leave" in names:
        changes += [
            {"pending_leave": states.PendingLeave(after, 1.0)} for after in states.NextAction
        ]
    if isinstance(state, states.AwaitingMemberId | states.Leaving):
        changes += [{"next_action": after} for after in states.NextAction]
    if isinstance(state, states.PollTimedOut):
        changes += [{"must_rejoin": True, "member_id": "me"}]
    if isinstance(state, states.JoinFailed):
        changes += [{"reported": True}]
    for change in changes:
        if change.keys() <= names:
            yield replace(state, **change)  # type: ignore[type-var]


def events_like(event: Any) -> Iterator[Any]:
    """Return the event and its variants."""
    yield event
    if isinstance(event, events.Synced):
        yield replace(event, assignment=())
        yield replace(event, assignment=(P1._replace(topic="strange"),))
    elif isinstance(event, events.JoinedAsFollower | events.JoinedAsLeader):
        yield replace(event, generation=GENERATION.number + 2)
        yield replace(event, member_id="somebody-else")
        if isinstance(event, events.JoinedAsLeader):
            yield replace(event, skip_assignment=True)
    elif isinstance(event, events.CoordinatorFound):
        yield replace(event, node=NODE)
    elif isinstance(event, events.Subscribed):
        yield replace(event, topics=TOPICS)
        yield replace(event, topics=(*TOPICS, "payments"))


def machines_like(state: states.MembershipState) -> Iterator[MembershipMachine]:
    """Return machines in a state, with all combinations of settings."""
    both = (False, True)
    for cooperative, static, waiting, near_limits in itertools.product(both, repeat=4):
        if isinstance(state, states.CooperativeRejoin) and not cooperative:
            continue
        for topics in (TOPICS, ("payments",), ()):
            instance_id = "i" if static else None
            found = machine(state, cooperative=cooperative, group_instance_id=instance_id)
            found.context.topics = topics
            found.context.poll_timer.open_polls = int(waiting)
            if near_limits:
                found.context.protocol_violations = joining.MAX_PROTOCOL_VIOLATIONS - 1
                found.context.unknown_server_errors = joining.MAX_UNKNOWN_SERVER_ERRORS - 1
                found.context.session_timeout_ms = joining.OLD_BROKERS_SESSION_TIMEOUT_MS
            yield found


class Step(NamedTuple):
    """One attempted transition."""

    before: states.MembershipState
    event: events.MembershipEvent
    effects: Sequence[MembershipEffect]
    membership: MembershipMachine


def steps() -> Iterator[Step]:
    """Attempt every transition with all variants."""
    for state, event in itertools.product(STATES, EVENTS):
        if (type(state), type(event)) not in TRANSITIONS:
            continue
        for before, happens in itertools.product(states_like(state), events_like(event)):
            awaited = [request for request in before.awaited if request is not None]
            for request in awaited if isinstance(happens, events.RequestCompleted) else [None]:
                numbered = happens if request is None else replace(happens, request=request)
                for now in (0.5, 400.0):
                    for membership in machines_like(before):
                        yield Step(
                            before,
                            numbered,
                            membership.handle(numbered, now),
                            membership,
                        )


def destinations(look: Callable[[Step], None] = lambda step: None) -> Destinations:
    """Return the states that each transition leads to, in the order of the table."""
    found: dict[tuple[str, str], dict[str, None]] = {
        (state.__name__, event.__name__): {} for state, event in TRANSITIONS
    }
    for step in steps():
        look(step)
        row = found[type(step.before).__name__, type(step.event).__name__]
        row[type(step.membership.state).__name__] = None
    order = [type(state).__name__ for state in STATES]
    return {pair: tuple(sorted(ends, key=order.index)) for pair, ends in found.items()}


def diagram(found: Destinations) -> str:
    """Return the transitions as a Mermaid state diagram.

    A transition to several states of a frame, or from all states of one, is drawn at the frame.
    """
    frame_of = {cls.__name__: frame for frame, members in FRAMES.items() for cls in members}
    transitions: dict[tuple[str, str, str], None] = {}
    for (start, event), ends in found.items():
        outside = [end for end in ends if frame_of.get(end, end) != frame_of.get(start, start)]
        inside = [end for end in ends if end not in outside and end != start]
        by_frame: dict[str, list[str]] = {}
        for end in outside:
            by_frame.setdefault(frame_of.get(end, end), []).append(end)
        for frame, members in by_frame.items():
            transitions[start, event, members[0] if len(members) == 1 else frame] = None
        for end in inside:
            transitions[start, event, end] = None
    for frame, members in FRAMES.items():
        names = [cls.__name__ for cls in members if cls is not states.MembershipClosed]
        for start, event, end in list(transitions):
            if start not in names or end == frame or frame_of.get(end) == frame:
                continue
            alike = [(name, event, end) for name in names]
            if all(transition in transitions for transition in alike):
                for transition in alike:
                    del transitions[transition]
                transitions[frame, event, end] = None
    return "\n".join(_lines(list(transitions))) + "\n"


def _lines(transitions: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    yield "stateDiagram-v2"
    yield f"    [*] --> {states.Unjoined.__name__}"
    for frame, members in FRAMES.items():
        yield f"    state {frame} {{"
        yield from (f"        {member.__name__}" for member in members)
        yield "    }"
    labels: dict[tuple[str, str], list[str]] = {}
    for start, event, end in transitions:
        labels.setdefault((start, end), []).append(event)
    for (start, end), names in labels.items():
        yield f"    {start} --> {end}: {', '.join(names)}"
    yield f"    {states.MembershipClosed.__name__} --> [*]"


def table(found: Destinations) -> str:
    """Return a Markdown table of the transitions, with "—" if the state's class does not change."""
    lines = ["| State | Event | Next state |", "|---|---|---|"]
    for state in STATES:
        name = type(state).__name__
        same: dict[tuple[str, ...], list[str]] = {}
        for (start, event), ends in found.items():
            if start == name:
                same.setdefault(ends, []).append(event)
        for ends, names in same.items():
            there = "—" if ends == (name,) else ", ".join(ends)
            lines.append(f"| {name} | {', '.join(names)} | {there} |")
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- generated: python -m tests.group.diagram -->\n", "<!-- end of it -->\n"


def generated(found: Destinations) -> str:
    """Return the generated section of the page, with its markers."""
    return f"{BEGIN}```mermaid\n{diagram(found)}```\n\n{table(found)}{END}"


if __name__ == "__main__":
    print(generated(destinations()), end="")
