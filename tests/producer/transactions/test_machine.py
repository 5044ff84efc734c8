"""The machine of transactions: every state with every event, and what it asks of coordinators."""

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
from aiokafkawire.producer.transactions.machine import TRANSITIONS, TransactionMachine
from aiokafkawire.producer.transactions.outcomes import Outcome, RequestKind
from aiokafkawire.producer.transactions.states import (
    Abort,
    AbortableError,
    Aborting,
    AddOffsets,
    AddPartitions,
    Begin,
    Call,
    Commit,
    CommitOffsets,
    Committing,
    Detach,
    Detached,
    Detaching,
    End,
    Ended,
    Event,
    Failed,
    FatalError,
    Flushed,
    Init,
    Initialise,
    Initialised,
    Initialising,
    InTransaction,
    NumbersLost,
    OffsetCommit,
    OffsetsAdded,
    OffsetsCommitted,
    PartitionsAdded,
    Protocol,
    Ready,
    RecordsFailed,
    RecordsSent,
    Refused,
    Request,
    SendOffsets,
    State,
    Transaction,
    Uninitialised,
    UsePartition,
)
from aiokafkawire.runtime import NEVER
from aiokafkawire.runtime.transitions import InvalidTransition
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
CLASSIC, IMPLICIT = Protocol.CLASSIC, Protocol.IMPLICIT


def offset_commit(group: str = "g") -> OffsetCommit:
    return OffsetCommit(GroupMetadata(group), {TP: OffsetAndMetadata(5)})


def transaction(protocol: Protocol = CLASSIC, **more: Any) -> Transaction:
    return Transaction(1, ME, protocol, 0.0, **more)


def machine_in(state: State) -> TransactionMachine:
    machine = TransactionMachine("id", Backoff(0.1, 1.0))
    machine.state = state
    return machine


def states() -> dict[type[Any], State]:
    error = KafkaError("x")
    return {
        type(state): state
        for state in (
            Uninitialised(),
            Initialising(None),
            Ready(ME),
            InTransaction(transaction()),
            Committing(transaction(known=True)),
            Aborting(transaction(known=True)),
            Detaching(transaction()),
            AbortableError(transaction(), error),
            Detached(transaction()),
            FatalError(error),
        )
    }


def events() -> dict[type[Any], Event]:
    return {
        type(event): event
        for event in (
            Initialise(),
            Begin(CLASSIC),
            UsePartition(TP),
            SendOffsets(offset_commit()),
            Commit(),
            Abort(),
            Detach(),
            RecordsSent(),
            RecordsFailed(KafkaError("r")),
            NumbersLost(),
            Flushed(gap=False),
            Initialised(NEXT),
            PartitionsAdded((TP,)),
            OffsetsAdded("g"),
            OffsetsCommitted(offset_commit()),
            Ended(None),
            Refused(RequestKind.END, Outcome.ABORT, KafkaError("e")),
            Failed(ProducerFenced("f")),
        )
    }


