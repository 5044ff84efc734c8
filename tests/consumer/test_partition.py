from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.cluster.metadata import LeaderAndEpoch
from aiokafkawire.consumer import partition_states as p
from aiokafkawire.consumer.fetch_buffer import FetchBuffer
from aiokafkawire.consumer.partition import (
    TRANSITIONS,
    AssignedPartition,
    PreferredReadReplica,
    Watermarks,
)
from aiokafkawire.errors import (
    BrokerError,
    ConnectionLost,
    CorruptRecord,
    LogTruncated,
    NoOffsetForPartition,
    UnsupportedVersion,
)
from aiokafkawire.records import FetchedRange, find_fetched_range
from aiokafkawire.runtime.state_machine import InvalidTransition
from aiokafkawire.types import OffsetAndMetadata
from aiokafkawire.wire.error_codes import ErrorCode, error_for

from .record_data import P0, fetched, log, mark_delivered

ERROR = CorruptRecord("damaged")
LOST = ConnectionLost("gone")

OLD, NEW = LeaderAndEpoch(1, 2), LeaderAndEpoch(3, 4)

STATES = {
    "AwaitingCommitted": p.AwaitingCommitted,
    "Resetting": lambda: p.Resetting(p.PositionTarget.LATEST),
    "Validating": lambda: p.Validating(FetchBuffer(7, 2), OLD),
    "Fetching": lambda: p.Fetching(FetchBuffer(7, 2), OLD),
    "ErrorPending": lambda: p.ErrorPending(ERROR, p.Fetching(FetchBuffer(7, 2), OLD)),
    "Halted": lambda: p.Halted(ERROR),
}
EVENTS: dict[str, Any] = {
    "CommittedOffsetFetched": lambda s: p.CommittedOffsetFetched(
        s, OffsetAndMetadata(5, leader_epoch=3)
    ),
    "OffsetListed": lambda s: p.OffsetListed(s, 5, 3),
    "LookupFailed": lambda s: p.LookupFailed(s, LOST, 9.0),
    "LeaderChanged": lambda s: p.LeaderChanged(NEW),
    "EpochEndFetched": lambda s: p.EpochEndFetched(s, 2, 5),
    "Seek": lambda s: p.Seek(5, 3),
    "ResetOffset": lambda s: p.ResetOffset(p.PositionTarget.EARLIEST),
    "SeekToCommitted": lambda s: p.SeekToCommitted(),
    "PositionOutOfRange": lambda s: p.PositionOutOfRange(s, ERROR),
    "CorruptionFound": lambda s: p.CorruptionFound(s, ERROR),
    "PartitionFailed": lambda s: p.PartitionFailed(s, ERROR),
    "ErrorReported": lambda s: p.ErrorReported(),
    "TopicRecreated": lambda s: p.TopicRecreated(),
}
ALWAYS = {
    "Seek": "Fetching",
    "ResetOffset": "Resetting",
    "SeekToCommitted": "AwaitingCommitted",
    "TopicRecreated": "Resetting",
}
EXPECTED = {
    "AwaitingCommitted": ALWAYS
    | {"CommittedOffsetFetched": "Fetching", "LookupFailed": "AwaitingCommitted"},
    "Resetting": ALWAYS
    | {"OffsetListed": "Fetching", "LookupFailed": "Resetting", "PartitionFailed": "ErrorPending"},
    "Validating": ALWAYS
    | {
        "LeaderChanged": "Validating",
        "EpochEndFetched": "Fetching",
        "LookupFailed": "Validating",
        "PartitionFailed": "ErrorPending",
    },
    "Fetching": ALWAYS
    | {
        "LeaderChanged": "Validating",
        "EpochEndFetched": "Fetching",
        "PositionOutOfRange": "Resetting",
        "CorruptionFound": "Halted",
        "PartitionFailed": "ErrorPending",
    },
    "ErrorPending": ALWAYS | {"ErrorReported": "Fetching"},
    "Halted": ALWAYS,
}


