from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.cluster.metadata import Leader
from aiokafkawire.consumer import partition as p
from aiokafkawire.consumer.buffer import FetchBuffer
from aiokafkawire.errors import (
    BrokerError,
    ConnectionLost,
    CorruptRecords,
    LogTruncated,
    NoOffset,
    UnsupportedVersion,
)
from aiokafkawire.records import FetchedRange, find_fetched_range
from aiokafkawire.runtime.transitions import ImpossibleEvent
from aiokafkawire.types import OffsetAndMetadata
from aiokafkawire.wire.error_codes import ErrorCode, error_for

from .logs import P0, fetched, gave, log

ERROR = CorruptRecords("damaged")
LOST = ConnectionLost("gone")

OLD, NEW = Leader(1, 2), Leader(3, 4)

STATES = {
    "AwaitingCommitted": p.AwaitingCommitted,
    "Resetting": lambda: p.Resetting(p.LogPoint.LATEST),
    "Validating": lambda: p.Validating(FetchBuffer(7, 2), OLD),
    "Positioned": lambda: p.Positioned(FetchBuffer(7, 2), OLD),
    "Refused": lambda: p.Refused(ERROR, p.Positioned(FetchBuffer(7, 2), OLD)),
    "Broken": lambda: p.Broken(ERROR),
}
EVENTS: dict[str, Any] = {
    "CommittedKnown": lambda s: p.CommittedKnown(s, OffsetAndMetadata(5, leader_epoch=3)),
    "Listed": lambda s: p.Listed(s, 5, 3),
    "LookupFailed": lambda s: p.LookupFailed(s, LOST, 9.0),
    "LeaderChanged": lambda s: p.LeaderChanged(NEW),
    "EpochEnded": lambda s: p.EpochEnded(s, 2, 5),
    "SoughtTo": lambda s: p.SoughtTo(5, 3),
    "ResetTo": lambda s: p.ResetTo(p.LogPoint.EARLIEST),
    "ToCommitted": lambda s: p.ToCommitted(),
    "OutOfRange": lambda s: p.OutOfRange(s, ERROR),
    "Damaged": lambda s: p.Damaged(s, ERROR),
    "Refusal": lambda s: p.Refusal(s, ERROR),
    "Told": lambda s: p.Told(),
    "Renewed": lambda s: p.Renewed(),
}
ALWAYS = {
    "SoughtTo": "Positioned",
    "ResetTo": "Resetting",
    "ToCommitted": "AwaitingCommitted",
    "Renewed": "Resetting",
}
EXPECTED = {
    "AwaitingCommitted": ALWAYS
    | {"CommittedKnown": "Positioned", "LookupFailed": "AwaitingCommitted"},
    "Resetting": ALWAYS
    | {"Listed": "Positioned", "LookupFailed": "Resetting", "Refusal": "Refused"},
    "Validating": ALWAYS
    | {
        "LeaderChanged": "Validating",
        "EpochEnded": "Positioned",
        "LookupFailed": "Validating",
        "Refusal": "Refused",
    },
    "Positioned": ALWAYS
    | {
        "LeaderChanged": "Validating",
        "EpochEnded": "Positioned",
        "OutOfRange": "Resetting",
        "Damaged": "Broken",
        "Refusal": "Refused",
    },
    "Refused": ALWAYS | {"Told": "Positioned"},
    "Broken": ALWAYS,
}


def partition(state: Any, policy: str = "earliest") -> p.Partition:
    return p.Partition(P0, policy, state)


@pytest.mark.parametrize("state_name", STATES)
@pytest.mark.parametrize("event_name", EVENTS)
def test_every_state_and_event(state_name: str, event_name: str) -> None:
    state = STATES[state_name]()
    one = partition(state)
    expected = EXPECTED[state_name].get(event_name)
    if expected is None:
        assert (type(state), type(EVENTS[event_name](state))) not in p.TRANSITIONS
        with pytest.raises(ImpossibleEvent):
            one.handle(EVENTS[event_name](state))
        return
    one.handle(EVENTS[event_name](state))
    assert type(one.state).__name__ == expected
    assert one.state is not state
    if expected == "Positioned":
        epochs = {"EpochEnded": (5, 2), "Told": (7, 2)}
        assert one.buffer is not None
        assert (one.position, one.buffer.leader_epoch) == epochs.get(event_name, (5, 3))


def test_the_table_has_no_rows_but_these() -> None:
    rows = {(state.__name__, event.__name__) for state, event in p.TRANSITIONS}
    assert rows == {(state, event) for state, row in EXPECTED.items() for event in row}


