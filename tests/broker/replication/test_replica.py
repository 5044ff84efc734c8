from __future__ import annotations

import dataclasses
import math

import pytest

from aiokafkawire.broker.replication.replica import (
    TRANSITIONS,
    BecomeFollower,
    BecomeLeader,
    Diverged,
    EpochEndReceived,
    Event,
    FetchOutOfRange,
    FollowerFetched,
    Following,
    IsrRecorded,
    LagCheckDue,
    LeaderOffsetFound,
    Leading,
    Offline,
    RecordsAppended,
    RecordsFetched,
    Replica,
    ResolvingOffset,
    State,
    StopFollowing,
    Truncating,
)
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.runtime.state_machine import InvalidTransition

from .logs import NODE, assignment, records, replica, write

FIRST, SECOND = 2, 3
"""The two other replicas."""

LAG_S = 10.0

STATES: dict[type[State], State] = {
    Offline: Offline(),
    Truncating: Truncating(0),
    Following: Following(),
    ResolvingOffset: ResolvingOffset(),
    Leading: Leading({}),
}

EVENTS: list[Event] = [
    BecomeLeader(assignment(NODE, 9)),
    BecomeFollower(assignment(FIRST, 9)),
    StopFollowing(),
    RecordsAppended(),
    FollowerFetched(FIRST, 0),
    LagCheckDue(LAG_S),
    IsrRecorded((NODE,)),
    EpochEndReceived(0, 0),
    RecordsFetched(b"", 0),
    Diverged(0, 0),
    FetchOutOfRange(),
    LeaderOffsetFound(0),
]


def leading(count: int = 0, **changes: object) -> Replica:
    made = replica()
    write(made.log, count)
    made.handle(BecomeLeader(dataclasses.replace(assignment(), **changes)), 0.0)
    return made


def following(
    count: int = 0, *, epoch: int = 0, watermark: int = 0, truncates_by_epoch: bool = True
) -> Replica:
    """A follower with some batches; it knows where its log diverges from the leader's."""
    made = replica(truncates_by_epoch=truncates_by_epoch, watermark=watermark)
    write(made.log, count, epoch)
    made.handle(BecomeFollower(assignment(FIRST, epoch)), 0.0)
    if isinstance(made.state, Truncating):
        made.handle(EpochEndReceived(epoch, count), 0.0)
    assert made.state == Following()
    return made


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("state", STATES.values(), ids=lambda state: type(state).__name__)
def test_missing_transitions_raise(state: State, event: Event) -> None:
    made = replica(state=state)
    if (type(state), type(event)) in TRANSITIONS:
        assert made.accepts(type(event))
        made.handle(event, 1.0)
    else:
        assert not made.accepts(type(event))
        with pytest.raises(InvalidTransition):
            made.handle(event, 1.0)


def test_the_table_names_all_states_and_events() -> None:
    assert {state for state, _ in TRANSITIONS} == set(STATES)
    assert {event for _, event in TRANSITIONS} == {type(event) for event in EVENTS}


# --- leaders -------------------------------------------------------------------------------------


def test_a_leader_applies_the_isr_of_its_command() -> None:
    made = leading(leader_epoch=4, isr=(1, 2))
    assert (made.leader, made.leader_epoch) == (NODE, 4)
    assert (made.isr, made.replicas) == ([1, 2], [1, 2, 3])
    made.check_leader(NODE)


def test_the_high_watermark_is_the_minimum_of_the_isr() -> None:
    made = leading()
    write(made.log, 3)
    made.on_append()
    assert made.high_watermark == 0
    made.handle(FollowerFetched(FIRST, 3), 1.0)
    assert made.high_watermark == 0
    made.handle(FollowerFetched(SECOND, 2), 1.0)
    assert made.high_watermark == 2
    made.handle(FollowerFetched(SECOND, 3), 1.0)
    assert made.high_watermark == 3


def test_a_leader_alone_in_the_isr_advances_at_once() -> None:
    made = leading(isr=(NODE,))
    write(made.log, 2)
    made.on_append()
    assert made.high_watermark == 2


