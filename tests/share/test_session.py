"""Every event in every state of a share session, and the rules of the protocol."""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.runtime import NEVER
from aiokafkawire.runtime.state_machine import InvalidTransition
from aiokafkawire.share import session_events as events
from aiokafkawire.share import session_states as states
from aiokafkawire.share.acknowledgements import GAP, AcknowledgeType, PartitionAcknowledgements
from aiokafkawire.share.locks import AcquisitionLock
from aiokafkawire.share.session import TRANSITIONS, ShareSessionMachine
from aiokafkawire.share.session_context import (
    ACKNOWLEDGE_DELAY_S,
    PARTITION_BACKOFF_S,
    RENEWAL_BACKOFF_S,
)
from tests import golden

O0, O1 = (TopicIdPartition(UUID(int=1), "orders", number) for number in (0, 1))
BOTH = frozenset({O0, O1})
REQUEST = 7
ERROR = KafkaError("refused")
LOCK_S = 30.0
NO_LOCK = AcquisitionLock(0.0, 0.0)
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW

STATES: tuple[states.SessionState, ...] = (
    states.NoSession(),
    states.SessionIdle(4, BOTH),
    states.SessionBusy(REQUEST, 4, BOTH, {}),
    states.SessionEnding(REQUEST, {}),
    states.SessionClosed(),
)

EVENTS: tuple[events.SessionEvent, ...] = (
    events.PartitionsChanged(frozenset({O0})),
    events.DemandChanged(wants_records=True),
    events.RecordsAcknowledged(O0, (1,), ACCEPT, None),
    events.FlushRequested(),
    events.SessionCloseRequested(),
    events.RequestDue(),
    events.FetchResponded(REQUEST, ()),
    events.AcknowledgeResponded(REQUEST, {}, LOCK_S),
    events.RequestFailed(REQUEST, ERROR, 1.0),
)

EXPECTED = golden.read("share-session")
"""The next state; "=" if the state does not change at all. Other pairs have no transition."""


def machine_in(state: states.SessionState) -> ShareSessionMachine:
    session = ShareSessionMachine()
    session.context.partitions = BOTH
    session.context.wants_records = True
    session.state = state
    return session


def observed() -> dict[tuple[str, str], str]:
    """Return the next state by state and event."""
    table = {}
    for state in STATES:
        for event in EVENTS:
            if (type(state), type(event)) in TRANSITIONS:
                session = machine_in(state)
                session.handle(event, 0.5)
                then = "=" if session.state == state else type(session.state).__name__
                table[type(state).__name__, type(event).__name__] = then
    return table


def test_each_state_and_event_has_its_next_state() -> None:
    assert observed() == EXPECTED


def test_the_table_has_no_state_or_event_that_is_not_tested() -> None:
    assert {state for state, _ in TRANSITIONS} == {type(state) for state in STATES}
    assert {event for _, event in TRANSITIONS} == {type(event) for event in EVENTS}


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_late_results_are_ignored(state: states.SessionState) -> None:
    for event in EVENTS:
        if isinstance(event, events.SessionRequestCompleted):
            session = machine_in(state)
            late = dataclasses.replace(event, request=99)  # type: ignore[type-var]
            assert session.handle(late, 0.5) == ()
            assert session.state is state


def test_a_session_ends_with_an_acknowledge_not_a_fetch() -> None:
    with pytest.raises(InvalidTransition):
        machine_in(STATES[3]).handle(EVENTS[6], 0.5)


# --- one session --------------------------------------------------------------------------------


