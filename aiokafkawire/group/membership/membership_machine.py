"""State machine of a group member: its state and the handling of events."""

from __future__ import annotations

import random
from collections.abc import Sequence

from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime.state_machine import transition

from . import events, states
from .context import GroupSettings, MembershipContext
from .effects import MembershipEffect
from .table import TRANSITIONS

__all__ = ("MembershipMachine",)


class MembershipMachine:
    """The state of a group member. `handle` takes an event and returns the effects.

    The caller performs the effects in order, completes each request with one `RequestCompleted`
    event, and calls `handle(DeadlineReached(), now)` at `next_deadline()`.
    """

    def __init__(self, settings: GroupSettings, rng: random.Random, now: float) -> None:
        self.context = MembershipContext(settings, rng, now)
        self.state: states.MembershipState = states.Unjoined()

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
        self.state, effects = handler(self.context, self.state, event, now)
        return effects

    def next_deadline(self) -> float:
        """Return when `DeadlineReached` is due."""
        state = self.state
        if not isinstance(state, states.Stable | states.RevocationDue | states.CooperativeRejoin):
            return state.deadline
        if isinstance(state, states.CooperativeRejoin) and state.pending_leave is not None:
            # The member is leaving, so its poll timeout does not matter.
            return state.deadline
        return min(state.deadline, self.context.poll_timer.deadline)