SAME = "same"
OPEN = (InTransaction, Committing, Detaching)
EXPECTED: dict[tuple[type[Any], type[Any]], Any] = {
    (Uninitialised, Initialise): Initialising,
    (Ready, Initialise): Initialising,
    (Ready, Begin): InTransaction,
    (InTransaction, UsePartition): SAME,
    (InTransaction, SendOffsets): SAME,
    (InTransaction, Commit): Committing,
    (InTransaction, Abort): Aborting,
    (InTransaction, Detach): Detaching,
    (AbortableError, Abort): Aborting,
    (Detaching, Abort): Aborting,
    (Committing, Commit): SAME,
    (Aborting, Abort): SAME,
    (Detaching, Detach): SAME,
    (Detached, Detach): SAME,
    **{(state, RecordsSent): SAME for state in states() if state is not Ready},
    **{(state, RecordsFailed): SAME for state in states()},
    **{(state, RecordsFailed): AbortableError for state in OPEN},
    **{(state, NumbersLost): SAME for state in states()},
    **{(state, NumbersLost): AbortableError for state in OPEN},
    (Committing, Flushed): SAME,
    (Aborting, Flushed): SAME,
    (Detaching, Flushed): Detached,
    (Initialising, Initialised): Ready,
    **{
        (state, event): SAME
        for state in (*OPEN, AbortableError, Aborting)
        for event in (PartitionsAdded, OffsetsAdded, OffsetsCommitted)
    },
    (Committing, Ended): Ready,
    (Aborting, Ended): Ready,
    **{(state, Refused): AbortableError for state in OPEN},
    (AbortableError, Refused): SAME,
    (Aborting, Refused): Initialising,
    **{(state, Failed): FatalError for state in states()},
    (Detached, Failed): SAME,
    (FatalError, Failed): SAME,
    **{
        (state, event): SAME
        for state in (Detached, FatalError)
        for event in (
            Initialised,
            PartitionsAdded,
            OffsetsAdded,
            OffsetsCommitted,
            Ended,
            Refused,
        )
    },
}
"""The state to which a pair leads; a pair that is absent is out of order, or cannot happen."""


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
    if not isinstance(events()[event], Call):
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
    with pytest.raises(ProducerFenced) as told:
        machine.check(Begin)
    assert told.value is not error


# --- what it asks -----------------------------------------------------------------------------


class Run:
    """A machine and answers to what it asks; all records are flushed unless said otherwise."""

    def __init__(self, protocol: Protocol = CLASSIC) -> None:
        self.machine = TransactionMachine("id", Backoff(0.1, 1.0))
        self.protocol = protocol
        self.now = 0.0
        self.machine.handle(Initialise(), 0.0)
        assert self.ask() == Init(None)
        self.done(Initialised(ME))

    def begin(self, *calls: Call) -> Transaction:
        self.handle(Begin(self.protocol), *calls)
        found = self.machine.transaction
        assert found is not None
        return found

    def handle(self, *happened: Event) -> None:
        for event in happened:
            self.machine.handle(event, self.now)

    def ask(self, *, flushed: bool = True, gap: bool = False) -> Request | None:
        return self.machine.next_request(self.now, flushed=flushed, gap=gap)

    def later(self) -> None:
        """When the pause is over."""
        deadline = self.machine.next_deadline()
        assert deadline < NEVER
        assert self.ask() is None
        self.now = deadline

    def done(self, event: Event) -> None:
        self.machine.answered(Outcome.DONE, event, None, self.now, RNG)

    def refused(self, outcome: Outcome, error: KafkaError | None = None) -> None:
        self.machine.answered(outcome, None, error or KafkaError("no"), self.now, RNG)

    def lost(self, *, sent: bool = True) -> None:
        self.machine.unanswered(KafkaError("lost"), self.now, RNG, sent=sent)

    @property
    def state(self) -> State:
        return self.machine.state


def test_partitions_are_added_together_before_the_end():
    run = Run()
    run.begin(UsePartition(TP), UsePartition(OTHER), UsePartition(TP))
    assert run.ask(flushed=False) == AddPartitions(ME, (TP, OTHER))
    assert run.ask() is None, "one request at a time"
    run.done(PartitionsAdded((TP, OTHER)))
    assert run.ask() is None
    run.handle(UsePartition(TP), Commit())
    assert run.ask(flushed=False) is None, "records are on their way"
    assert run.ask() == End(ME, CLASSIC, committed=True)
    run.done(Ended(None))
    assert run.state == Ready(ME, CLASSIC, committed=True)
    assert (run.machine.begun, run.machine.committed, run.machine.aborted) == (1, 1, 0)


def test_with_the_newer_protocol_nothing_is_added_and_the_end_gives_an_identity():
    run = Run(IMPLICIT)
    run.begin(UsePartition(TP), RecordsSent(), Commit())
    assert run.ask() == End(ME, IMPLICIT, committed=True)
    run.done(Ended(NEXT))
    assert run.state == Ready(NEXT, IMPLICIT, committed=True)


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("call", [Commit(), Abort()])
def test_what_no_coordinator_knows_is_ended_without_asking(protocol: Protocol, call: Call):
    run = Run(protocol)
    run.begin(call)
    assert run.ask() is None
    assert run.state == Ready(ME, protocol, committed=isinstance(call, Commit))