class Broker:
    """Drives a session as `ShareNode` does, with hand-made responses."""

    def __init__(
        self, partitions: frozenset[TopicIdPartition] = BOTH, *, demand: bool = True
    ) -> None:
        self.session = ShareSessionMachine()
        self.now = 0.0
        self.results: list[tuple[PartitionAcknowledgements, Any]] = []
        self.effects: list[events.SessionEffect] = []
        self.handle(events.PartitionsChanged(partitions))
        self.handle(events.DemandChanged(demand))

    def handle(self, event: events.SessionEvent) -> None:
        for each in (event, events.RequestDue()):
            for effect in self.session.handle(each, self.now):
                self.effects.append(effect)
                if isinstance(effect, events.CompleteAcknowledgements):
                    self.results.append((effect.acknowledgements, effect.error))

    def sent(self) -> Any:
        """Return the one request since the last call."""
        found = [
            effect
            for effect in self.effects
            if isinstance(effect, events.SendFetch | events.SendAcknowledge)
        ]
        self.effects.clear()
        assert len(found) == 1, found
        return found[0]

    def idle(self) -> bool:
        return not any(
            isinstance(effect, events.SendFetch | events.SendAcknowledge) for effect in self.effects
        )

    def respond(self, *fetched: events.FetchedPartition) -> AcquisitionLock:
        """Complete a fetch, and return the lock of its last partition's records."""
        parts = [
            dataclasses.replace(part, lock=AcquisitionLock(self.now, LOCK_S)) for part in fetched
        ]
        self.handle(events.FetchResponded(self.request, tuple(parts)))
        return parts[-1].lock if parts else NO_LOCK

    def confirm(self, **errors: Any) -> None:
        """Complete a ShareAcknowledge for all its partitions."""
        state = self.session.state
        assert isinstance(state, states.SessionBusy | states.SessionEnding)
        results = dict.fromkeys(state.sent, errors.get("error"))
        self.handle(events.AcknowledgeResponded(state.request, results, self.now + LOCK_S))

    @property
    def request(self) -> int:
        state = self.session.state
        assert isinstance(state, states.SessionBusy | states.SessionEnding)
        return state.request

    def acknowledge(self, type: int, *offsets: int, lock: AcquisitionLock | None = None) -> None:
        self.handle(events.RecordsAcknowledged(O0, offsets, type, lock))


def acquired(first: int, last: int, partition: TopicIdPartition = O0) -> events.FetchedPartition:
    return events.FetchedPartition(
        partition, NO_LOCK, acquired=(events.AcquiredOffsets(first, last, 1),)
    )


def holding(first: int, last: int, **options: Any) -> tuple[Broker, AcquisitionLock]:
    """A session that holds records, and has enough of them."""
    broker = Broker(**options)
    broker.sent()
    broker.session.context.wants_records = False
    return broker, broker.respond(acquired(first, last))


def types(acknowledgements: states.SentAcknowledgements) -> dict[int, int]:
    return {
        offset: kind
        for part in acknowledgements.values()
        for first, last, kind in part.types
        for offset in range(first, last + 1)
    }


def test_epoch_zero_opens_with_all_partitions_and_no_acknowledgements() -> None:
    fetch = Broker().sent()
    assert (fetch.epoch, fetch.added, fetch.forgotten) == (0, BOTH, frozenset())
    assert not fetch.acknowledgements


def test_each_request_takes_the_next_epoch_and_only_changes() -> None:
    broker = Broker()
    broker.sent()
    lock = broker.respond(acquired(0, 3))
    fetch = broker.sent()
    assert (fetch.epoch, fetch.added, fetch.forgotten) == (1, frozenset(), frozenset())
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.handle(events.FlushRequested())
    broker.respond()
    acknowledge = broker.sent()
    assert isinstance(acknowledge, events.SendAcknowledge)
    assert acknowledge.epoch == 2


def test_epochs_wrap_to_one() -> None:
    assert states.next_epoch(2**31 - 1) == 1


def test_one_request_is_in_flight() -> None:
    broker = Broker()
    broker.sent()
    broker.handle(events.PartitionsChanged(frozenset({O1})))
    broker.handle(events.FlushRequested())
    broker.handle(events.SessionCloseRequested())
    assert broker.idle()


def test_removed_partitions_are_forgotten_and_a_new_topic_id_is_another_partition() -> None:
    broker = Broker(frozenset({O0}))
    broker.sent()
    recreated = TopicIdPartition(UUID(int=2), "orders", 0)
    broker.handle(events.PartitionsChanged(frozenset({recreated})))
    broker.respond()
    fetch = broker.sent()
    assert (fetch.added, fetch.forgotten) == (frozenset({recreated}), frozenset({O0}))


def test_a_fetch_carries_acknowledgements() -> None:
    broker, lock = holding(0, 3)
    broker.acknowledge(ACCEPT, 0, 1, lock=lock)
    broker.handle(events.DemandChanged(wants_records=True))
    fetch = broker.sent()
    assert isinstance(fetch, events.SendFetch)
    assert types(fetch.acknowledgements) == {0: ACCEPT, 1: ACCEPT}
    assert fetch.holds_records
    broker.respond(events.FetchedPartition(O0, NO_LOCK))
    assert [error for _, error in broker.results] == [None]


