"""Response and next state of a transaction for each event in each state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from aiokafkawire.broker.groups.offsets import CommittedOffset
from aiokafkawire.broker.transactions import transaction_metadata
from aiokafkawire.broker.transactions.events import (
    AddToTransaction,
    CommitTxnOffsets,
    EndTransaction,
    EpochFenced,
    Event,
    ExpireTransactionalId,
    InitProducerId,
    MarkersWritten,
    TransactionContents,
    TransactionDeadlineReached,
    TransactionResult,
    TransactionState,
    VerifyInTransaction,
)
from aiokafkawire.broker.transactions.transaction_metadata import (
    MAX_EPOCH,
    TRANSITIONS,
    TransactionMetadata,
)
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode

E = ErrorCode
S = TransactionState
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ME = ProducerIdAndEpoch(40, 0)
TIMEOUT_MS = 1_000
NOW_MS = 5_000
ALL = TransactionContents((T0,), ("g",))


def made() -> TransactionMetadata:
    return TransactionMetadata("tx", count(40).__next__)


def apply_events(
    transaction: TransactionMetadata, *events: Event, now_ms: int = NOW_MS
) -> TransactionResult:
    """Apply the events; return the result of the last one."""
    for event in events[:-1]:
        assert transaction.handle(event, now_ms).code in {E.NONE, E.CONCURRENT_TRANSACTIONS}
    return transaction.handle(events[-1], now_ms)


INIT = InitProducerId(timeout_ms=TIMEOUT_MS)
ADD = AddToTransaction(producer=ME, scope=ALL)
COMMIT, ABORT = (EndTransaction(producer=ME, commit=commit) for commit in (True, False))
OFFSETS = CommitTxnOffsets(producer=ME, group="g", offsets={T0: CommittedOffset(7, -1, "")})
MARKERS = MarkersWritten(scope=ALL)

PATHS: dict[TransactionState, tuple[Event, ...]] = {
    S.EMPTY: (INIT,),
    S.ONGOING: (INIT, ADD),
    S.PREPARE_COMMIT: (INIT, ADD, COMMIT),
    S.PREPARE_ABORT: (INIT, ADD, ABORT),
    S.COMPLETE_COMMIT: (INIT, ADD, COMMIT, MARKERS),
    S.COMPLETE_ABORT: (INIT, ADD, ABORT, MARKERS),
    S.DEAD: (INIT, ExpireTransactionalId()),
    S.PREPARE_EPOCH_FENCE: (INIT, ADD, INIT),
}


def in_state(state: TransactionState) -> TransactionMetadata:
    transaction = made()
    apply_events(transaction, *PATHS[state])
    assert transaction.state is state
    return transaction


EVENTS: dict[str, Callable[[ProducerIdAndEpoch], Event]] = {
    "init": lambda me: INIT,
    "add": lambda me: AddToTransaction(producer=me, scope=TransactionContents((T1,))),
    "verify": lambda me: VerifyInTransaction(producer=me, scope=ALL),
    "offsets": lambda me: CommitTxnOffsets(producer=me, group="g", offsets={}),
    "commit": lambda me: EndTransaction(producer=me, commit=True),
    "abort": lambda me: EndTransaction(producer=me, commit=False),
    "commit, bumping": lambda me: EndTransaction(producer=me, commit=True, bumps_epoch=True),
    "abort, bumping": lambda me: EndTransaction(producer=me, commit=False, bumps_epoch=True),
    "fenced": lambda me: EpochFenced(),
    "markers": lambda me: MARKERS,
    "tick": lambda me: TransactionDeadlineReached(),
    "expire": lambda me: ExpireTransactionalId(),
}


def observed() -> dict[tuple[str, str], str]:
    """Return the response to the current producer in each state, and the next state."""
    table = {}
    for state in TransactionState:
        for name, make in EVENTS.items():
            transaction = in_state(state)
            result = transaction.handle(make(transaction.producer), NOW_MS + TIMEOUT_MS)
            table[state.value, name] = f"{result.code.name}, {transaction.state.value}"
    return table


def test_the_table_has_every_pair() -> None:
    assert set(TRANSITIONS) == {
        (state, event) for state in TransactionState for event in Event.__args__
    }
    assert {type(make(ME)) for make in EVENTS.values()} == set(Event.__args__)
    reached = {then for row in TRANSITIONS.values() for then in row.next_states}
    assert reached == set(TransactionState)


USES = [name for name in EVENTS if name not in {"init", "fenced", "markers", "tick", "expire"}]


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("state", [s for s in S if s is not S.DEAD], ids=lambda s: s.value)
def test_requests_of_other_producers_are_rejected(state: TransactionState, name: str) -> None:
    transaction = in_state(state)
    me = transaction.producer
    for other, code in (
        (ProducerIdAndEpoch(99, me.epoch), E.INVALID_PRODUCER_ID_MAPPING),
        (ProducerIdAndEpoch(me.producer_id, me.epoch - 1), E.PRODUCER_FENCED),
        (ProducerIdAndEpoch(me.producer_id, me.epoch + 1), E.PRODUCER_FENCED),
    ):
        assert transaction.handle(EVENTS[name](other), NOW_MS).code == code
        assert transaction.state is state


# --- InitProducerId ------------------------------------------------------------------------------


def init(
    transaction: TransactionMetadata, expected: ProducerIdAndEpoch | None = None
) -> TransactionResult:
    return transaction.handle(InitProducerId(timeout_ms=TIMEOUT_MS, expected=expected), NOW_MS)


def test_a_newcomer_takes_the_next_epoch() -> None:
    transaction = made()
    assert init(transaction).producer == ProducerIdAndEpoch(40, 0)
    assert init(transaction).producer == ProducerIdAndEpoch(40, 1)
    assert init(transaction, ProducerIdAndEpoch(40, 0)).code == E.PRODUCER_FENCED


def test_an_epoch_bump_may_be_retried_until_another_producer_initializes() -> None:
    transaction = made()
    init(transaction)
    for _ in range(2):
        assert init(transaction, ME).producer == ProducerIdAndEpoch(40, 1)
    init(transaction)
    assert init(transaction, ProducerIdAndEpoch(40, 1)).code == E.PRODUCER_FENCED
    assert init(transaction, ProducerIdAndEpoch(99, 2)).code == E.PRODUCER_FENCED
    assert init(transaction, ProducerIdAndEpoch(40, 2)).producer == ProducerIdAndEpoch(40, 3)


def test_an_unknown_producer_id_gets_a_new_one() -> None:
    assert init(made(), ProducerIdAndEpoch(3, 9)).producer == ProducerIdAndEpoch(40, 0)


@pytest.mark.parametrize("own", [False, True])
def test_used_up_epochs_bring_a_new_id(own: bool) -> None:
    transaction = in_state(S.EMPTY)
    last = transaction.producer = ProducerIdAndEpoch(40, MAX_EPOCH)
    assert init(transaction, last if own else None).producer == ProducerIdAndEpoch(41, 0)
    again = init(transaction, last)
    if own:
        assert again.producer == ProducerIdAndEpoch(41, 0)
    else:
        assert again.code == E.PRODUCER_FENCED


def test_an_older_producer_does_not_end_the_transaction_of_the_newer() -> None:
    transaction = in_state(S.ONGOING)
    assert init(transaction, ProducerIdAndEpoch(99, 0)).code == E.PRODUCER_FENCED
    assert transaction.state is S.ONGOING


# --- fencing -------------------------------------------------------------------------------------


def test_a_transaction_times_out_when_its_time_has_passed_and_not_before() -> None:
    transaction = in_state(S.ONGOING)
    assert transaction.next_deadline_ms() == NOW_MS + TIMEOUT_MS
    apply_events(
        transaction,
        AddToTransaction(producer=ME, scope=TransactionContents((T1,))),
        now_ms=NOW_MS + 500,
    )
    transaction.handle(TransactionDeadlineReached(), NOW_MS + TIMEOUT_MS - 1)
    assert transaction.state is S.ONGOING
    transaction.handle(TransactionDeadlineReached(), NOW_MS + TIMEOUT_MS)
    assert transaction.producer == ProducerIdAndEpoch(40, 1)
    assert apply_events(transaction, COMMIT).code == E.PRODUCER_FENCED


@pytest.mark.parametrize("bumps_epoch", [False, True])
def test_after_a_timeout_a_v2_producer_may_abort_and_continue(
    bumps_epoch: bool,
) -> None:
    transaction = in_state(S.PREPARE_EPOCH_FENCE)
    apply_events(transaction, EpochFenced(bumps_epoch=bumps_epoch), MARKERS)
    assert transaction.state is S.COMPLETE_ABORT
    abort, commit = (
        apply_events(transaction, EndTransaction(producer=ME, commit=commit, bumps_epoch=True))
        for commit in (False, True)
    )
    bumped = init(transaction, ME)
    if bumps_epoch:
        assert abort == bumped == TransactionResult(E.NONE, ProducerIdAndEpoch(40, 1))
        assert commit.code == E.INVALID_TXN_STATE
    else:
        assert abort.code == commit.code == bumped.code == E.PRODUCER_FENCED


def test_the_last_epoch_is_kept_to_fence_with() -> None:
    transaction = in_state(S.ONGOING)
    transaction.producer = ProducerIdAndEpoch(40, MAX_EPOCH)
    apply_events(transaction, INIT)
    assert transaction.producer == ProducerIdAndEpoch(40, MAX_EPOCH + 1)
    apply_events(transaction, EpochFenced(), MARKERS)
    assert init(transaction).producer.producer_id == 41


# --- the end -------------------------------------------------------------------------------------


def bumping(commit: bool, epoch: int = 0) -> EndTransaction:
    return EndTransaction(producer=ProducerIdAndEpoch(40, epoch), commit=commit, bumps_epoch=True)


@pytest.mark.parametrize("commit", [False, True])
def test_an_end_gives_a_new_epoch_and_its_answer_may_be_lost(commit: bool) -> None:
    transaction = in_state(S.ONGOING)
    after = TransactionResult(producer=ProducerIdAndEpoch(40, 1))
    assert apply_events(transaction, bumping(commit)) == after
    assert apply_events(transaction, bumping(commit)).code == E.CONCURRENT_TRANSACTIONS
    assert apply_events(transaction, bumping(not commit)).code == E.INVALID_TXN_STATE
    assert apply_events(transaction, bumping(commit, epoch=1)).code == E.PRODUCER_FENCED
    apply_events(transaction, MARKERS)
    assert apply_events(transaction, bumping(commit)) == after
    assert apply_events(transaction, bumping(not commit)).code == E.INVALID_TXN_STATE


def test_an_old_end_is_not_taken_for_one_of_the_next_transaction() -> None:
    transaction = in_state(S.ONGOING)
    apply_events(transaction, bumping(True), MARKERS)
    apply_events(
        transaction,
        AddToTransaction(producer=ProducerIdAndEpoch(40, 1), scope=TransactionContents((T0,))),
    )
    assert apply_events(transaction, bumping(False)).code == E.PRODUCER_FENCED
    assert transaction.state is S.ONGOING


@pytest.mark.parametrize("commit", [False, True])
def test_the_end_with_the_last_epoch_gives_a_new_id(commit: bool) -> None:
    transaction = in_state(S.ONGOING)
    transaction.producer = ProducerIdAndEpoch(40, MAX_EPOCH)
    end = bumping(commit, MAX_EPOCH)
    after = TransactionResult(producer=ProducerIdAndEpoch(41, 0))
    assert apply_events(transaction, end) == after
    assert transaction.producer == ProducerIdAndEpoch(40, MAX_EPOCH + 1)
    assert apply_events(transaction, end).code == E.CONCURRENT_TRANSACTIONS
    apply_events(transaction, MARKERS)
    assert transaction.producer == ProducerIdAndEpoch(41, 0)
    assert apply_events(transaction, end) == after


def test_an_end_without_a_new_epoch_may_come_again() -> None:
    transaction = in_state(S.COMPLETE_COMMIT)
    assert apply_events(transaction, COMMIT) == TransactionResult(producer=ME)
    assert apply_events(transaction, ABORT).code == E.INVALID_TXN_STATE


def test_it_is_complete_when_the_last_marker_is_written() -> None:
    transaction = in_state(S.ONGOING)
    apply_events(
        transaction,
        AddToTransaction(producer=ME, scope=TransactionContents((T1,))),
        OFFSETS,
        COMMIT,
    )
    apply_events(transaction, MarkersWritten(scope=TransactionContents((T0,))))
    assert (transaction.state, list(transaction.partitions)) == (S.PREPARE_COMMIT, [T1])
    apply_events(transaction, MarkersWritten(scope=TransactionContents((T1,))))
    assert transaction.state is S.PREPARE_COMMIT
    assert transaction.offsets == {"g": {T0: CommittedOffset(7, -1, "")}}
    apply_events(transaction, MarkersWritten(scope=TransactionContents((), ("g",))))
    assert transaction.state is S.COMPLETE_COMMIT
    assert transaction.offsets == {}


def test_a_transaction_begins_with_what_is_added_first() -> None:
    transaction = in_state(S.COMPLETE_COMMIT)
    apply_events(
        transaction,
        AddToTransaction(producer=ME, scope=TransactionContents((T1,))),
        now_ms=NOW_MS + 50,
    )
    assert transaction.started_ms == NOW_MS + 50
    assert list(transaction.partitions) == [T1]
    assert (
        apply_events(
            transaction, VerifyInTransaction(producer=ME, scope=TransactionContents((T1,)))
        ).code
        == E.NONE
    )
    assert (
        apply_events(transaction, VerifyInTransaction(producer=ME, scope=ALL)).code
        == E.TRANSACTION_ABORTABLE
    )


def test_groups_of_a_transaction_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_metadata, "MAX_GROUPS", 2)
    transaction = in_state(S.ONGOING)
    codes = [
        apply_events(
            transaction, AddToTransaction(producer=ME, scope=TransactionContents(groups=(name,)))
        ).code
        for name in "ghi"
    ]
    assert codes == [E.NONE, E.NONE, E.INVALID_REQUEST]
    assert list(transaction.groups) == ["g", "h"]
    codes = [
        apply_events(transaction, CommitTxnOffsets(producer=ME, group=name, offsets={})).code
        for name in "ghig"
    ]
    assert codes == [E.NONE, E.NONE, E.INVALID_REQUEST, E.NONE]