def test_offsets_are_added_once_a_group_and_committed_in_their_order():
    run = Run()
    first, second, third = offset_commit(), offset_commit(), offset_commit("h")
    run.begin(SendOffsets(first), SendOffsets(second), SendOffsets(third))
    assert run.ask() == AddOffsets(ME, "g")
    run.done(OffsetsAdded("g"))
    for commit in (first, second):
        assert run.ask() == CommitOffsets(ME, CLASSIC, commit)
        run.done(OffsetsCommitted(commit))
        assert commit.done
    assert run.ask() == AddOffsets(ME, "h")
    run.done(OffsetsAdded("h"))
    assert run.ask() == CommitOffsets(ME, CLASSIC, third)
    run.done(OffsetsCommitted(third))
    run.handle(Commit())
    assert run.ask() == End(ME, CLASSIC, committed=True)
    assert run.machine.kept == []
    run.done(Ended(None))
    assert run.machine.kept == [first, second, third]


def test_a_commit_waits_for_the_offsets_too():
    run = Run(IMPLICIT)
    commit = offset_commit()
    run.begin(SendOffsets(commit), Commit())
    assert run.ask() == CommitOffsets(ME, IMPLICIT, commit)
    run.done(OffsetsCommitted(commit))
    assert run.ask() == End(ME, IMPLICIT, committed=True)


def test_offsets_of_an_aborted_transaction_are_not_kept():
    run = Run(IMPLICIT)
    commit = offset_commit()
    run.begin(SendOffsets(commit))
    assert run.ask() == CommitOffsets(ME, IMPLICIT, commit)
    run.done(OffsetsCommitted(commit))
    run.handle(Abort())
    assert run.ask() == End(ME, IMPLICIT, committed=False)
    run.done(Ended(NEXT))
    assert run.machine.kept == []


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.FIND])
def test_what_is_to_be_repeated_is_repeated_after_a_pause_with_what_came_meanwhile(
    outcome: Outcome,
):
    run = Run()
    run.begin(UsePartition(TP))
    assert run.ask() == AddPartitions(ME, (TP,))
    run.handle(UsePartition(OTHER))
    run.refused(outcome, KafkaError("not yet"))
    assert str(run.machine.trouble) == "not yet"
    run.later()
    assert run.ask() == AddPartitions(ME, (TP, OTHER))
    run.done(PartitionsAdded((TP, OTHER)))
    assert run.machine.trouble is None
    assert run.machine.next_deadline() == NEVER


def test_the_end_of_the_transaction_before_is_awaited_with_short_pauses():
    concurrent = KafkaError("C")
    concurrent.name = "CONCURRENT_TRANSACTIONS"  # type: ignore[attr-defined]
    pauses = []
    for error in (concurrent, KafkaError("other")):
        run = Run()
        run.begin(UsePartition(TP))
        run.ask()
        run.refused(Outcome.RETRY, error)
        pauses.append(run.machine.next_deadline())
    assert pauses[0] < 0.03
    assert pauses[1] > 0.07


def test_a_commit_without_an_answer_is_repeated_and_never_aborted():
    run = Run()
    run.begin(UsePartition(TP))
    run.ask()
    run.done(PartitionsAdded((TP,)))
    run.handle(Commit())
    for _ in range(3):
        assert run.ask() == End(ME, CLASSIC, committed=True)
        run.lost()
        with pytest.raises(InvalidTxnState, match=r"aborted, but .* being committed"):
            run.handle(Abort())
        run.later()
    assert run.ask() == End(ME, CLASSIC, committed=True)
    run.done(Ended(None))
    assert run.state == Ready(ME, CLASSIC, committed=True)