def test_acknowledgements_wait_for_a_short_time_only() -> None:
    broker, lock = holding(0, 3)
    broker.acknowledge(ACCEPT, 0, lock=lock)
    assert broker.idle()
    assert broker.session.next_deadline() == ACKNOWLEDGE_DELAY_S
    broker.now = ACKNOWLEDGE_DELAY_S
    broker.handle(events.RequestDue())
    assert types(broker.sent().acknowledgements) == {0: ACCEPT}


def test_a_partition_of_another_node_is_acknowledged_without_a_fetch() -> None:
    """A fetch with its acknowledgements would add it to the session, and acquire again."""
    broker, lock = holding(0, 3)
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.handle(events.PartitionsChanged(frozenset({O1})))
    acknowledge = broker.sent()
    assert isinstance(acknowledge, events.SendAcknowledge)
    broker.handle(events.DemandChanged(wants_records=True))
    broker.confirm()
    fetch = broker.sent()
    assert (fetch.forgotten, fetch.acknowledgements) == (frozenset({O0}), {})


def test_gaps_are_acknowledged() -> None:
    broker, lock = holding(0, 3)
    broker.acknowledge(GAP, 2, lock=lock)
    broker.now = 1.0
    broker.handle(events.RequestDue())
    assert types(broker.sent().acknowledgements) == {2: GAP}


def test_the_last_acknowledgement_before_the_request_counts() -> None:
    broker, lock = holding(0, 0)
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.acknowledge(RELEASE, 0, lock=lock)
    broker.handle(events.FlushRequested())
    assert types(broker.sent().acknowledgements) == {0: RELEASE}


def test_a_record_is_acknowledged_once() -> None:
    """The broker would refuse all acknowledgements of the partition."""
    broker, lock = holding(0, 1)
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.handle(events.FlushRequested())
    broker.sent()
    broker.acknowledge(RELEASE, 0, lock=lock)
    broker.confirm()
    assert broker.idle()
    assert not broker.session.context.pending


def test_an_expired_lock_is_not_acknowledged() -> None:
    broker, lock = holding(0, 1)
    broker.now = 10.0
    broker.acknowledge(RENEW, 1, lock=lock)
    broker.sent()
    broker.confirm()
    broker.acknowledge(ACCEPT, 0, 1, lock=lock)
    broker.now = LOCK_S
    broker.handle(events.FlushRequested())
    assert types(broker.sent().acknowledgements) == {1: ACCEPT}
    broker.confirm()
    acknowledgements, error = broker.results[-1]
    assert (acknowledgements.expired, error) == ({(0, lock)}, None)


def test_an_expired_lock_is_not_acknowledged_with_the_end_of_the_session() -> None:
    broker, lock = holding(0, 1)
    broker.now = 10.0
    broker.acknowledge(RENEW, 1, lock=lock)
    broker.sent()
    broker.confirm()
    broker.acknowledge(ACCEPT, 0, 1, lock=lock)
    broker.now = LOCK_S
    broker.handle(events.SessionCloseRequested())
    request = broker.sent()
    assert (request.epoch, types(request.acknowledgements)) == (states.FINAL_EPOCH, {1: ACCEPT})


def test_if_all_locks_are_expired_nothing_is_sent() -> None:
    broker, lock = holding(0, 1)
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.now = LOCK_S
    broker.handle(events.RequestDue())
    assert broker.idle()
    assert broker.results[-1][0].expired == {(0, lock)}


def test_a_record_that_is_acquired_again_has_another_lock() -> None:
    broker, old = holding(0, 0)
    broker.now = LOCK_S + 1
    broker.handle(events.DemandChanged(wants_records=True))
    broker.sent()
    new = broker.respond(acquired(0, 0))
    broker.acknowledge(ACCEPT, 0, lock=old)
    assert not broker.session.context.pending
    broker.acknowledge(ACCEPT, 0, lock=new)
    assert broker.session.context.pending