@pytest.mark.parametrize("state_name", STATES)
@pytest.mark.parametrize("event_name", EVENTS)
def test_an_answer_to_a_state_that_is_over_changes_nothing(
    state_name: str, event_name: str
) -> None:
    event = EVENTS[event_name](p.AwaitingCommitted())
    if not hasattr(event, "asked"):
        return
    one = partition(STATES[state_name]())
    before = one.state
    one.handle(event)
    assert one.state is before


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_without_a_commit_the_policy_rules(policy: str) -> None:
    asked = p.AwaitingCommitted()
    one = partition(asked, policy)
    one.handle(p.CommittedKnown(asked, None))
    if policy == "none":
        assert isinstance(one.state, p.Broken)
        assert isinstance(one.state.error, NoOffset)
        assert one.state.error.partitions == (P0,)
    else:
        assert isinstance(one.state, p.Resetting)
        assert one.state.timestamp == p.LogPoint[policy.upper()]


def test_a_time_after_the_last_record_is_the_end() -> None:
    asked = p.Resetting(1_000)
    one = partition(asked)
    one.handle(p.Listed(asked, None))
    assert isinstance(one.state, p.Resetting)
    assert one.state.timestamp == p.LogPoint.LATEST


@pytest.mark.parametrize("state_name", ["AwaitingCommitted", "Resetting", "Validating"])
def test_a_failed_look_up_is_repeated_or_told_and_repeated_then(state_name: str) -> None:
    asked = STATES[state_name]()
    one = partition(asked)
    one.handle(p.LookupFailed(asked, LOST, 9.0))
    assert one.state.not_before == 9.0  # type: ignore[union-attr]
    error = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    one.handle(p.LookupFailed(one.state, error, 11.0))
    assert isinstance(one.state, p.Refused)
    one.paused = True
    assert one.hear() is None
    one.paused = False
    assert one.hear() is error
    assert one.hear() is None
    assert type(one.state).__name__ == state_name
    assert one.state.not_before == 11.0


# --- leaders and epochs -----------------------------------------------------------------------


def read_by(leader: Leader | None, policy: str = "earliest", *, given: int = 4) -> p.Partition:
    """A partition with offsets 0 to 3 of epoch 1 and 4, 5 of epoch 2; some of them are given."""
    buffer = FetchBuffer(0)
    data = log(4, leader_epoch=1) + log(2, start=4, leader_epoch=2)
    buffer.add(fetched(data), len(data), find_fetched_range(data, 0))
    if given:
        buffer.take(given, "a")
    return partition(p.Positioned(buffer, leader), policy)


def test_another_leader_makes_a_position_doubtful() -> None:
    one = read_by(OLD)
    one.follow(None)
    one.follow(OLD)
    assert isinstance(one.state, p.Positioned)
    one.not_before, one.replica = 9.0, p.ReadReplica(2, 99.0)
    one.follow(NEW)
    assert isinstance(one.state, p.Validating)
    assert (one.readable, one.position, one.not_before, one.replica) == (None, 4, 0.0, None)
    first = one.state
    one.follow(Leader(1, 6))
    assert isinstance(one.state, p.Validating)
    assert one.state is not first
    assert one.state.leader == Leader(1, 6)


@pytest.mark.parametrize(
    ("buffer", "leader"), [(FetchBuffer(7), NEW), (FetchBuffer(7, 2), Leader(3, -1))]
)
def test_without_epochs_another_leader_is_believed(buffer: FetchBuffer, leader: Leader) -> None:
    state = p.Positioned(buffer, OLD)
    one = partition(state)
    one.follow(leader)
    assert isinstance(one.state, p.Positioned)
    assert one.state is not state  # an answer of the old leader comes too late
    assert one.state.leader == leader


def test_what_the_leader_itself_told_is_not_doubted() -> None:
    asked = p.Resetting(p.LogPoint.LATEST)
    one = partition(asked)
    one.handle(p.Listed(asked, 5, 2, OLD))
    one.follow(OLD)
    assert isinstance(one.state, p.Positioned)
    one.follow(NEW)
    assert isinstance(one.state, p.Validating)


@pytest.mark.parametrize("event", [p.SoughtTo(5, 2), p.CommittedKnown])
def test_an_offset_with_an_epoch_is_validated_first(event: Any) -> None:
    asked = p.AwaitingCommitted()
    one = partition(asked)
    if event is p.CommittedKnown:
        event = p.CommittedKnown(asked, OffsetAndMetadata(5, leader_epoch=2))
    one.handle(event)
    one.follow(OLD)
    assert isinstance(one.state, p.Validating)