def test_readers_are_notified_of_the_high_watermark() -> None:
    made = leading(isr=(1, 2))
    write(made.log)
    made.on_append()
    notified: list[int] = []
    made.on_change.add(lambda: notified.append(made.high_watermark))
    made.handle(FollowerFetched(FIRST, 1), 1.0)
    assert 1 in notified


def test_the_high_watermark_never_goes_back() -> None:
    made = leading(isr=(NODE,))
    write(made.log, 2)
    made.on_append()
    made.handle(FollowerFetched(FIRST, 1), 1.0)
    made.handle(IsrRecorded((NODE, FIRST)), 1.0)
    assert made.high_watermark == 2


def test_a_caught_up_follower_asks_to_join_the_isr() -> None:
    made = leading(isr=(NODE,))
    write(made.log, 2)
    made.on_append()
    assert made.handle(FollowerFetched(SECOND, 1), 1.0) is None
    assert made.handle(FollowerFetched(SECOND, 2), 2.0) == (NODE, SECOND)
    assert made.isr == [NODE], "not before it is recorded"
    made.handle(IsrRecorded((NODE, SECOND)), 2.0)
    assert made.isr == [NODE, SECOND]


def test_the_isr_is_in_the_order_of_the_replicas() -> None:
    made = leading(isr=(NODE, SECOND))
    assert made.handle(FollowerFetched(FIRST, 0), 1.0) == (NODE, FIRST, SECOND)


def test_a_fetch_by_a_non_replica_is_not_counted() -> None:
    made = leading(isr=(1, 2))
    write(made.log)
    made.on_append()
    assert made.handle(FollowerFetched(77, 1), 1.0) is None
    assert made.count_replicas_at(1) == 1
    assert made.high_watermark == 0


def test_a_follower_that_stops_fetching_leaves_the_isr() -> None:
    made = leading()
    made.handle(FollowerFetched(FIRST, 0), LAG_S)
    assert made.handle(LagCheckDue(LAG_S), LAG_S) is None
    assert made.handle(LagCheckDue(LAG_S), LAG_S + 1) == (NODE, FIRST)


def test_a_follower_that_never_catches_up_leaves_the_isr() -> None:
    made = leading(isr=(1, 2))
    for second in range(1, 13):
        write(made.log, 2)
        # Always one behind the end at the time of the previous fetch.
        made.handle(FollowerFetched(FIRST, made.log.end_offset - 3), float(second))
    assert made.handle(LagCheckDue(LAG_S), 12.0) == (NODE,)


def test_a_follower_that_reaches_an_earlier_end_is_in_sync() -> None:
    made = leading(isr=(1, 2))
    for second in range(1, 13):
        # It has everything up to the end of its previous fetch; more came since.
        end = made.log.end_offset
        write(made.log, 2)
        made.handle(FollowerFetched(FIRST, end), float(second))
    assert made.handle(LagCheckDue(LAG_S), 12.0) is None


def test_the_high_watermark_advances_without_slow_followers() -> None:
    made = leading(isr=(1, 2))
    write(made.log, 2)
    made.on_append()
    made.handle(IsrRecorded((NODE,)), 1.0)
    assert made.high_watermark == 2


def test_a_leader_in_a_new_epoch_remembers_how_far_its_followers_are() -> None:
    made = leading()
    write(made.log)
    made.handle(FollowerFetched(FIRST, 1), 1.0)
    made.handle(BecomeLeader(assignment(NODE, 1, (1, 2))), 2.0)
    assert made.high_watermark == 1


def test_a_new_leader_does_not_know_how_far_its_followers_are() -> None:
    made = following(2, watermark=1)
    made.handle(BecomeLeader(assignment(NODE, 1, (1, 2))), 5.0)
    assert made.high_watermark == 1, "what it knew as a follower"
    assert made.count_replicas_at(1) == 1
    # They have unlimited time.
    assert made.handle(LagCheckDue(LAG_S), 15.0) is None
    assert made.handle(LagCheckDue(LAG_S), 15.1) == (NODE,)