def partition(state: Any, policy: str = "earliest") -> AssignedPartition:
    return AssignedPartition(P0, policy, state)


@pytest.mark.parametrize("state_name", STATES)
@pytest.mark.parametrize("event_name", EVENTS)
def test_every_state_and_event(state_name: str, event_name: str) -> None:
    state = STATES[state_name]()
    one = partition(state)
    expected = EXPECTED[state_name].get(event_name)
    if expected is None:
        assert (type(state), type(EVENTS[event_name](state))) not in TRANSITIONS
        with pytest.raises(InvalidTransition):
            one.handle(EVENTS[event_name](state))
        return
    one.handle(EVENTS[event_name](state))
    assert type(one.state).__name__ == expected
    assert one.state is not state
    if expected == "Fetching":
        epochs = {"EpochEndFetched": (5, 2), "ErrorReported": (7, 2)}
        assert one.buffer is not None
        assert (one.position, one.buffer.leader_epoch) == epochs.get(event_name, (5, 3))


def test_the_table_has_no_other_rows() -> None:
    rows = {(state.__name__, event.__name__) for state, event in TRANSITIONS}
    assert rows == {(state, event) for state, row in EXPECTED.items() for event in row}


@pytest.mark.parametrize("state_name", STATES)
@pytest.mark.parametrize("event_name", EVENTS)
def test_a_response_for_an_earlier_state_changes_nothing(state_name: str, event_name: str) -> None:
    event = EVENTS[event_name](p.AwaitingCommitted())
    if not hasattr(event, "requested_in"):
        return
    one = partition(STATES[state_name]())
    before = one.state
    one.handle(event)
    assert one.state is before


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_without_a_committed_offset_the_policy_decides(policy: str) -> None:
    asked = p.AwaitingCommitted()
    one = partition(asked, policy)
    one.handle(p.CommittedOffsetFetched(asked, None))
    if policy == "none":
        assert isinstance(one.state, p.Halted)
        assert isinstance(one.state.error, NoOffsetForPartition)
        assert one.state.error.partitions == (P0,)
    else:
        assert isinstance(one.state, p.Resetting)
        assert one.state.timestamp == p.PositionTarget[policy.upper()]


def test_a_timestamp_after_the_last_record_resets_to_the_end() -> None:
    asked = p.Resetting(1_000)
    one = partition(asked)
    one.handle(p.OffsetListed(asked, None))
    assert isinstance(one.state, p.Resetting)
    assert one.state.timestamp == p.PositionTarget.LATEST


@pytest.mark.parametrize("state_name", ["AwaitingCommitted", "Resetting", "Validating"])
def test_a_failed_lookup_is_repeated_or_raised_and_then_repeated(state_name: str) -> None:
    asked = STATES[state_name]()
    one = partition(asked)
    one.handle(p.LookupFailed(asked, LOST, 9.0))
    assert one.state.not_before == 9.0  # type: ignore[union-attr]
    error = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    one.handle(p.LookupFailed(one.state, error, 11.0))
    assert isinstance(one.state, p.ErrorPending)
    one.paused = True
    assert one.take_error() is None
    one.paused = False
    assert one.take_error() is error
    assert one.take_error() is None
    assert type(one.state).__name__ == state_name
    assert one.state.not_before == 11.0


# --- leaders and epochs -----------------------------------------------------------------------


def read_by(
    leader: LeaderAndEpoch | None, policy: str = "earliest", *, given: int = 4
) -> AssignedPartition:
    """Return a partition with offsets 0 to 3 of epoch 1, and 4 and 5 of epoch 2.

    The first `given` records are delivered.
    """
    buffer = FetchBuffer(0)
    data = log(4, leader_epoch=1) + log(2, start=4, leader_epoch=2)
    buffer.add(fetched(data), len(data), find_fetched_range(data, 0))
    if given:
        buffer.take(given, "a")
    return partition(p.Fetching(buffer, leader), policy)