def test_a_log_that_has_what_was_fetched_is_read_on_and_nothing_is_lost() -> None:
    one = read_by(OLD)
    one.follow(NEW)
    one.handle(p.EpochEnded(one.state, 2, 6))
    assert isinstance(one.state, p.Positioned)
    assert one.buffer is not None
    rest = one.buffer.take(9, "a")
    assert rest is not None
    assert rest.offsets() == [4, 5]


def test_what_was_fetched_and_is_gone_is_dropped_and_the_position_validated() -> None:
    one = read_by(OLD)
    one.follow(NEW)
    one.handle(p.EpochEnded(one.state, 1, 4))
    assert isinstance(one.state, p.Validating)
    assert one.buffer is not None
    assert (one.buffer.empty, one.buffer.fetch_offset, one.buffer.fetch_epoch) == (True, 4, 1)
    one.handle(p.EpochEnded(one.state, 1, 4))
    assert isinstance(one.state, p.Positioned)
    assert one.position == 4


@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H"])
def test_a_truncation_resets_to_where_the_logs_part(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = read_by(OLD, policy, given=6)
    one.follow(NEW)
    one.handle(p.EpochEnded(one.state, 1, 3))
    assert isinstance(one.state, p.Positioned)
    assert one.buffer is not None
    assert (one.position, one.buffer.leader_epoch, one.state.leader) == (3, 1, NEW)
    assert "orders-0: the log was cut" in caplog.text


@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H"])
def test_a_truncation_to_nowhere_falls_to_the_policy(policy: str) -> None:
    one = read_by(OLD, policy, given=6)
    one.follow(NEW)
    one.handle(p.EpochEnded(one.state, -1, -1))
    assert isinstance(one.state, p.Resetting)
    assert one.state.timestamp == p.reset_point(policy)


@pytest.mark.parametrize("end", [(1, 3), (-1, -1)])
def test_a_truncation_is_told_where_no_policy_says_otherwise(end: tuple[int, int]) -> None:
    one = read_by(OLD, "none", given=6)
    one.follow(NEW)
    one.handle(p.EpochEnded(one.state, *end))
    for _ in range(2):
        error = one.hear()
        assert isinstance(error, LogTruncated)
    assert (error.topic, error.partition, error.offset) == (*P0, 6)
    known = end if end != (-1, -1) else (None, None)
    assert (error.leader_epoch, error.diverging_offset) == known
    assert one.position == 6
    one.handle(p.SoughtTo(3))
    assert isinstance(one.state, p.Positioned)


def test_a_fetch_that_diverges_is_a_truncation_too() -> None:
    one = read_by(OLD, "none", given=6)
    one.handle(p.EpochEnded(one.state, 1, 3))
    assert isinstance(one.hear(), LogTruncated)
    one = read_by(OLD, "none")
    one.handle(p.EpochEnded(one.state, 1, 4))
    assert isinstance(one.state, p.Validating)
    one = read_by(None, "none")
    one.handle(p.EpochEnded(one.state, 1, 4))
    assert isinstance(one.state, p.Positioned)


def test_an_epoch_that_the_log_does_not_know_is_no_truncation_by_itself() -> None:
    # ListOffsets tells the leader's epoch, in which nothing may have been written.
    one = partition(p.Positioned(FetchBuffer(7, 5), OLD), "none")
    one.handle(p.EpochEnded(one.state, 4, 7))
    assert isinstance(one.state, p.Positioned)
    assert one.buffer is not None
    assert (one.position, one.buffer.fetch_epoch) == (7, 4)


@pytest.mark.parametrize(
    "error",
    [UnsupportedVersion("too old"), error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)],
)
def test_brokers_that_do_not_tell_ends_of_epochs_are_believed(error: Any) -> None:
    one = read_by(OLD)
    one.follow(NEW)
    one.handle(p.LookupFailed(one.state, error, 9.0))
    assert isinstance(one.state, p.Positioned)


def test_failed_validations_are_counted() -> None:
    one = read_by(OLD)
    one.follow(NEW)
    for failures in (1, 2):
        one.handle(p.LookupFailed(one.state, LOST, 9.0))
        assert isinstance(one.state, p.Validating)
        assert (one.state.failures, one.state.not_before) == (failures, 9.0)


