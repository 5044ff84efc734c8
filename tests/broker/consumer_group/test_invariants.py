"""Invariants of a consumer group under any order of heartbeats, timeouts and topic changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiokafkawire.broker.groups.consumer_group.metadata import ConsumerGroupState
from aiokafkawire.broker.groups.consumer_group.records import decode_record, encode_record
from aiokafkawire.wire import ErrorCode
from tests.broker.consumer_group.driver import Driver, T, U

MEMBERS = st.sampled_from("abcd")
E = ErrorCode


class Members(RuleBasedStateMachine):
    """Members that obey the protocol. Some responses get lost.

    `owned` is what a member uses: it stops with what it was asked to revoke before it says so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.d = Driver(session_timeout_s=30.0)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, set[tuple[Any, int]]] = {}
        self.owes_full: set[str] = set()
        self.counts = {"t": (T, 3), "u": (U, 2)}
        self.d.set_topics(**self.counts)

    def _accept(self, member: str, result: Any) -> None:
        if result.code:
            assert result.code in {E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH}
            self._forget(member)
            return
        self.epochs[member] = result.member_epoch
        self.owes_full.discard(member)
        if result.assignment is not None:
            self.owned[member] = {
                (topic, part) for topic, parts in result.assignment.items() for part in parts
            }

    def _forget(self, member: str) -> None:
        self.epochs.pop(member, None)
        self.owned.pop(member, None)
        self.owes_full.discard(member)

    def _report(self, member: str) -> dict[Any, list[int]]:
        report: dict[Any, list[int]] = {}
        for topic, part in self.owned.get(member, ()):
            report.setdefault(topic, []).append(part)
        return report

    @rule(member=MEMBERS, names=st.sampled_from([("t",), ("u",), ("t", "u"), ("t|u",)]))
    def join(self, member: str, names: tuple[str, ...]) -> None:
        self._forget(member)
        fields: dict[str, Any] = {}
        if "|" in names[0]:
            fields = {"subscribed_names": None, "subscribed_regex": names[0]}
        self._accept(member, self.d.join(member, *names, **fields))

    @rule(member=MEMBERS, lost=st.booleans())
    def heartbeat(self, member: str, lost: bool) -> None:
        if member not in self.epochs:
            return
        fields: dict[str, Any] = {}
        if member in self.owes_full:
            # As clients do after an error: everything again, but the subscription is known.
            current = self.d.group.data.members.get(member)
            fields = {
                "rebalance_timeout_ms": 5_000,
                "subscribed_names": () if current is None else current.subscribed_names,
            }
        result = self.d.heartbeat(member, self.epochs[member], self._report(member), **fields)
        if lost:
            self.owes_full.add(member)
        else:
            self._accept(member, result)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        if member in self.epochs:
            self.d.heartbeat(member, -1)
            self._forget(member)

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.d.sleep(seconds)
        for member in list(self.epochs):
            if member not in self.d.group.data.members:
                self._forget(member)

    @rule(count=st.integers(1, 5))
    def resize(self, count: int) -> None:
        self.counts["t"] = (T, max(count, self.counts["t"][1]))
        self.d.set_topics(**self.counts)

    @precondition(lambda self: self.epochs)
    @rule()
    def settle(self) -> None:
        """After everyone has answered a few times, each member has its target."""
        for _ in range(8):
            for member in list(self.epochs):
                self.heartbeat(member, lost=False)
        data = self.d.group.data
        if len(self.epochs) == len(data.members) > 0:
            assert data.state is ConsumerGroupState.STABLE
            for member in self.epochs:
                target = {(t, p) for t, parts in data.target[member].items() for p in parts}
                assert self.owned.get(member, set()) == target

    @invariant()
    def no_partition_is_used_by_two_members(self) -> None:
        used = Counter(part for owned in self.owned.values() for part in owned)
        assert not [part for part, count in used.items() if count > 1]

    @invariant()
    def epochs_are_in_order(self) -> None:
        data = self.d.group.data
        assert data.assignment_epoch <= data.epoch
        for member in data.members.values():
            assert member.previous_epoch <= member.epoch <= data.assignment_epoch

    @invariant()
    def the_topics_of_the_group_are_those_of_its_members(self) -> None:
        data = self.d.group.data
        subscribed = (data.subscribed_by(member) for member in data.members.values())
        assert data.subscribed_topics() == frozenset().union(*subscribed)

    @invariant()
    def records_restore_the_group(self) -> None:
        restored = Driver()
        restored.group.load(
            [decode_record(*encode_record(each)) for batch in self.d.batches for each in batch], 0
        )
        ours, theirs = self.d.group.data, restored.group.data
        assert theirs.members == ours.members
        assert theirs.target == ours.target
        assert (theirs.epoch, theirs.assignment_epoch) == (ours.epoch, ours.assignment_epoch)
        assert theirs.state is ours.state


Members.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestMembers = Members.TestCase
