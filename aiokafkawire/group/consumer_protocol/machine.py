"""State machine of a member of the consumer protocol (KIP-848)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.membership import states as outside
from aiokafkawire.group.membership.effects import MembershipEffect
from aiokafkawire.group.membership.events import MembershipEvent, RequestCompleted
from aiokafkawire.runtime.state_machine import Transitions, transition

from . import states
from .actions import PROTOCOL
from .context import ConsumerProtocolContext, ConsumerProtocolSettings
from .table import TRANSITIONS

__all__ = ("ConsumerProtocolMachine",)


class ConsumerProtocolMachine:
    """The state of a group member. `handle` takes an event and returns the effects.

    The caller performs the effects in order, completes each request with one `RequestCompleted`
    event, and calls `handle(DeadlineReached(), now)` at `next_deadline()`.

    Attributes:
        transitions: The table of transitions.
    """

    transitions: ClassVar[
        Transitions[ConsumerProtocolContext, outside.MembershipState, MembershipEffect]
    ] = TRANSITIONS

    def __init__(self, settings: ConsumerProtocolSettings, rng: random.Random, now: float) -> None:
        self.context = ConsumerProtocolContext(settings, rng, now)
        self.state: outside.MembershipState = outside.Unjoined()

    @property
    def is_closed(self) -> bool:
        return isinstance(self.state, outside.MembershipClosed)

    @property
    def error(self) -> KafkaError | None:
        """The error that ended the membership; None while it can go on."""
        return (
            self.state.error
            if isinstance(self.state, outside.JoinFailed | outside.Fenced)
            else None
        )

    @property
    def generation(self) -> outside.Generation | None:
        """The member id and epoch that commits are sent with; None outside the group."""
        state = self.state
        if not isinstance(state, states.InGroup):
            return None
        if isinstance(state, states.ConsumerRevoking) and state.ended is not None:
            return None
        return outside.Generation(
            self.context.settings.member_id,
            state.epoch,
            PROTOCOL,
            self.context.topics,
            is_leader=False,
        )

    def handle(self, event: MembershipEvent, now: float) -> Sequence[MembershipEffect]:
        """Go to the next state and return its effects. Ignore late results of earlier requests."""
        # mutation: late-heartbeat-response-accepted
        if isinstance(event, RequestCompleted) and event.request not in self.state.awaited:
            return ()
        handler = transition(self.transitions, self.state, event)
        self.state, effects = handler(self.context, self.state, event, now)
        return effects

    def next_deadline(self) -> float:
        """Return when `DeadlineReached` is due."""
        state = self.state
        if isinstance(state, states.InHeartbeats) and state.checks_poll_timer:
            return min(state.deadline, self.context.poll_timer.deadline)
        return state.deadline