def test_a_new_leader_may_be_behind_the_high_watermark_seen_by_consumers() -> None:
    made = following(2, watermark=1)
    assert made.is_high_watermark_current
    made.handle(BecomeLeader(assignment(NODE, 1, (1, 2))), 5.0)
    assert not made.is_high_watermark_current
    write(made.log)
    # With a new epoch it is still the same leader.
    made.handle(BecomeLeader(assignment(NODE, 2, (1, 2))), 6.0)
    made.handle(FollowerFetched(FIRST, 2), 7.0)
    assert made.is_high_watermark_current
    assert made.high_watermark == 2


def test_a_follower_below_the_leader_epoch_start_is_not_in_sync() -> None:
    made = following(3, watermark=1)
    made.handle(BecomeLeader(assignment(NODE, 1, (1, 2))), 5.0)
    # Records that it lacks may have been acknowledged by the previous leader.
    assert made.handle(FollowerFetched(SECOND, 2), 6.0) is None
    assert made.handle(FollowerFetched(SECOND, 3), 7.0) == (1, 2, 3)


def test_below_min_isr_a_strict_high_watermark_does_not_advance() -> None:
    made = replica(min_in_sync=2)
    made.handle(BecomeLeader(assignment(isr=(1,))), 0.0)
    write(made.log)
    made.on_append()
    assert made.high_watermark == 0
    assert made.handle(FollowerFetched(FIRST, 1), 1.0) == (1, 2)
    made.handle(IsrRecorded((1, 2)), 1.0)
    assert made.high_watermark == 1


def test_a_topic_with_too_few_replicas_needs_them_all() -> None:
    made = replica(min_in_sync=2)
    made.handle(BecomeLeader(assignment(isr=(1,), replicas=(1,))), 0.0)
    write(made.log)
    made.on_append()
    assert made.high_watermark == 1


def test_a_replica_outside_the_isr_is_lagging_from_the_start() -> None:
    made = leading(isr=(1, 2))
    assert isinstance(made.state, Leading)
    assert made.state.followers[SECOND].caught_up_at == -math.inf


def test_a_leader_continues_until_another_is_elected() -> None:
    made = leading()
    made.handle(StopFollowing(), 1.0)
    assert isinstance(made.state, Leading)


# --- followers -----------------------------------------------------------------------------------


def test_before_epochs_a_follower_keeps_what_is_before_the_high_watermark() -> None:
    made = following(3, watermark=1, truncates_by_epoch=False)
    assert (made.log.end_offset, made.high_watermark) == (1, 1)


def test_before_epochs_a_follower_of_the_same_leader_goes_on_as_it_was() -> None:
    made = following(0, truncates_by_epoch=False)
    made.handle(RecordsFetched(records(0, 2), 0), 1.0)
    made.handle(BecomeFollower(assignment(FIRST, 1)), 2.0)
    assert made.log.end_offset == 2
    assert made.leader_epoch == 1
    made.handle(BecomeFollower(assignment(SECOND, 2)), 3.0)
    assert made.log.end_offset == 0


def test_a_follower_asks_where_its_newest_epoch_ends() -> None:
    made = replica()
    write(made.log, 2, epoch=3)
    made.handle(BecomeFollower(assignment(FIRST, 5)), 0.0)
    assert made.state == Truncating(3)
    assert made.log.end_offset == 2


def test_an_empty_log_does_not_diverge() -> None:
    made = replica()
    made.handle(BecomeFollower(assignment(FIRST, 5)), 0.0)
    assert made.state == Following()


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (EpochEndReceived(3, 4), 4),  # the same epoch, which ended earlier there
        (EpochEndReceived(3, 9), 6),  # it continues there
        (EpochEndReceived(-1, 5), 5),  # the first version has no epochs
        (EpochEndReceived(-1, -1), 1),  # no known epoch there: down to the high watermark
        (EpochEndReceived(1, 3), 2),  # it ended here before it ended there
        (EpochEndReceived(1, 1), 1),
        # In the response to a fetch:
        (Diverged(3, 4), 4),  # the same epoch ended earlier there
        (Diverged(2, 4), 2),  # of epoch 3 nothing can be common
        (Diverged(1, 1), 1),  # the epoch before ended earlier there as well
        (Diverged(1, 4), 2),  # it ended earlier here
        (Diverged(0, 0), 0),
    ],
    ids=str,
)
def test_a_follower_truncates_records_missing_at_the_leader(
    answer: EpochEndReceived | Diverged, end: int
) -> None:
    on_fetch = isinstance(answer, Diverged)
    made = replica(truncates_on_fetch=on_fetch, watermark=0 if on_fetch else 1)
    write(made.log, 2, epoch=1)
    write(made.log, 4, epoch=3)
    made.handle(BecomeFollower(assignment(FIRST, 5)), 0.0)
    made.handle(answer, 0.0)
    assert made.state == Following()
    assert made.log.end_offset == end