def test_each_delivery_of_a_record_has_its_own_result() -> None:
    """Its lock ended before the first acknowledgement was sent, and it came again."""
    broker, old = holding(0, 0)
    broker.session.context.wants_records = True
    broker.handle(events.RequestDue())
    broker.sent()
    broker.acknowledge(ACCEPT, 0, lock=old)
    first = broker.session.context.pending[O0]
    broker.now = LOCK_S
    new = broker.respond(acquired(0, 0))
    broker.sent()
    broker.acknowledge(ACCEPT, 0, lock=new)
    second = broker.session.context.pending[O0]
    broker.respond()
    assert types(broker.sent().acknowledgements) == {0: ACCEPT}
    assert first.expired == {(0, old)}
    assert (0, new) not in second.expired


def test_offsets_whose_locks_end_without_a_decision_are_lost() -> None:
    broker, lock = holding(0, 5)
    broker.session.context.urgent = True
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.sent()
    broker.acknowledge(RELEASE, 2, lock=lock)
    broker.now = LOCK_S
    broker.confirm()
    assert [*lock.lost] == [(1, 1, True), (3, 5, True)]


def test_renewals_go_by_themselves_and_restart_the_lock() -> None:
    """A ShareFetch with renewals must have no limits, and returns no records."""
    broker, lock = holding(0, 1)
    broker.now = 20.0
    broker.session.context.wants_records = True
    broker.acknowledge(RENEW, 0, lock=lock)
    acknowledge = broker.sent()
    assert isinstance(acknowledge, events.SendAcknowledge)
    broker.confirm()
    assert (lock.expires_at(0), lock.expires_at(1)) == (20.0 + LOCK_S, LOCK_S)
    assert broker.session.context.is_held(O0, 0, lock, 40.0)
    assert not broker.session.context.is_held(O0, 1, lock, 40.0)


def test_a_renewal_leaves_the_records_of_other_partitions() -> None:
    broker = Broker()
    broker.sent()
    broker.session.context.wants_records = False
    broker.respond(acquired(0, 0), acquired(0, 0, O1))
    broker.now = 20.0
    broker.acknowledge(RENEW, 0)
    broker.sent()
    broker.confirm()
    context = broker.session.context
    assert context.is_held(O0, 0, None, LOCK_S)
    assert not context.is_held(O1, 0, None, LOCK_S)


def test_a_renewal_may_shorten_the_lock() -> None:
    """It does, if the lock duration of the group was lowered."""
    broker, lock = holding(0, 1)
    context = broker.session.context
    broker.acknowledge(RENEW, 0, 1, lock=lock)
    broker.sent()
    renewed = PartitionAcknowledgements()
    renewed.types.set(0, 1, RENEW)
    context.renew(O0, renewed, 15.0)
    broker.acknowledge(ACCEPT, 0, 1, lock=lock)
    assert not [*context.take_pending(20.0)[O0].types]


def test_a_refused_renewal_restarts_nothing() -> None:
    broker, lock = holding(0, 1)
    broker.acknowledge(RENEW, 0, lock=lock)
    broker.sent()
    broker.confirm(error=ERROR)
    assert lock.expires_at(0) == LOCK_S


def test_renewals_share_no_request_with_decisions() -> None:
    """The broker refuses all acknowledgements of a partition together."""
    broker, lock = holding(0, 3)
    broker.acknowledge(ACCEPT, 0, 3, lock=lock)
    broker.acknowledge(RENEW, 1, 3, lock=lock)
    assert types(broker.sent().acknowledgements) == {1: RENEW, 3: RENEW}
    broker.acknowledge(ACCEPT, 1, lock=lock)
    broker.confirm(error=ERROR)
    broker.handle(events.FlushRequested())
    assert types(broker.sent().acknowledgements) == {0: ACCEPT, 1: ACCEPT}
    broker.confirm()
    assert [error is None for _, error in broker.results] == [False, True]


def test_a_decision_replaces_a_renewal_that_waits() -> None:
    broker, lock = holding(0, 1)
    broker.session.context.urgent = True
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.sent()
    broker.acknowledge(RENEW, 1, lock=lock)
    broker.acknowledge(RELEASE, 1, lock=lock)
    broker.confirm()
    assert broker.idle()
    broker.handle(events.FlushRequested())
    assert types(broker.sent().acknowledgements) == {1: RELEASE}


def test_after_a_refused_renewal_automatic_ones_wait() -> None:
    broker, lock = holding(0, 0)
    renewal = events.RecordsAcknowledged(O0, (0,), RENEW, lock, only_undecided=True)
    broker.handle(renewal)
    broker.sent()
    broker.confirm(error=ERROR)
    broker.handle(renewal)
    assert broker.idle()
    broker.now = RENEWAL_BACKOFF_S
    broker.handle(renewal)
    assert types(broker.sent().acknowledgements) == {0: RENEW}