def test_a_new_leader_starts_a_validation() -> None:
    one = read_by(OLD)
    one.update_leader(None)
    one.update_leader(OLD)
    assert isinstance(one.state, p.Fetching)
    one.not_before, one.preferred_replica = 9.0, PreferredReadReplica(2, 99.0)
    one.update_leader(NEW)
    assert isinstance(one.state, p.Validating)
    assert (one.readable_buffer, one.position, one.not_before, one.preferred_replica) == (
        None,
        4,
        0.0,
        None,
    )
    first = one.state
    one.update_leader(LeaderAndEpoch(1, 6))
    assert isinstance(one.state, p.Validating)
    assert one.state is not first
    assert one.state.leader == LeaderAndEpoch(1, 6)


@pytest.mark.parametrize(
    ("buffer", "leader"), [(FetchBuffer(7), NEW), (FetchBuffer(7, 2), LeaderAndEpoch(3, -1))]
)
def test_without_epochs_a_new_leader_is_not_validated(
    buffer: FetchBuffer, leader: LeaderAndEpoch
) -> None:
    state = p.Fetching(buffer, OLD)
    one = partition(state)
    one.update_leader(leader)
    assert isinstance(one.state, p.Fetching)
    assert one.state is not state  # a response of the old leader is stale
    assert one.state.leader == leader


def test_an_offset_listed_by_the_leader_is_not_validated() -> None:
    asked = p.Resetting(p.PositionTarget.LATEST)
    one = partition(asked)
    one.handle(p.OffsetListed(asked, 5, 2, OLD))
    one.update_leader(OLD)
    assert isinstance(one.state, p.Fetching)
    one.update_leader(NEW)
    assert isinstance(one.state, p.Validating)


@pytest.mark.parametrize("event", [p.Seek(5, 2), p.CommittedOffsetFetched])
def test_an_offset_with_an_epoch_is_validated_first(event: Any) -> None:
    asked = p.AwaitingCommitted()
    one = partition(asked)
    if event is p.CommittedOffsetFetched:
        event = p.CommittedOffsetFetched(asked, OffsetAndMetadata(5, leader_epoch=2))
    one.handle(event)
    one.update_leader(OLD)
    assert isinstance(one.state, p.Validating)


def test_a_log_with_the_fetched_records_continues_and_loses_nothing() -> None:
    one = read_by(OLD)
    one.update_leader(NEW)
    one.handle(p.EpochEndFetched(one.state, 2, 6))
    assert isinstance(one.state, p.Fetching)
    assert one.buffer is not None
    rest = one.buffer.take(9, "a")
    assert rest is not None
    assert rest.offsets() == [4, 5]


def test_truncated_fetched_records_are_discarded_and_the_position_validated() -> None:
    one = read_by(OLD)
    one.update_leader(NEW)
    one.handle(p.EpochEndFetched(one.state, 1, 4))
    assert isinstance(one.state, p.Validating)
    assert one.buffer is not None
    assert (one.buffer.is_empty, one.buffer.fetch_offset, one.buffer.last_fetched_epoch) == (
        True,
        4,
        1,
    )
    one.handle(p.EpochEndFetched(one.state, 1, 4))
    assert isinstance(one.state, p.Fetching)
    assert one.position == 4


