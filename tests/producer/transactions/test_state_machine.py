"""The transaction state machine: every state with every event, and its requests."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.connection import Backoff
from aiokafkawire.errors import (
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionFailed,
)
from aiokafkawire.producer.transactions.actions import RequestKind, TransactionAction
from aiokafkawire.producer.transactions.state_machine import TRANSITIONS, TransactionStateMachine
from aiokafkawire.producer.transactions.states import (
    AbortableError,
    Aborting,
    AbortTransaction,
    AddOffsetsToTxn,
    AddPartition,
    AddPartitionsToTxn,
    BeginTransaction,
    Committing,
    CommitTransaction,
    Detached,
    Detaching,
    DetachTransaction,
    EndTxn,
    EpochBumpRequired,
    FatalError,
    Flushed,
    Initialising,
    InitTransactions,
    InTransaction,
    OffsetCommit,
    OffsetsAddedToTxn,
    PartitionsAddedToTxn,
    ProducerFailed,
    ProducerIdReceived,
    Ready,
    RecordsFailed,
    RecordsSent,
    RequestProducerId,
    SendOffsetsToTransaction,
    Transaction,
    TransactionCall,
    TransactionEvent,
    TransactionRequest,
    TransactionState,
    TransactionVersion,
    TxnEnded,
    TxnOffsetCommit,
    TxnOffsetsCommitted,
    TxnRequestFailed,
    Uninitialised,
)
from aiokafkawire.runtime import NEVER
from aiokafkawire.runtime.state_machine import InvalidTransition
from aiokafkawire.types import (
    GroupMetadata,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    TopicPartition,
)
from aiokafkawire.wire import ErrorCode, error_for

ME = ProducerIdAndEpoch(7, 3)
NEXT = ProducerIdAndEpoch(7, 4)
TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
RNG = random.Random(0)
TV_0, TV_2 = TransactionVersion.TV_0, TransactionVersion.TV_2


def offset_commit(group: str = "g") -> OffsetCommit:
    return OffsetCommit(GroupMetadata(group), {TP: OffsetAndMetadata(5)})


def transaction(transaction_version: TransactionVersion = TV_0, **more: Any) -> Transaction:
    return Transaction(1, ME, transaction_version, 0.0, **more)


def machine_in(state: TransactionState) -> TransactionStateMachine:
    machine = TransactionStateMachine("id", Backoff(0.1, 1.0))
    machine.state = state
    return machine


def states() -> dict[type[Any], TransactionState]:
    error = KafkaError("x")
    return {
        type(state): state
        for state in (
            Uninitialised(),
            Initialising(None),
            Ready(ME),
            InTransaction(transaction()),
            Committing(transaction(started=True)),
            Aborting(transaction(started=True)),
            Detaching(transaction()),
            AbortableError(transaction(), error),
            Detached(transaction()),
            FatalError(error),
        )
    }


def events() -> dict[type[Any], TransactionEvent]:
    return {
        type(event): event
        for event in (
            InitTransactions(),
            BeginTransaction(TV_0),
            AddPartition(TP),
            SendOffsetsToTransaction(offset_commit()),
            CommitTransaction(),
            AbortTransaction(),
            DetachTransaction(),
            RecordsSent(),
            RecordsFailed(KafkaError("r")),
            EpochBumpRequired(),
            Flushed(sequence_gap=False),
            ProducerIdReceived(NEXT),
            PartitionsAddedToTxn((TP,)),
            OffsetsAddedToTxn("g"),
            TxnOffsetsCommitted(offset_commit()),
            TxnEnded(None),
            TxnRequestFailed(RequestKind.END_TXN, TransactionAction.ABORT, KafkaError("e")),
            ProducerFailed(ProducerFenced("f")),
        )
    }


SAME = "same"
OPEN = (InTransaction, Committing, Detaching)
EXPECTED: dict[tuple[type[Any], type[Any]], Any] = {
    (Uninitialised, InitTransactions): Initialising,
    (Ready, InitTransactions): Initialising,
    (Ready, BeginTransaction): InTransaction,
    (InTransaction, AddPartition): SAME,
    (InTransaction, SendOffsetsToTransaction): SAME,
    (InTransaction, CommitTransaction): Committing,
    (InTransaction, AbortTransaction): Aborting,
    (InTransaction, DetachTransaction): Detaching,
    (AbortableError, AbortTransaction): Aborting,
    (Detaching, AbortTransaction): Aborting,
    (Committing, CommitTransaction): SAME,
    (Aborting, AbortTransaction): SAME,
    (Detaching, DetachTransaction): SAME,
    (Detached, DetachTransaction): SAME,
    **{(state, RecordsSent): SAME for state in states() if state is not Ready},
    **{(state, RecordsFailed): SAME for state in states()},
    **{(state, RecordsFailed): AbortableError for state in OPEN},
    **{(state, EpochBumpRequired): SAME for state in states()},
    **{(state, EpochBumpRequired): AbortableError for state in OPEN},
    (Committing, Flushed): SAME,
    (Aborting, Flushed): SAME,
    (Detaching, Flushed): Detached,
    (Initialising, ProducerIdReceived): Ready,
    **{
        (state, event): SAME
        for state in (*OPEN, AbortableError, Aborting)
        for event in (PartitionsAddedToTxn, OffsetsAddedToTxn, TxnOffsetsCommitted)
    },
    (Committing, TxnEnded): Ready,
    (Aborting, TxnEnded): Ready,
    **{(state, TxnRequestFailed): AbortableError for state in OPEN},
    (AbortableError, TxnRequestFailed): SAME,
    (Aborting, TxnRequestFailed): Initialising,
    **{(state, ProducerFailed): FatalError for state in states()},
    (Detached, ProducerFailed): SAME,
    (FatalError, ProducerFailed): SAME,
    **{
        (state, event): SAME
        for state in (Detached, FatalError)
        for event in (
            ProducerIdReceived,
            PartitionsAddedToTxn,
            OffsetsAddedToTxn,
            TxnOffsetsCommitted,
            TxnEnded,
            TxnRequestFailed,
        )
    },
}
"""The next state of each pair; a missing pair is rejected or impossible."""


@pytest.mark.parametrize("event", events(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("state", states(), ids=lambda kind: kind.__name__)
def test_every_state_with_every_event(state: type[Any], event: type[Any]):
    machine = machine_in(states()[state])
    expected = EXPECTED.get((state, event))
    if expected is not None:
        machine.handle(events()[event], 0.0)
        assert type(machine.state) is (state if expected is SAME else expected)
        return
    assert (state, event) not in TRANSITIONS
    if not isinstance(events()[event], TransactionCall):
        with pytest.raises(InvalidTransition):
            machine.handle(events()[event], 0.0)
    elif state in {AbortableError, FatalError}:
        with pytest.raises(KafkaError, match=r"^x$"):
            machine.handle(events()[event], 0.0)
    else:
        with pytest.raises(InvalidTxnState, match="transactional_id id"):
            machine.handle(events()[event], 0.0)
    assert type(machine.state) is state


def test_an_error_of_a_state_is_raised_as_a_copy():
    machine = machine_in(FatalError(error := ProducerFenced("f")))
    with pytest.raises(ProducerFenced) as raised:
        machine.check_allowed(BeginTransaction)
    assert raised.value is not error


# --- requests ---


class Run:
    """A state machine and the responses to its requests; records count as flushed by default."""

    def __init__(self, transaction_version: TransactionVersion = TV_0) -> None:
        self.machine = TransactionStateMachine("id", Backoff(0.1, 1.0))
        self.transaction_version = transaction_version
        self.now = 0.0
        self.machine.handle(InitTransactions(), 0.0)
        assert self.ask() == RequestProducerId(None)
        self.done(ProducerIdReceived(ME))

    def begin(self, *calls: TransactionCall) -> Transaction:
        self.handle(BeginTransaction(self.transaction_version), *calls)
        found = self.machine.transaction
        assert found is not None
        return found

    def handle(self, *happened: TransactionEvent) -> None:
        for event in happened:
            self.machine.handle(event, self.now)

    def ask(self, *, flushed: bool = True, gap: bool = False) -> TransactionRequest | None:
        return self.machine.next_request(self.now, flushed=flushed, sequence_gap=gap)

    def later(self) -> None:
        """Let the backoff pass."""
        deadline = self.machine.next_deadline()
        assert deadline < NEVER
        assert self.ask() is None
        self.now = deadline

    def done(self, event: TransactionEvent) -> None:
        self.machine.handle_response(TransactionAction.DONE, event, None, self.now, RNG)

    def refused(self, action: TransactionAction, error: KafkaError | None = None) -> None:
        self.machine.handle_response(action, None, error or KafkaError("no"), self.now, RNG)

    def lost(self, *, sent: bool = True) -> None:
        self.machine.handle_failure(KafkaError("lost"), self.now, RNG, sent=sent)

    @property
    def state(self) -> TransactionState:
        return self.machine.state


def test_partitions_are_added_together_before_the_end():
    run = Run()
    run.begin(AddPartition(TP), AddPartition(OTHER), AddPartition(TP))
    assert run.ask(flushed=False) == AddPartitionsToTxn(ME, (TP, OTHER))
    assert run.ask() is None, "one request at a time"
    run.done(PartitionsAddedToTxn((TP, OTHER)))
    assert run.ask() is None
    run.handle(AddPartition(TP), CommitTransaction())
    assert run.ask(flushed=False) is None, "records are on their way"
    assert run.ask() == EndTxn(ME, TV_0, committed=True)
    run.done(TxnEnded(None))
    assert run.state == Ready(ME, TV_0, committed=True)
    assert (run.machine.begun, run.machine.committed, run.machine.aborted) == (1, 1, 0)


def test_with_tv_2_nothing_is_added_and_the_end_returns_an_identity():
    run = Run(TV_2)
    run.begin(AddPartition(TP), RecordsSent(), CommitTransaction())
    assert run.ask() == EndTxn(ME, TV_2, committed=True)
    run.done(TxnEnded(NEXT))
    assert run.state == Ready(NEXT, TV_2, committed=True)


@pytest.mark.parametrize("transaction_version", TransactionVersion)
@pytest.mark.parametrize("call", [CommitTransaction(), AbortTransaction()])
def test_an_unstarted_transaction_ends_without_a_request(
    transaction_version: TransactionVersion, call: TransactionCall
):
    run = Run(transaction_version)
    run.begin(call)
    assert run.ask() is None
    assert run.state == Ready(
        ME, transaction_version, committed=isinstance(call, CommitTransaction)
    )


def test_offsets_are_added_once_a_group_and_committed_in_their_order():
    run = Run()
    first, second, third = offset_commit(), offset_commit(), offset_commit("h")
    run.begin(
        SendOffsetsToTransaction(first),
        SendOffsetsToTransaction(second),
        SendOffsetsToTransaction(third),
    )
    assert run.ask() == AddOffsetsToTxn(ME, "g")
    run.done(OffsetsAddedToTxn("g"))
    for commit in (first, second):
        assert run.ask() == TxnOffsetCommit(ME, TV_0, commit)
        run.done(TxnOffsetsCommitted(commit))
        assert commit.done
    assert run.ask() == AddOffsetsToTxn(ME, "h")
    run.done(OffsetsAddedToTxn("h"))
    assert run.ask() == TxnOffsetCommit(ME, TV_0, third)
    run.done(TxnOffsetsCommitted(third))
    run.handle(CommitTransaction())
    assert run.ask() == EndTxn(ME, TV_0, committed=True)
    assert run.machine.committed_offsets == []
    run.done(TxnEnded(None))
    assert run.machine.committed_offsets == [first, second, third]


def test_a_commit_waits_for_the_offsets_too():
    run = Run(TV_2)
    commit = offset_commit()
    run.begin(SendOffsetsToTransaction(commit), CommitTransaction())
    assert run.ask() == TxnOffsetCommit(ME, TV_2, commit)
    run.done(TxnOffsetsCommitted(commit))
    assert run.ask() == EndTxn(ME, TV_2, committed=True)


def test_offsets_of_an_aborted_transaction_are_not_committed():
    run = Run(TV_2)
    commit = offset_commit()
    run.begin(SendOffsetsToTransaction(commit))
    assert run.ask() == TxnOffsetCommit(ME, TV_2, commit)
    run.done(TxnOffsetsCommitted(commit))
    run.handle(AbortTransaction())
    assert run.ask() == EndTxn(ME, TV_2, committed=False)
    run.done(TxnEnded(NEXT))
    assert run.machine.committed_offsets == []


@pytest.mark.parametrize("action", [TransactionAction.RETRY, TransactionAction.FIND_COORDINATOR])
def test_a_retry_waits_and_includes_new_partitions(
    action: TransactionAction,
):
    run = Run()
    run.begin(AddPartition(TP))
    assert run.ask() == AddPartitionsToTxn(ME, (TP,))
    run.handle(AddPartition(OTHER))
    run.refused(action, KafkaError("not yet"))
    assert str(run.machine.last_error) == "not yet"
    run.later()
    assert run.ask() == AddPartitionsToTxn(ME, (TP, OTHER))
    run.done(PartitionsAddedToTxn((TP, OTHER)))
    assert run.machine.last_error is None
    assert run.machine.next_deadline() == NEVER


def test_concurrent_transactions_are_retried_with_short_backoff():
    concurrent = KafkaError("C")
    concurrent.name = "CONCURRENT_TRANSACTIONS"  # type: ignore[attr-defined]
    pauses = []
    for error in (concurrent, KafkaError("other")):
        run = Run()
        run.begin(AddPartition(TP))
        run.ask()
        run.refused(TransactionAction.RETRY, error)
        pauses.append(run.machine.next_deadline())
    assert pauses[0] < 0.03
    assert pauses[1] > 0.07


def test_an_unanswered_commit_is_retried_and_never_aborted():
    run = Run()
    run.begin(AddPartition(TP))
    run.ask()
    run.done(PartitionsAddedToTxn((TP,)))
    run.handle(CommitTransaction())
    for _ in range(3):
        assert run.ask() == EndTxn(ME, TV_0, committed=True)
        run.lost()
        with pytest.raises(InvalidTxnState, match=r"cannot abort .* being committed"):
            run.handle(AbortTransaction())
        run.later()
    assert run.ask() == EndTxn(ME, TV_0, committed=True)
    run.done(TxnEnded(None))
    assert run.state == Ready(ME, TV_0, committed=True)


@pytest.mark.parametrize(
    "action", [TransactionAction.FENCED, TransactionAction.FATAL, TransactionAction.BUMP_ONLY]
)
def test_a_fenced_producer_may_have_committed_after_an_unanswered_commit(action: TransactionAction):
    run = Run()
    transaction = run.begin(CommitTransaction())
    transaction.started = True
    run.ask()
    run.lost()
    run.later()
    run.ask()
    run.refused(TransactionAction.RETRY)
    run.later()
    run.ask()
    run.refused(action, ProducerFenced("fenced"))
    assert isinstance(run.state, FatalError)
    assert "may be committed or not" in str(run.state.error)


@pytest.mark.parametrize("sent", [False, True])
def test_a_commit_that_was_certainly_rejected_can_be_aborted(sent: bool):
    run = Run(TV_2)
    run.begin(RecordsSent(), CommitTransaction())
    run.ask()
    run.lost(sent=sent)
    run.later()
    run.ask()
    # The coordinator aborted the transaction.
    run.refused(TransactionAction.ABORT)
    assert isinstance(run.state, AbortableError)
    run.handle(AbortTransaction())
    assert run.ask() == EndTxn(ME, TV_2, committed=False)
    run.done(TxnEnded(NEXT))
    assert run.state == Ready(NEXT, TV_2, committed=False)


def test_after_a_failed_record_only_an_abort_is_allowed():
    run = Run()
    run.begin(AddPartition(TP))
    run.ask()
    run.done(PartitionsAddedToTxn((TP,)))
    cause = KafkaError("too large")
    run.handle(CommitTransaction(), RecordsFailed(cause))
    assert isinstance(run.state, AbortableError)
    assert isinstance(run.state.error, TransactionFailed)
    assert run.state.error.__cause__ is cause
    for call in (
        CommitTransaction(),
        AddPartition(TP),
        SendOffsetsToTransaction(offset_commit()),
        BeginTransaction(TV_0),
    ):
        with pytest.raises(TransactionFailed, match="too large"):
            run.handle(call)
    assert run.ask() is None
    run.handle(AbortTransaction())
    assert run.ask() == EndTxn(ME, TV_0, committed=False)
    run.done(TxnEnded(None))
    assert run.state == Ready(ME, TV_0, committed=False)


@pytest.mark.parametrize("why", ["gap", "numbers", "refused"])
def test_the_epoch_is_bumped_after_a_sequence_gap(why: str):
    run = Run()
    transaction = run.begin(AddPartition(TP))
    transaction.started = True
    if why == "numbers":
        run.handle(EpochBumpRequired())
    elif why == "refused":
        run.ask()
        run.refused(TransactionAction.ABORT_AND_BUMP)
    run.handle(AbortTransaction())
    assert run.ask(gap=why == "gap") == EndTxn(ME, TV_0, committed=False)
    run.done(TxnEnded(None))
    assert run.state == Initialising(ME, TV_0, committed=False)
    assert run.ask() == RequestProducerId(ME)
    run.done(ProducerIdReceived(NEXT))
    assert run.state == Ready(NEXT, TV_0, committed=False)


def test_without_epoch_bump_a_sequence_gap_fails_the_producer():
    run = Run()
    run.machine.can_bump_epoch = False
    transaction = run.begin(EpochBumpRequired(), AbortTransaction())
    transaction.started = True
    run.ask()
    run.done(TxnEnded(None))
    assert isinstance(run.state, FatalError)
    assert "create a new producer" in str(run.state.error)


def test_end_txn_is_skipped_if_the_producer_id_is_unknown():
    run = Run()
    transaction = run.begin(AddPartition(TP))
    transaction.started = True
    run.ask()
    run.refused(TransactionAction.BUMP_ONLY)
    run.handle(AbortTransaction())
    assert run.ask() == RequestProducerId(ME)


def test_a_rejected_abort_bumps_the_epoch():
    run = Run()
    transaction = run.begin(AbortTransaction())
    transaction.started = True
    assert run.ask() == EndTxn(ME, TV_0, committed=False)
    run.refused(TransactionAction.ABORT)
    assert run.ask() == RequestProducerId(ME)


def test_an_abort_first_finds_out_if_the_transaction_started():
    run = Run()
    run.begin(AddPartition(TP))
    assert run.ask() == AddPartitionsToTxn(ME, (TP,))
    run.handle(AbortTransaction())
    run.lost()
    run.later()
    assert run.ask() == AddPartitionsToTxn(ME, (TP,))
    run.done(PartitionsAddedToTxn((TP,)))
    assert run.ask() == EndTxn(ME, TV_0, committed=False)


@pytest.mark.parametrize("name", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_a_response_of_another_broker_leaves_the_start_unknown(name: str):
    run = Run()
    run.begin(AddPartition(TP))
    run.ask()
    run.lost()
    run.later()
    run.ask()
    finding = name == "NOT_COORDINATOR"
    run.refused(
        TransactionAction.FIND_COORDINATOR if finding else TransactionAction.RETRY,
        error_for(ErrorCode[name]),
    )
    run.handle(AbortTransaction())
    run.later()
    assert run.ask() == AddPartitionsToTxn(ME, (TP,))
    run.done(PartitionsAddedToTxn((TP,)))
    assert run.ask() == EndTxn(ME, TV_0, committed=False)


def test_sequences_lost_during_a_commit_affect_the_next_transaction():
    run = Run()
    run.begin(CommitTransaction()).started = True
    assert run.ask() == EndTxn(ME, TV_0, committed=True)
    run.handle(EpochBumpRequired())
    assert isinstance(run.state, Committing)
    run.done(TxnEnded(None))
    assert run.state == Ready(ME, TV_0, committed=True, epoch_bump_required=True)


@pytest.mark.parametrize("call", [CommitTransaction(), AbortTransaction()])
def test_an_end_with_tv_2_that_did_not_bump_the_epoch(call: TransactionCall):
    run = Run(TV_2)
    run.begin(RecordsSent(), call)
    run.ask()
    run.done(TxnEnded(None))
    if isinstance(call, CommitTransaction):
        assert run.machine.must_bump_epoch(TV_2)
    else:
        assert run.ask() == RequestProducerId(ME)


@pytest.mark.parametrize("action", [TransactionAction.FENCED, TransactionAction.BUMP_ONLY])
def test_a_fenced_producer_may_have_committed_after_a_broker_timeout(
    action: TransactionAction,
):
    run = Run()
    run.begin(CommitTransaction()).started = True
    run.ask()
    run.refused(TransactionAction.FIND_COORDINATOR, error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    run.later()
    run.ask()
    run.refused(action, ProducerFenced("fenced"))
    assert isinstance(run.state, FatalError)
    assert "may be committed or not" in str(run.state.error)


def test_an_abort_does_not_retry_partitions_that_were_not_added():
    run = Run()
    run.begin(AddPartition(TP))
    run.ask()
    run.refused(TransactionAction.RETRY)
    run.handle(AbortTransaction())
    run.later()
    assert run.ask() is None
    assert run.state == Ready(ME, TV_0, committed=False)


def test_rejected_partitions_do_not_change_an_abort():
    run = Run()
    run.begin(AddPartition(TP))
    run.ask()
    run.handle(AbortTransaction())
    run.refused(TransactionAction.ABORT)
    assert run.ask() is None
    assert run.state == Ready(ME, TV_0, committed=False)


def test_an_abort_does_not_retry_unanswered_offsets():
    run = Run(TV_2)
    run.begin(SendOffsetsToTransaction(offset_commit()))
    run.ask()
    run.lost()
    run.handle(AbortTransaction())
    run.later()
    assert run.ask() == EndTxn(ME, TV_2, committed=False), "the coordinator may know of it"


def test_a_late_response_is_noted():
    run = Run()
    transaction = run.begin(AddPartition(TP))
    run.ask()
    run.handle(RecordsFailed(KafkaError("r")))
    run.done(PartitionsAddedToTxn((TP,)))
    assert transaction.started
    run.handle(AbortTransaction())
    assert run.ask() == EndTxn(ME, TV_0, committed=False)


def test_a_detached_transaction_is_left_open():
    run = Run()
    run.begin(AddPartition(TP), DetachTransaction())
    assert run.ask() == AddPartitionsToTxn(ME, (TP,))
    run.done(PartitionsAddedToTxn((TP,)))
    assert run.ask(flushed=False) is None
    assert isinstance(run.state, Detaching)
    assert run.ask() is None
    assert isinstance(run.state, Detached)
    with pytest.raises(InvalidTxnState, match="was detached"):
        run.handle(BeginTransaction(TV_0))


@pytest.mark.parametrize(
    ("last", "transaction_version", "must"),
    [
        (None, TV_2, False),
        (TV_0, TV_0, False),
        (TV_0, TV_2, True),
        (TV_2, TV_2, False),
        (TV_2, TV_0, False),
    ],
)
def test_the_epoch_is_bumped_when_the_cluster_upgrades_to_tv_2(
    last: TransactionVersion | None, transaction_version: TransactionVersion, must: bool
):
    assert machine_in(Ready(ME, last)).must_bump_epoch(transaction_version) is must


def test_sequences_lost_between_transactions_bump_the_epoch():
    run = Run()
    run.handle(EpochBumpRequired())
    assert run.machine.must_bump_epoch(TV_0)
    run.handle(InitTransactions())
    assert run.ask() == RequestProducerId(ME)
    run.done(ProducerIdReceived(NEXT))
    assert not run.machine.must_bump_epoch(TV_0)


def test_sequences_lost_between_transactions_fail_with_old_brokers():
    run = Run()
    run.machine.can_bump_epoch = False
    run.handle(EpochBumpRequired(), InitTransactions())
    assert isinstance(run.state, FatalError)


@pytest.mark.parametrize("action", [TransactionAction.FATAL, TransactionAction.FENCED])
def test_a_fatal_response_fails_the_producer(action: TransactionAction):
    run = Run()
    run.begin(AddPartition(TP))
    run.ask()
    run.refused(action, ProducerFenced("fenced"))
    assert isinstance(run.state, FatalError)
    assert run.ask() is None
    for call in (CommitTransaction(), AbortTransaction(), BeginTransaction(TV_0), AddPartition(TP)):
        with pytest.raises(ProducerFenced):
            run.handle(call)


# --- random events ---


def _answer(draw: Any, run: Run, request: TransactionRequest) -> None:
    """Answer a request in some way."""
    kind = draw(st.sampled_from(["done", "again", "lost", "unsent", "abort", "bump", "fatal"]))
    if isinstance(request, RequestProducerId) and kind in {"abort", "bump"}:
        kind = "again"
    if kind == "again":
        run.refused(TransactionAction.RETRY)
    elif kind in {"lost", "unsent"}:
        run.lost(sent=kind == "lost")
    elif kind == "abort":
        run.refused(TransactionAction.ABORT)
    elif kind == "bump":
        run.refused(TransactionAction.ABORT_AND_BUMP)
    elif kind == "fatal":
        run.refused(TransactionAction.FATAL)
    else:
        match request:
            case RequestProducerId():
                run.done(ProducerIdReceived(NEXT))
            case AddPartitionsToTxn(_, partitions):
                run.done(PartitionsAddedToTxn(partitions))
            case AddOffsetsToTxn(_, group_id):
                run.done(OffsetsAddedToTxn(group_id))
            case TxnOffsetCommit(_, _, commit):
                run.done(TxnOffsetsCommitted(commit))
            case EndTxn(_, transaction_version):
                run.done(TxnEnded(NEXT if transaction_version is TV_2 else None))


@given(st.data(), st.sampled_from(TransactionVersion))
def test_a_commit_is_reported_only_after_the_coordinators_response(
    data: st.DataObject, transaction_version: TransactionVersion
):
    run = Run(transaction_version)
    committed: dict[int, bool] = {}
    asked: dict[int, list[bool]] = {}
    failed: set[int] = set()
    for _ in range(data.draw(st.integers(1, 40))):
        number = run.machine.begun
        step = data.draw(
            st.sampled_from(["begin", "use", "offsets", "commit", "abort", "fail", "ask"])
        )
        before = run.machine.committed
        known = run.machine.transaction is not None and run.machine.transaction.started
        try:
            match step:
                case "begin":
                    run.begin()
                case "use":
                    run.handle(AddPartition(TP), RecordsSent())
                case "offsets":
                    run.handle(SendOffsetsToTransaction(offset_commit()))
                case "commit":
                    run.handle(CommitTransaction())
                case "abort":
                    run.handle(AbortTransaction())
                case "fail":
                    run.handle(RecordsFailed(KafkaError("r")))
                    if isinstance(run.state, AbortableError):
                        failed.add(number)
        except KafkaError:
            continue
        if step != "ask":
            continue
        run.now = max(run.now, min(run.machine.next_deadline(), run.now + 10))
        request = run.ask()
        if isinstance(request, EndTxn):
            asked.setdefault(number, []).append(request.committed)
        if request is not None:
            _answer(data.draw, run, request)
        if run.machine.committed > before:
            committed[number] = known
    for number, known in committed.items():
        assert number not in failed
        if known:
            assert set(asked[number]) == {True}, "a commit and an abort of one transaction"
