"""State machine of the share session of a member at one broker (KIP-932).

A session has at most one request in flight: ShareFetch and ShareAcknowledge share its epoch. It
ends with its connection, and with any error for a request as a whole; the broker then releases the
records, so acknowledgements that it has not confirmed have failed.

Protocol source: ShareFetch and ShareAcknowledge of Kafka's protocol guide.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiokafkawire.errors import AcknowledgementFailed, KafkaError
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.runtime import NEVER
from aiokafkawire.runtime.state_machine import Transitions, each_of, stay, transition

from . import session_events as events
from . import session_states as states
from .acknowledgements import PartitionAcknowledgements
from .session_context import ShareSessionContext
from .session_events import SessionEffect, SessionEvent
from .session_states import SessionState

__all__ = ("TRANSITIONS", "ShareSessionMachine")

Outcome = tuple[SessionState, Sequence[SessionEffect]]


# --- what the application and the group want ---------------------------------------------------


def change_partitions(
    context: ShareSessionContext,
    state: SessionState,
    event: events.PartitionsChanged,
    now: float,
) -> Outcome:
    context.partitions = event.partitions
    return state, ()


def change_demand(
    context: ShareSessionContext, state: SessionState, event: events.DemandChanged, now: float
) -> Outcome:
    context.wants_records = event.wants_records
    return state, ()


def acknowledge(
    context: ShareSessionContext,
    state: SessionState,
    event: events.RecordsAcknowledged,
    now: float,
) -> Outcome:
    context.acknowledge(event, now)
    return state, ()


def flush(
    context: ShareSessionContext, state: SessionState, event: events.FlushRequested, now: float
) -> Outcome:
    context.urgent = bool(context.pending)
    return state, ()


def request_close(
    context: ShareSessionContext,
    state: SessionState,
    event: events.SessionCloseRequested,
    now: float,
) -> Outcome:
    context.closing = True
    return state, ()


# --- requests -----------------------------------------------------------------------------------


def open_when_due(
    context: ShareSessionContext, state: states.NoSession, event: events.RequestDue, now: float
) -> Outcome:
    """Open a session with all partitions and, as the protocol demands, no acknowledgements."""
    if context.closing:
        return states.SessionClosed(), ()
    partitions = context.fetchable(now)
    if not partitions or not context.wants_records or now < state.not_before:
        return state, ()
    request = context.new_request()
    busy = states.SessionBusy(request, states.OPENING_EPOCH, partitions, {})
    return busy, (
        events.SendFetch(
            request, states.OPENING_EPOCH, partitions, frozenset(), {}, holds_records=False
        ),
    )


def send_when_due(
    context: ShareSessionContext,
    state: states.SessionIdle,
    event: events.RequestDue,
    now: float,
) -> Outcome:
    """Send the next request of a session, if there is something to do."""
    if context.closing:
        return _end(context, now)
    context.remove_expired(now)
    partitions = context.fetchable(now)
    wants_fetch = context.wants_records and bool(partitions)
    # A fetch that carries renewals returns no records. Renewals alternate with other requests: new
    # ones may come with each response.
    if context.renewals and not context.has_renewed:
        return _send_renewals(context, state, now)
    context.has_renewed = False
    if context.pending and (
        context.urgent
        or (not wants_fetch and now >= context.acknowledge_at)
        # A ShareFetch would acquire records of partitions again that are not fetched any more.
        or any(partition not in partitions for partition in context.pending)
    ):
        return _send_acknowledge(context, state, context.take_pending(now), now)
    if wants_fetch:
        return _send_fetch(context, state, partitions, now)
    if context.renewals:
        return _send_renewals(context, state, now)
    if not context.partitions and not context.pending and not context.holds_records:
        return _end(context, now)
    return state, ()


def _send_fetch(
    context: ShareSessionContext,
    state: states.SessionIdle,
    partitions: frozenset[TopicIdPartition],
    now: float,
) -> Outcome:
    request = context.new_request()
    sent, expired = _sendable(context.take_pending(now))
    # Partitions of a recreated topic have another id: they are others here and for the broker.
    fetch = events.SendFetch(
        request,
        state.epoch,
        partitions - state.listed,
        state.listed - partitions,
        sent,
        context.holds_records,
    )
    return states.SessionBusy(request, state.epoch, partitions, sent), (*expired, fetch)


def _send_renewals(context: ShareSessionContext, state: states.SessionIdle, now: float) -> Outcome:
    context.has_renewed = True
    return _send_acknowledge(context, state, context.take_renewals(now), now)


def _send_acknowledge(
    context: ShareSessionContext,
    state: states.SessionIdle,
    taken: states.SentAcknowledgements,
    now: float,
) -> Outcome:
    sent, expired = _sendable(taken)
    if not sent:
        # Nothing is in flight, so no response leads to the next request.
        following, effects = send_when_due(context, state, events.RequestDue(), now)
        return following, (*expired, *effects)
    request = context.new_request()
    send = events.SendAcknowledge(request, state.epoch, sent)
    return states.SessionBusy(request, state.epoch, state.listed, sent), (*expired, send)


def _end(context: ShareSessionContext, now: float) -> Outcome:
    """Close the session; the broker releases what is not acknowledged."""
    sent, expired = _sendable(context.take_pending(now))
    unsent = [
        events.CompleteAcknowledgements(
            partition, renewals, _failure(partition, "the share session is closing")
        )
        for partition, renewals in context.take_renewals(now).items()
    ]
    context.release_all()
    request = context.new_request()
    send = events.SendAcknowledge(request, states.FINAL_EPOCH, sent)
    return states.SessionEnding(request, sent), (*expired, *unsent, send)


def _sendable(
    taken: states.SentAcknowledgements,
) -> tuple[states.SentAcknowledgements, tuple[SessionEffect, ...]]:
    """Return what to send, and the results of partitions with nothing to send."""
    sent = {
        partition: acknowledgements
        for partition, acknowledgements in taken.items()
        if acknowledgements.types
    }
    expired = tuple(
        events.CompleteAcknowledgements(partition, acknowledgements, None)
        for partition, acknowledgements in taken.items()
        if not acknowledgements.types
    )
    return sent, expired


# --- responses ----------------------------------------------------------------------------------


def fetched(
    context: ShareSessionContext,
    state: states.SessionBusy,
    event: events.FetchResponded,
    now: float,
) -> Outcome:
    effects: list[SessionEffect] = []
    unconfirmed = dict(state.sent)
    for part in event.partitions:
        acknowledgements = unconfirmed.pop(part.partition, None)
        if acknowledgements is not None:
            effects.append(_result(part.partition, acknowledgements, part.acknowledge_error))
        if part.error is not None:
            context.back_off(part.partition, now)
            effects.append(events.ReportPartitionError(part.partition, part.error))
        context.acquire(part)
    effects += _no_results(unconfirmed)
    return states.SessionIdle(states.next_epoch(state.epoch), state.listed), effects


def acknowledged(
    context: ShareSessionContext,
    state: states.SessionBusy,
    event: events.AcknowledgeResponded,
    now: float,
) -> Outcome:
    effects = _results(context, state.sent, event, now)
    # mutation: epoch-kept-after-acknowledge
    return states.SessionIdle(states.next_epoch(state.epoch), state.listed), effects


def ended(
    context: ShareSessionContext,
    state: states.SessionEnding,
    event: events.AcknowledgeResponded,
    now: float,
) -> Outcome:
    return states.NoSession(), _results(context, state.sent, event, now)


def _results(
    context: ShareSessionContext,
    sent: states.SentAcknowledgements,
    event: events.AcknowledgeResponded,
    now: float,
) -> list[SessionEffect]:
    unconfirmed = dict(sent)
    effects: list[SessionEffect] = []
    for partition, error in event.errors.items():
        acknowledgements = unconfirmed.pop(partition, None)
        if acknowledgements is None:
            continue
        if error is None:
            context.renew(partition, acknowledgements, event.renewed_until)
        elif acknowledgements.renews:
            context.refuse_renewals(partition, now)
        effects.append(_result(partition, acknowledgements, error))
    return [*effects, *_no_results(unconfirmed)]


def _result(
    partition: TopicIdPartition,
    acknowledgements: PartitionAcknowledgements,
    error: KafkaError | None,
) -> SessionEffect:
    failure = None if error is None else _failure(partition, error.reason, error)
    return events.CompleteAcknowledgements(partition, acknowledgements, failure)


def _no_results(sent: states.SentAcknowledgements) -> list[SessionEffect]:
    return [
        events.CompleteAcknowledgements(
            partition,
            acknowledgements,
            _failure(partition, "the broker's response has no result for the partition"),
        )
        for partition, acknowledgements in sent.items()
    ]


def _failure(
    partition: TopicIdPartition, reason: str, cause: KafkaError | None = None
) -> AcknowledgementFailed:
    failure = AcknowledgementFailed(reason, topic=partition.topic, partition=partition.partition)
    failure.__cause__ = cause
    return failure


# --- lost sessions ------------------------------------------------------------------------------


def lose(
    context: ShareSessionContext,
    state: states.SessionBusy | states.SessionEnding,
    event: events.RequestFailed,
    now: float,
) -> Outcome:
    """Fail all acknowledgements: the broker releases the records, which are delivered again.

    It does so at once when the connection is closed. A new session on the same connection would
    leave the records locked.
    """
    reason = f"the share session has ended ({event.error.reason}); the record is delivered again"
    # mutation: unconfirmed-acknowledgements-have-no-result
    # mutation: unconfirmed-acknowledgements-succeed
    effects = [
        events.CompleteAcknowledgements(
            partition, acknowledgements, _failure(partition, reason, event.error)
        )
        for partition, acknowledgements in (*state.sent.items(), *context.lose_all())
    ]
    return states.NoSession(event.retry_at), (*effects, events.ReplaceConnection())


# --- the machine --------------------------------------------------------------------------------

TRANSITIONS: Transitions[ShareSessionContext, SessionState, SessionEffect] = {
    **each_of(
        (
            states.NoSession,
            states.SessionIdle,
            states.SessionBusy,
            states.SessionEnding,
            states.SessionClosed,
        ),
        {
            events.PartitionsChanged: change_partitions,
            events.DemandChanged: change_demand,
            events.RecordsAcknowledged: acknowledge,
            events.FlushRequested: flush,
            events.SessionCloseRequested: request_close,
            events.RequestDue: stay,
        },
    ),
    (states.NoSession, events.RequestDue): open_when_due,
    (states.SessionIdle, events.RequestDue): send_when_due,
    (states.SessionBusy, events.FetchResponded): fetched,
    (states.SessionBusy, events.AcknowledgeResponded): acknowledged,
    (states.SessionBusy, events.RequestFailed): lose,
    (states.SessionEnding, events.AcknowledgeResponded): ended,
    (states.SessionEnding, events.RequestFailed): lose,
}


class ShareSessionMachine:
    """The share session at one broker. `handle` takes an event and returns the effects.

    The caller performs the effects in order, completes each request with one event, and calls
    `handle(RequestDue(), now)` after each event and at `next_deadline()`.
    """

    def __init__(self) -> None:
        self.context = ShareSessionContext()
        self.state: SessionState = states.NoSession()

    @property
    def is_closed(self) -> bool:
        return isinstance(self.state, states.SessionClosed)

    def handle(self, event: SessionEvent, now: float) -> Sequence[SessionEffect]:
        """Go to the next state and return its effects. Ignore late results of earlier requests."""
        if isinstance(event, events.SessionRequestCompleted):
            state = self.state
            if not isinstance(state, states.SessionBusy | states.SessionEnding):
                return ()
            if event.request != state.request:
                return ()
        handler = transition(TRANSITIONS, self.state, event)
        self.state, effects = handler(self.context, self.state, event, now)
        return effects

    def next_deadline(self) -> float:
        """Return when `RequestDue` is due."""
        context, state = self.context, self.state
        deadlines = [NEVER]
        if context.wants_records and isinstance(state, states.NoSession | states.SessionIdle):
            deadlines += context.backing_off.values()
            if isinstance(state, states.NoSession) and context.partitions.difference(
                context.backing_off
            ):
                deadlines.append(state.not_before)
        if isinstance(state, states.SessionIdle):
            deadlines.append(context.expiry_at)
            if context.renewals:
                deadlines.append(0.0)
            if context.pending:
                deadlines.append(context.acknowledge_at)
        return min(deadlines)