def test_renewals_that_wait_fail_when_the_session_closes() -> None:
    broker, lock = holding(0, 1)
    broker.session.context.urgent = True
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.sent()
    broker.acknowledge(RENEW, 1, lock=lock)
    broker.handle(events.SessionCloseRequested())
    broker.confirm()
    assert types(broker.sent().acknowledgements) == {}
    assert [error is None for _, error in broker.results] == [True, False]


def test_one_error_fails_all_acknowledgements_of_its_partition() -> None:
    broker, lock = holding(0, 3)
    broker.acknowledge(ACCEPT, 0, 3, lock=lock)
    broker.handle(events.FlushRequested())
    broker.sent()
    broker.confirm(error=ERROR)
    [(acknowledgements, error)] = broker.results
    assert [*acknowledgements.types] == [(0, 0, ACCEPT), (3, 3, ACCEPT)]
    assert error.__cause__ is ERROR


def test_a_missing_result_is_a_failure() -> None:
    broker, lock = holding(0, 0)
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.handle(events.DemandChanged(wants_records=True))
    broker.sent()
    broker.respond()
    [(_, error)] = broker.results
    assert "no result" in str(error)


def test_a_lost_session_fails_sent_and_unsent_acknowledgements_and_holds_nothing() -> None:
    """The broker has released the records. Old acknowledgements never go to a new session."""
    broker, lock = holding(0, 3)
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.handle(events.FlushRequested())
    broker.sent()
    broker.acknowledge(ACCEPT, 1, lock=lock)
    broker.handle(events.DemandChanged(wants_records=True))
    broker.handle(events.RequestFailed(broker.request, ERROR, 5.0))
    assert [[*part.types] for part, _ in broker.results] == [[(0, 0, ACCEPT)], [(1, 1, ACCEPT)]]
    assert all(error is not None for _, error in broker.results)
    assert any(isinstance(effect, events.ReplaceConnection) for effect in broker.effects)
    assert broker.session.next_deadline() == 5.0
    broker.acknowledge(ACCEPT, 2, lock=lock)
    assert not broker.session.context.pending
    broker.now = 5.0
    broker.handle(events.RequestDue())
    fetch = broker.sent()
    assert (fetch.epoch, fetch.added, fetch.acknowledgements) == (0, BOTH, {})


def test_a_partition_with_an_error_is_fetched_again_after_a_backoff() -> None:
    broker = Broker()
    broker.sent()
    broker.respond(events.FetchedPartition(O0, NO_LOCK, error=ERROR))
    fetch = broker.sent()
    assert fetch.forgotten == {O0}
    broker.now = PARTITION_BACKOFF_S
    broker.respond()
    assert broker.sent().added == {O0}


def test_while_all_partitions_back_off_nothing_is_due() -> None:
    broker = Broker(frozenset({O0}))
    broker.sent()
    broker.respond(events.FetchedPartition(O0, NO_LOCK, error=ERROR))
    assert broker.session.next_deadline() == PARTITION_BACKOFF_S
    broker.session.state = states.NoSession()
    assert broker.session.next_deadline() == PARTITION_BACKOFF_S


def test_without_partitions_a_session_ends_once_it_holds_nothing() -> None:
    broker, lock = holding(0, 0)
    broker.handle(events.PartitionsChanged(frozenset()))
    assert broker.idle()
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.handle(events.FlushRequested())
    assert broker.sent().epoch == 1
    broker.confirm()
    assert broker.sent().epoch == states.FINAL_EPOCH
    broker.confirm()
    assert broker.session.state == states.NoSession()
    assert broker.session.next_deadline() == NEVER


def test_closing_sends_the_acknowledgements_with_the_final_epoch() -> None:
    broker, lock = holding(0, 3)
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.handle(events.SessionCloseRequested())
    acknowledge = broker.sent()
    assert acknowledge.epoch == states.FINAL_EPOCH
    assert types(acknowledge.acknowledgements) == {0: ACCEPT}
    broker.acknowledge(ACCEPT, 1, lock=lock)
    broker.confirm()
    assert broker.session.is_closed
    assert [error for _, error in broker.results] == [None]