@pytest.mark.parametrize("outcome", [Outcome.FENCED, Outcome.FATAL, Outcome.FORGOTTEN])
def test_who_is_fenced_after_an_unanswered_commit_may_have_committed(outcome: Outcome):
    run = Run()
    transaction = run.begin(Commit())
    transaction.known = True
    run.ask()
    run.lost()
    run.later()
    run.ask()
    run.refused(Outcome.RETRY)
    run.later()
    run.ask()
    run.refused(outcome, ProducerFenced("fenced"))
    assert isinstance(run.state, FatalError)
    assert "may be committed or not" in str(run.state.error)


@pytest.mark.parametrize("sent", [False, True])
def test_a_commit_that_surely_was_not_carried_out_can_be_aborted(sent: bool):
    run = Run(IMPLICIT)
    run.begin(RecordsSent(), Commit())
    run.ask()
    run.lost(sent=sent)
    run.later()
    run.ask()
    # The coordinator says that it has aborted.
    run.refused(Outcome.ABORT)
    assert isinstance(run.state, AbortableError)
    run.handle(Abort())
    assert run.ask() == End(ME, IMPLICIT, committed=False)
    run.done(Ended(NEXT))
    assert run.state == Ready(NEXT, IMPLICIT, committed=False)


def test_a_failed_record_leaves_nothing_but_an_abort():
    run = Run()
    run.begin(UsePartition(TP))
    run.ask()
    run.done(PartitionsAdded((TP,)))
    cause = KafkaError("too large")
    run.handle(Commit(), RecordsFailed(cause))
    assert isinstance(run.state, AbortableError)
    assert isinstance(run.state.error, TransactionFailed)
    assert run.state.error.__cause__ is cause
    for call in (Commit(), UsePartition(TP), SendOffsets(offset_commit()), Begin(CLASSIC)):
        with pytest.raises(TransactionFailed, match="too large"):
            run.handle(call)
    assert run.ask() is None
    run.handle(Abort())
    assert run.ask() == End(ME, CLASSIC, committed=False)
    run.done(Ended(None))
    assert run.state == Ready(ME, CLASSIC, committed=False)


@pytest.mark.parametrize("why", ["gap", "numbers", "refused"])
def test_the_epoch_is_raised_after_what_left_gaps(why: str):
    run = Run()
    transaction = run.begin(UsePartition(TP))
    transaction.known = True
    if why == "numbers":
        run.handle(NumbersLost())
    elif why == "refused":
        run.ask()
        run.refused(Outcome.BUMP)
    run.handle(Abort())
    assert run.ask(gap=why == "gap") == End(ME, CLASSIC, committed=False)
    run.done(Ended(None))
    assert run.state == Initialising(ME, CLASSIC, committed=False)
    assert run.ask() == Init(ME)
    run.done(Initialised(NEXT))
    assert run.state == Ready(NEXT, CLASSIC, committed=False)


def test_brokers_that_raise_no_epoch_leave_no_way_on():
    run = Run()
    run.machine.can_raise = False
    transaction = run.begin(NumbersLost(), Abort())
    transaction.known = True
    run.ask()
    run.done(Ended(None))
    assert isinstance(run.state, FatalError)
    assert "make a new producer" in str(run.state.error)


def test_what_the_coordinator_forgot_is_not_ended():
    run = Run()
    transaction = run.begin(UsePartition(TP))
    transaction.known = True
    run.ask()
    run.refused(Outcome.FORGOTTEN)
    run.handle(Abort())
    assert run.ask() == Init(ME)


def test_an_abort_that_is_refused_is_carried_out_by_a_new_epoch():
    run = Run()
    transaction = run.begin(Abort())
    transaction.known = True
    assert run.ask() == End(ME, CLASSIC, committed=False)
    run.refused(Outcome.ABORT)
    assert run.ask() == Init(ME)


def test_an_abort_first_learns_whether_there_is_anything_to_end():
    run = Run()
    run.begin(UsePartition(TP))
    assert run.ask() == AddPartitions(ME, (TP,))
    run.handle(Abort())
    run.lost()
    run.later()
    assert run.ask() == AddPartitions(ME, (TP,))
    run.done(PartitionsAdded((TP,)))
    assert run.ask() == End(ME, CLASSIC, committed=False)