@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H"])
def test_a_truncation_resets_to_the_diverging_offset(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = read_by(OLD, policy, given=6)
    one.update_leader(NEW)
    one.handle(p.EpochEndFetched(one.state, 1, 3))
    assert isinstance(one.state, p.Fetching)
    assert one.buffer is not None
    assert (one.position, one.buffer.leader_epoch, one.state.leader) == (3, 1, NEW)
    assert "orders-0: the log was truncated" in caplog.text


@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H"])
def test_a_truncation_without_a_diverging_offset_resets_by_the_policy(policy: str) -> None:
    one = read_by(OLD, policy, given=6)
    one.update_leader(NEW)
    one.handle(p.EpochEndFetched(one.state, -1, -1))
    assert isinstance(one.state, p.Resetting)
    assert one.state.timestamp == p.reset_target(policy)


@pytest.mark.parametrize("end", [(1, 3), (-1, -1)])
def test_a_truncation_raises_with_policy_none(end: tuple[int, int]) -> None:
    one = read_by(OLD, "none", given=6)
    one.update_leader(NEW)
    one.handle(p.EpochEndFetched(one.state, *end))
    for _ in range(2):
        error = one.take_error()
        assert isinstance(error, LogTruncated)
    assert (error.topic, error.partition, error.offset) == (*P0, 6)
    known = end if end != (-1, -1) else (None, None)
    assert (error.leader_epoch, error.diverging_offset) == known
    assert one.position == 6
    one.handle(p.Seek(3))
    assert isinstance(one.state, p.Fetching)


def test_a_diverging_fetch_is_a_truncation() -> None:
    one = read_by(OLD, "none", given=6)
    one.handle(p.EpochEndFetched(one.state, 1, 3))
    assert isinstance(one.take_error(), LogTruncated)
    one = read_by(OLD, "none")
    one.handle(p.EpochEndFetched(one.state, 1, 4))
    assert isinstance(one.state, p.Validating)
    one = read_by(None, "none")
    one.handle(p.EpochEndFetched(one.state, 1, 4))
    assert isinstance(one.state, p.Fetching)


def test_an_epoch_unknown_to_the_log_is_not_a_truncation_by_itself() -> None:
    # ListOffsets returns the leader's epoch, in which perhaps nothing was written.
    one = partition(p.Fetching(FetchBuffer(7, 5), OLD), "none")
    one.handle(p.EpochEndFetched(one.state, 4, 7))
    assert isinstance(one.state, p.Fetching)
    assert one.buffer is not None
    assert (one.position, one.buffer.last_fetched_epoch) == (7, 4)


@pytest.mark.parametrize(
    "error",
    [UnsupportedVersion("too old"), error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)],
)
def test_brokers_without_epoch_ends_skip_the_validation(error: Any) -> None:
    one = read_by(OLD)
    one.update_leader(NEW)
    one.handle(p.LookupFailed(one.state, error, 9.0))
    assert isinstance(one.state, p.Fetching)


def test_failed_validations_are_counted() -> None:
    one = read_by(OLD)
    one.update_leader(NEW)
    for failures in (1, 2):
        one.handle(p.LookupFailed(one.state, LOST, 9.0))
        assert isinstance(one.state, p.Validating)
        assert (one.state.failures, one.state.not_before) == (failures, 9.0)


def test_a_partition_error_is_raised_once_and_keeps_fetched_records() -> None:
    one = read_by(OLD)
    error = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    one.handle(p.PartitionFailed(one.state, error))
    assert (one.readable_buffer, one.position) == (None, 4)
    assert one.offset_to_commit() == OffsetAndMetadata(0, leader_epoch=1)
    reported = one.take_error()
    assert isinstance(reported, BrokerError)
    assert one.take_error() is None
    assert one.readable_buffer is not None
    rest = one.readable_buffer.take(9, "a")
    assert rest is not None
    assert rest.offsets() == [4, 5]


@pytest.mark.parametrize(
    ("policy", "point"),
    [
        ("earliest", p.PositionTarget.EARLIEST),
        ("latest", p.PositionTarget.LATEST),
        ("none", None),
        ("by_duration:PT1M", p.BeforeNow(60_000)),
    ],
)
def test_reset_targets_of_the_policies(policy: str, point: Any) -> None:
    assert p.reset_target(policy) == point