def test_closing_waits_for_the_request_in_flight() -> None:
    broker = Broker()
    broker.sent()
    broker.handle(events.SessionCloseRequested())
    broker.respond(acquired(0, 3))
    assert broker.sent().epoch == states.FINAL_EPOCH


def test_closing_without_a_session_sends_nothing() -> None:
    broker = Broker(demand=False)
    broker.handle(events.SessionCloseRequested())
    assert broker.session.is_closed
    assert broker.idle()


def test_a_failed_close_is_not_repeated() -> None:
    broker, _ = holding(0, 3)
    broker.handle(events.SessionCloseRequested())
    broker.sent()
    broker.handle(events.RequestFailed(broker.request, ERROR, 0.0))
    assert broker.session.is_closed
    assert broker.idle()


def test_acknowledgements_form_batches_of_consecutive_offsets() -> None:
    acknowledgements = PartitionAcknowledgements()
    acknowledgements.types.set(3, 5, ACCEPT)
    acknowledgements.types.set(6, 6, RELEASE)
    acknowledgements.types.set(9, 10, RELEASE)
    assert acknowledgements.batches() == [
        (3, 6, [ACCEPT, ACCEPT, ACCEPT, RELEASE]),
        (9, 10, [RELEASE]),
    ]


def test_records_whose_locks_have_expired_are_not_held() -> None:
    broker, lock = holding(0, 1)
    broker.acknowledge(RENEW, 1, lock=lock)
    broker.sent()
    broker.now = 10.0
    broker.confirm()
    assert broker.session.next_deadline() == LOCK_S
    broker.now = LOCK_S
    broker.handle(events.RequestDue())
    assert [*broker.session.context.acquired[O0]] == [(1, 1, lock)]
    assert broker.session.next_deadline() == 10.0 + LOCK_S
    broker.now = 10.0 + LOCK_S
    broker.handle(events.DemandChanged(wants_records=True))
    assert not broker.sent().holds_records
    assert broker.session.context.expiry_at == NEVER


def test_a_session_without_partitions_ends_when_its_last_lock_expires() -> None:
    broker, _ = holding(0, 1)
    broker.handle(events.PartitionsChanged(frozenset()))
    assert broker.idle()
    broker.now = broker.session.next_deadline()
    broker.handle(events.RequestDue())
    assert broker.sent().epoch == states.FINAL_EPOCH


def test_an_acknowledgement_whose_lock_expires_before_it_is_sent_fails() -> None:
    broker, lock = holding(0, 1)
    broker.now = LOCK_S - ACKNOWLEDGE_DELAY_S / 2
    broker.acknowledge(ACCEPT, 0, lock=lock)
    broker.now = LOCK_S
    broker.handle(events.RequestDue())
    broker.now = broker.session.next_deadline()
    broker.handle(events.RequestDue())
    assert broker.idle()
    [(acknowledgements, _)] = broker.results
    assert acknowledgements.expired == {(0, lock)}


@pytest.mark.parametrize("kind", [RENEW, ACCEPT])
def test_a_session_goes_on_when_all_that_waited_has_expired(kind: AcknowledgeType) -> None:
    """Nothing is in flight then: no response would lead to the next fetch."""
    broker = Broker()
    broker.sent()
    lock = broker.respond(acquired(0, 9))
    broker.sent()
    broker.acknowledge(kind, *range(10), lock=lock)
    broker.handle(events.FlushRequested())
    broker.now = LOCK_S
    broker.respond()
    assert isinstance(broker.sent(), events.SendFetch)
    assert len(broker.results) == 1


def test_renewals_alternate_with_other_requests() -> None:
    """New renewals that come before each response hold up neither decisions nor fetches."""
    broker, lock = holding(0, 9)
    broker.acknowledge(RENEW, 0, lock=lock)
    broker.sent()
    broker.acknowledge(RENEW, 1, lock=lock)
    broker.acknowledge(ACCEPT, 9, lock=lock)
    broker.handle(events.FlushRequested())
    broker.confirm()
    assert types(broker.sent().acknowledgements) == {9: ACCEPT}
    broker.confirm()
    assert types(broker.sent().acknowledgements) == {1: RENEW}
    broker.acknowledge(RENEW, 2, lock=lock)
    broker.handle(events.DemandChanged(wants_records=True))
    broker.confirm()
    assert isinstance(broker.sent(), events.SendFetch)
    broker.respond()
    assert types(broker.sent().acknowledgements) == {2: RENEW}