@pytest.mark.parametrize("name", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_who_is_not_the_coordinator_leaves_open_whether_there_is_anything_to_end(name: str):
    run = Run()
    run.begin(UsePartition(TP))
    run.ask()
    run.lost()
    run.later()
    run.ask()
    finding = name == "NOT_COORDINATOR"
    run.refused(Outcome.FIND if finding else Outcome.RETRY, error_for(ErrorCode[name]))
    run.handle(Abort())
    run.later()
    assert run.ask() == AddPartitions(ME, (TP,))
    run.done(PartitionsAdded((TP,)))
    assert run.ask() == End(ME, CLASSIC, committed=False)


def test_numbers_that_are_lost_while_it_is_committed_are_of_the_next_transaction():
    run = Run()
    run.begin(Commit()).known = True
    assert run.ask() == End(ME, CLASSIC, committed=True)
    run.handle(NumbersLost())
    assert isinstance(run.state, Committing)
    run.done(Ended(None))
    assert run.state == Ready(ME, CLASSIC, committed=True, stale=True)


@pytest.mark.parametrize("call", [Commit(), Abort()])
def test_an_end_that_should_have_raised_the_epoch_and_did_not(call: Call):
    run = Run(IMPLICIT)
    run.begin(RecordsSent(), call)
    run.ask()
    run.done(Ended(None))
    if isinstance(call, Commit):
        assert run.machine.must_raise(IMPLICIT)
    else:
        assert run.ask() == Init(ME)


@pytest.mark.parametrize("outcome", [Outcome.FENCED, Outcome.FORGOTTEN])
def test_who_is_fenced_after_a_commit_that_timed_out_in_the_broker_may_have_committed(
    outcome: Outcome,
):
    run = Run()
    run.begin(Commit()).known = True
    run.ask()
    run.refused(Outcome.FIND, error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    run.later()
    run.ask()
    run.refused(outcome, ProducerFenced("fenced"))
    assert isinstance(run.state, FatalError)
    assert "may be committed or not" in str(run.state.error)


def test_what_surely_was_not_added_is_not_asked_again_by_an_abort():
    run = Run()
    run.begin(UsePartition(TP))
    run.ask()
    run.refused(Outcome.RETRY)
    run.handle(Abort())
    run.later()
    assert run.ask() is None
    assert run.state == Ready(ME, CLASSIC, committed=False)


def test_refused_partitions_of_an_abort_change_nothing():
    run = Run()
    run.begin(UsePartition(TP))
    run.ask()
    run.handle(Abort())
    run.refused(Outcome.ABORT)
    assert run.ask() is None
    assert run.state == Ready(ME, CLASSIC, committed=False)


def test_offsets_without_an_answer_are_not_repeated_by_an_abort():
    run = Run(IMPLICIT)
    run.begin(SendOffsets(offset_commit()))
    run.ask()
    run.lost()
    run.handle(Abort())
    run.later()
    assert run.ask() == End(ME, IMPLICIT, committed=False), "the coordinator may know of it"


def test_an_answer_that_comes_late_is_noted():
    run = Run()
    transaction = run.begin(UsePartition(TP))
    run.ask()
    run.handle(RecordsFailed(KafkaError("r")))
    run.done(PartitionsAdded((TP,)))
    assert transaction.known
    run.handle(Abort())
    assert run.ask() == End(ME, CLASSIC, committed=False)


def test_a_detached_transaction_is_left_open():
    run = Run()
    run.begin(UsePartition(TP), Detach())
    assert run.ask() == AddPartitions(ME, (TP,))
    run.done(PartitionsAdded((TP,)))
    assert run.ask(flushed=False) is None
    assert isinstance(run.state, Detaching)
    assert run.ask() is None
    assert isinstance(run.state, Detached)
    with pytest.raises(InvalidTxnState, match="was detached"):
        run.handle(Begin(CLASSIC))


@pytest.mark.parametrize(
    ("last", "protocol", "must"),
    [
        (None, IMPLICIT, False),
        (CLASSIC, CLASSIC, False),
        (CLASSIC, IMPLICIT, True),
        (IMPLICIT, IMPLICIT, False),
        (IMPLICIT, CLASSIC, False),
    ],
)
def test_the_epoch_is_raised_when_the_cluster_changes_to_the_newer_protocol(
    last: Protocol | None, protocol: Protocol, must: bool
):
    assert machine_in(Ready(ME, last)).must_raise(protocol) is must


def test_numbers_lost_between_transactions_raise_the_epoch_before_the_next():
    run = Run()
    run.handle(NumbersLost())
    assert run.machine.must_raise(CLASSIC)
    run.handle(Initialise())
    assert run.ask() == Init(ME)
    run.done(Initialised(NEXT))
    assert not run.machine.must_raise(CLASSIC)


def test_numbers_lost_between_transactions_are_the_end_with_old_brokers():
    run = Run()
    run.machine.can_raise = False
    run.handle(NumbersLost(), Initialise())
    assert isinstance(run.state, FatalError)


@pytest.mark.parametrize("outcome", [Outcome.FATAL, Outcome.FENCED])
def test_a_fatal_answer_ends_everything(outcome: Outcome):
    run = Run()
    run.begin(UsePartition(TP))
    run.ask()
    run.refused(outcome, ProducerFenced("fenced"))
    assert isinstance(run.state, FatalError)
    assert run.ask() is None
    for call in (Commit(), Abort(), Begin(CLASSIC), UsePartition(TP)):
        with pytest.raises(ProducerFenced):
            run.handle(call)


# --- whatever comes ---------------------------------------------------------------------------


def _answer(draw: Any, run: Run, request: Request) -> None:
    """Some answer to a request."""
    kind = draw(st.sampled_from(["done", "again", "lost", "unsent", "abort", "bump", "fatal"]))
    if isinstance(request, Init) and kind in {"abort", "bump"}:
        kind = "again"
    if kind == "again":
        run.refused(Outcome.RETRY)
    elif kind in {"lost", "unsent"}:
        run.lost(sent=kind == "lost")
    elif kind == "abort":
        run.refused(Outcome.ABORT)
    elif kind == "bump":
        run.refused(Outcome.BUMP)
    elif kind == "fatal":
        run.refused(Outcome.FATAL)
    else:
        match request:
            case Init():
                run.done(Initialised(NEXT))
            case AddPartitions(_, partitions):
                run.done(PartitionsAdded(partitions))
            case AddOffsets(_, group_id):
                run.done(OffsetsAdded(group_id))
            case CommitOffsets(_, _, commit):
                run.done(OffsetsCommitted(commit))
            case End(_, protocol):
                run.done(Ended(NEXT if protocol is IMPLICIT else None))


@given(st.data(), st.sampled_from(Protocol))
def test_whatever_comes_a_commit_is_told_only_after_the_coordinators_word(
    data: st.DataObject, protocol: Protocol
):
    run = Run(protocol)
    committed: dict[int, bool] = {}
    asked: dict[int, list[bool]] = {}
    failed: set[int] = set()
    for _ in range(data.draw(st.integers(1, 40))):
        number = run.machine.begun
        step = data.draw(
            st.sampled_from(["begin", "use", "offsets", "commit", "abort", "fail", "ask"])
        )
        before = run.machine.committed
        known = run.machine.transaction is not None and run.machine.transaction.known
        try:
            match step:
                case "begin":
                    run.begin()
                case "use":
                    run.handle(UsePartition(TP), RecordsSent())
                case "offsets":
                    run.handle(SendOffsets(offset_commit()))
                case "commit":
                    run.handle(Commit())
                case "abort":
                    run.handle(Abort())
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
        if isinstance(request, End):
            asked.setdefault(number, []).append(request.committed)
        if request is not None:
            _answer(data.draw, run, request)
        if run.machine.committed > before:
            committed[number] = known
    for number, known in committed.items():
        assert number not in failed
        if known:
            assert set(asked[number]) == {True}, "a commit and an abort of one transaction"
