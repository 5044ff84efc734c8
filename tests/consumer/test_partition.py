from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.consumer import partition as p
from aiokafkawire.consumer.buffer import FetchBuffer
from aiokafkawire.errors import ConnectionLost, CorruptRecords, NoOffset, UnsupportedVersion
from aiokafkawire.types import OffsetAndMetadata

from .logs import P0, fetched, log

ERROR = CorruptRecords("damaged")
LOST = ConnectionLost("gone")

STATES = {
    "AwaitingCommitted": p.AwaitingCommitted,
    "Resetting": lambda: p.Resetting(p.LogPoint.LATEST),
    "Positioned": lambda: p.Positioned(FetchBuffer(7, 2)),
    "Broken": lambda: p.Broken(ERROR),
}
EVENTS: dict[str, Any] = {
    "CommittedKnown": lambda s: p.CommittedKnown(s, OffsetAndMetadata(5, leader_epoch=3)),
    "Listed": lambda s: p.Listed(s, 5, 3),
    "LookupFailed": lambda s: p.LookupFailed(s, LOST, 9.0),
    "SoughtTo": lambda s: p.SoughtTo(5, 3),
    "ResetTo": lambda s: p.ResetTo(p.LogPoint.EARLIEST),
    "ToCommitted": lambda s: p.ToCommitted(),
    "OutOfRange": lambda s: p.OutOfRange(s, ERROR),
    "Damaged": lambda s: p.Damaged(s, ERROR),
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
    "Resetting": ALWAYS | {"Listed": "Positioned", "LookupFailed": "Resetting"},
    "Positioned": ALWAYS | {"OutOfRange": "Resetting", "Damaged": "Broken"},
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
        with pytest.raises(KeyError):
            one.handle(EVENTS[event_name](state))
        return
    one.handle(EVENTS[event_name](state))
    assert type(one.state).__name__ == expected
    assert one.state is not state
    if expected == "Positioned":
        assert (one.position, one.buffer.leader_epoch) == (5, 3)  # type: ignore[union-attr]


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


@pytest.mark.parametrize("state_name", ["AwaitingCommitted", "Resetting"])
def test_a_failed_look_up_is_repeated_or_told(state_name: str) -> None:
    asked = STATES[state_name]()
    one = partition(asked)
    one.handle(p.LookupFailed(asked, LOST, 9.0))
    assert one.state.not_before == 9.0  # type: ignore[union-attr]
    error = UnsupportedVersion("too old")
    one.handle(p.LookupFailed(one.state, error, 9.0))
    assert isinstance(one.state, p.Broken)
    assert one.state.error is error


def test_out_of_range_is_left_until_what_was_fetched_is_given() -> None:
    buffer = FetchBuffer(0)
    data = log(2)
    buffer.add(fetched(data), len(data), 2)
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
    one = partition(p.Positioned(FetchBuffer(0)))
    assert not one.uncommitted
    one.gave(3, 5)
    one.gave(0, 2)
    assert one.given == (0, 5)
    assert one.uncommitted
    one.acknowledged = 5
    assert not one.uncommitted


@given(st.data())
def test_no_sequence_of_events_leaves_a_position_from_an_old_answer(data: st.DataObject) -> None:
    one = partition(p.AwaitingCommitted(), data.draw(st.sampled_from(["earliest", "none"])))
    states = [one.state]
    sought: int | None = None
    for _ in range(data.draw(st.integers(1, 20))):
        name = data.draw(st.sampled_from(list(EVENTS)))
        asked = data.draw(st.sampled_from(states))
        event = EVENTS[name](asked)
        if hasattr(event, "asked") and asked is one.state:
            if (type(one.state), type(event)) not in p.TRANSITIONS:
                continue
            sought = None
        elif name == "SoughtTo":
            sought = 5
        elif not hasattr(event, "asked"):
            sought = None
        one.handle(event)
        states.append(one.state)
        if sought is not None:
            assert one.position == sought