def test_an_unknown_epoch_is_resolved_with_lower_ones() -> None:
    made = replica()
    write(made.log, 2, epoch=1)
    write(made.log, 2, epoch=4)
    made.handle(BecomeFollower(assignment(FIRST, 6)), 0.0)
    made.handle(EpochEndReceived(3, 9), 0.0)
    # Of epoch 4 nothing can be common; of epoch 1 perhaps not all.
    assert made.state == Truncating(1)
    assert made.log.end_offset == 2
    made.handle(EpochEndReceived(1, 1), 0.0)
    assert made.state == Following()
    assert made.log.end_offset == 1


def test_with_diverging_epochs_in_fetches_a_follower_need_not_ask() -> None:
    made = replica(truncates_on_fetch=True)
    write(made.log, 2, epoch=3)
    made.handle(BecomeFollower(assignment(FIRST, 5)), 0.0)
    assert made.state == Following()
    assert made.log.end_offset == 2


def test_without_epochs_the_high_watermark_counts_there_too() -> None:
    made = replica(truncates_on_fetch=True, watermark=1)
    write(made.log, 2, epoch=-1)
    made.handle(BecomeFollower(assignment(FIRST, 5)), 0.0)
    assert made.state == Following()
    assert made.log.end_offset == 1


def test_a_follower_appends_and_learns_the_high_watermark() -> None:
    made = following()
    seen: list[int] = []
    made.on_change.add(lambda: seen.append(made.log.end_offset))
    made.handle(RecordsFetched(records(0, 3), 1), 1.0)
    assert (made.log.end_offset, made.high_watermark) == (3, 1)
    assert seen
    made.handle(RecordsFetched(b"", 99), 1.0)
    assert made.high_watermark == 3, "never beyond what it has"


def test_known_records_are_not_appended_again() -> None:
    made = following(2)
    made.handle(RecordsFetched(records(1) + records(2), 2), 1.0)
    assert made.log.end_offset == 3


def test_a_follower_deletes_below_the_leaders_log_start() -> None:
    made = following(3)
    made.handle(RecordsFetched(b"", 3, start_offset=2), 1.0)
    assert made.log.start_offset == 2


def test_corrupt_records_are_not_appended() -> None:
    made = following()
    bad = bytearray(records(1))
    bad[-1] ^= 0xFF
    with pytest.raises(CorruptRecord):
        made.handle(RecordsFetched(records(0) + bytes(bad), 2), 1.0)
    assert made.log.end_offset == 0


def test_a_follower_truncates_to_a_shorter_leader() -> None:
    made = following(5, watermark=4)
    made.handle(FetchOutOfRange(), 1.0)
    assert made.state == ResolvingOffset()
    made.handle(LeaderOffsetFound(3), 1.0)
    assert made.state == Following()
    assert (made.log.end_offset, made.high_watermark) == (3, 3)


def test_a_leader_that_begins_later_is_followed_from_its_start() -> None:
    made = following(2)
    made.handle(FetchOutOfRange(), 1.0)
    made.handle(LeaderOffsetFound(9), 1.0)
    assert made.state == ResolvingOffset(end_known=True)
    made.handle(LeaderOffsetFound(7), 1.0)
    assert made.state == Following()
    assert (made.log.start_offset, made.log.end_offset, made.high_watermark) == (7, 7, 7)


def test_a_follower_that_is_stopped_keeps_its_log() -> None:
    made = following(2)
    made.handle(StopFollowing(), 1.0)
    assert made.state == Offline()
    assert made.log.end_offset == 2
    made.handle(BecomeFollower(assignment(FIRST, 1)), 2.0)
    assert made.state == Truncating(0)