def test_a_refusal_is_heard_once_and_keeps_what_was_fetched() -> None:
    one = read_by(OLD)
    error = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    one.handle(p.Refusal(one.state, error))
    assert (one.readable, one.position) == (None, 4)
    assert one.to_commit() == OffsetAndMetadata(0, leader_epoch=1)
    heard = one.hear()
    assert isinstance(heard, BrokerError)
    assert one.hear() is None
    assert one.readable is not None
    rest = one.readable.take(9, "a")
    assert rest is not None
    assert rest.offsets() == [4, 5]


@pytest.mark.parametrize(
    ("policy", "point"),
    [
        ("earliest", p.LogPoint.EARLIEST),
        ("latest", p.LogPoint.LATEST),
        ("none", None),
        ("by_duration:PT1M", p.Ago(60_000)),
    ],
)
def test_where_a_policy_begins(policy: str, point: Any) -> None:
    assert p.reset_point(policy) == point


def test_lag_is_known_with_the_position_and_the_end() -> None:
    one = partition(p.AwaitingCommitted())
    assert one.lag is None
    one.handle(p.SoughtTo(3))
    assert one.lag is None
    one.known_end = 10
    assert one.lag == 7
    one.handle(p.SoughtTo(12))
    assert one.lag == 0


def test_out_of_range_is_left_until_what_was_fetched_is_given() -> None:
    buffer = FetchBuffer(0)
    data = log(2)
    buffer.add(fetched(data), len(data), FetchedRange(2, 0))
    state = p.Positioned(buffer)
    one = partition(state)
    one.handle(p.OutOfRange(state, ERROR))
    assert one.state is state
    buffer.take(5, "a")
    one.handle(p.OutOfRange(state, ERROR))
    assert isinstance(one.state, p.Resetting)


def test_a_broken_partition_gives_nothing_and_keeps_what_can_be_committed() -> None:
    state = p.Positioned(FetchBuffer(7))
    one = partition(state)
    one.handle(p.Damaged(state, ERROR))
    assert one.readable is None
    assert one.to_commit() == OffsetAndMetadata(7)
    assert one.position == 7


def test_what_may_be_read() -> None:
    one = partition(p.Positioned(FetchBuffer(7)))
    assert one.readable is one.buffer
    one.paused = True
    assert one.readable is None
    one.paused, one.revoked = False, True
    assert one.readable is None


def test_only_what_is_new_is_committed() -> None:
    asked = p.AwaitingCommitted()
    one = partition(asked)
    one.handle(p.CommittedKnown(asked, OffsetAndMetadata(5)))
    assert one.to_commit() is None
    one.handle(p.SoughtTo(3, 1))
    assert one.to_commit() == OffsetAndMetadata(3, leader_epoch=1)
    assert one.read_up_to() == OffsetAndMetadata(3, leader_epoch=1)


def test_what_was_given_and_is_not_committed_is_known() -> None:
    one = partition(p.Positioned(FetchBuffer(5)))
    assert not one.uncommitted
    gave(one, 3, 5)
    gave(one, 0, 2)
    assert one.given == (0, 5)
    assert one.uncommitted
    one.acknowledged = 5
    assert not one.uncommitted


def test_what_the_application_goes_back_behind_is_not_taken_for_uncommitted() -> None:
    one = partition(p.Positioned(FetchBuffer(5)))
    gave(one, 0, 5)
    one.acknowledged = 2
    assert one.uncommitted
    one.handle(p.ToCommitted())
    assert not one.uncommitted
    one.handle(p.CommittedKnown(one.state, OffsetAndMetadata(2)))
    assert not one.uncommitted
    gave(one, 2, 3)
    one.handle(p.SoughtTo(3))
    assert one.uncommitted


@given(st.data())
@pytest.mark.slow
def test_no_sequence_of_events_leaves_a_position_from_an_old_answer(data: st.DataObject) -> None:
    one = partition(p.AwaitingCommitted(), data.draw(st.sampled_from(["earliest", "none"])))
    states = [one.state]
    sought: int | None = None
    for _ in range(data.draw(st.integers(1, 20))):
        name = data.draw(st.sampled_from(list(EVENTS)))
        asked = data.draw(st.sampled_from(states))
        event = EVENTS[name](asked)
        late = hasattr(event, "asked") and asked is not one.state
        if not late and (type(one.state), type(event)) not in p.TRANSITIONS:
            continue
        if name == "SoughtTo":
            sought = 5
        elif not late and name not in {"LeaderChanged", "Refusal", "Told", "Damaged"}:
            sought = None
        one.handle(event)
        states.append(one.state)
        if sought is not None:
            assert one.position == sought