def test_lag_needs_the_position_and_the_end() -> None:
    one = partition(p.AwaitingCommitted())
    assert one.lag is None
    one.handle(p.Seek(3))
    assert one.lag is None
    one.watermarks = Watermarks(None, None, 10)
    assert one.lag == 7
    one.handle(p.Seek(12))
    assert one.lag == 0


def test_out_of_range_is_handled_after_fetched_records_are_delivered() -> None:
    buffer = FetchBuffer(0)
    data = log(2)
    buffer.add(fetched(data), len(data), FetchedRange(2, 0))
    state = p.Fetching(buffer)
    one = partition(state)
    one.handle(p.PositionOutOfRange(state, ERROR))
    assert one.state is state
    buffer.take(5, "a")
    one.handle(p.PositionOutOfRange(state, ERROR))
    assert isinstance(one.state, p.Resetting)


def test_a_halted_partition_delivers_nothing_and_keeps_its_offset_to_commit() -> None:
    state = p.Fetching(FetchBuffer(7))
    one = partition(state)
    one.handle(p.CorruptionFound(state, ERROR))
    assert one.readable_buffer is None
    assert one.offset_to_commit() == OffsetAndMetadata(7)
    assert one.position == 7


def test_paused_and_revoked_partitions_are_not_readable() -> None:
    one = partition(p.Fetching(FetchBuffer(7)))
    assert one.readable_buffer is one.buffer
    one.paused = True
    assert one.readable_buffer is None
    one.paused, one.pending_revocation = False, True
    assert one.readable_buffer is None


def test_only_new_offsets_are_committed() -> None:
    asked = p.AwaitingCommitted()
    one = partition(asked)
    one.handle(p.CommittedOffsetFetched(asked, OffsetAndMetadata(5)))
    assert one.offset_to_commit() is None
    one.handle(p.Seek(3, 1))
    assert one.offset_to_commit() == OffsetAndMetadata(3, leader_epoch=1)
    assert one.delivered_offset() == OffsetAndMetadata(3, leader_epoch=1)


def test_uncommitted_delivered_records_are_known() -> None:
    one = partition(p.Fetching(FetchBuffer(5)))
    assert not one.has_uncommitted
    mark_delivered(one, 3, 5)
    mark_delivered(one, 0, 2)
    assert one.delivered_range == (0, 5)
    assert one.has_uncommitted
    one.committed_offset = 5
    assert not one.has_uncommitted


def test_records_after_a_backward_seek_do_not_count_as_uncommitted() -> None:
    one = partition(p.Fetching(FetchBuffer(5)))
    mark_delivered(one, 0, 5)
    one.committed_offset = 2
    assert one.has_uncommitted
    one.handle(p.SeekToCommitted())
    assert not one.has_uncommitted
    one.handle(p.CommittedOffsetFetched(one.state, OffsetAndMetadata(2)))
    assert not one.has_uncommitted
    mark_delivered(one, 2, 3)
    one.handle(p.Seek(3))
    assert one.has_uncommitted


@given(st.data())
@pytest.mark.slow
def test_no_sequence_of_events_leaves_a_position_from_a_stale_response(data: st.DataObject) -> None:
    one = partition(p.AwaitingCommitted(), data.draw(st.sampled_from(["earliest", "none"])))
    states = [one.state]
    sought: int | None = None
    for _ in range(data.draw(st.integers(1, 20))):
        name = data.draw(st.sampled_from(list(EVENTS)))
        asked = data.draw(st.sampled_from(states))
        event = EVENTS[name](asked)
        late = hasattr(event, "requested_in") and asked is not one.state
        if not late and (type(one.state), type(event)) not in TRANSITIONS:
            continue
        if name == "Seek":
            sought = 5
        elif not late and name not in {
            "LeaderChanged",
            "PartitionFailed",
            "ErrorReported",
            "CorruptionFound",
        }:
            sought = None
        one.handle(event)
        states.append(one.state)
        if sought is not None:
            assert one.position == sought
