"""Members against a model of Kafka's coordinator, with lost responses and moved coordinators.

The model follows the rules of KIP-848: a partition is assigned only after its former owner has
reported that it is released, and an epoch that is not the member's is fenced.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import data, integers, sampled_from

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.consumer_protocol import events, states
from aiokafkawire.group.consumer_protocol.context import ConsumerProtocolSettings
from aiokafkawire.group.consumer_protocol.effects import SendConsumerHeartbeat, SendLeaveEpoch
from aiokafkawire.group.consumer_protocol.machine import ConsumerProtocolMachine
from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership.effects import (
    AssignPartitions,
    FindCoordinator,
    LosePartitions,
    RevokePartitions,
)
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.types import TopicPartition

TOPIC = UUID(int=1)
PARTITIONS = tuple(TopicIdPartition(TOPIC, "orders", number) for number in range(6))
INTERVAL_S = 1.0
FENCED = KafkaError("fenced")


@dataclass
class ModelMember:
    """A member, as the coordinator knows it."""

    epoch: int = 0
    previous_epoch: int = 0
    assigned: set[Any] = field(default_factory=set)
    pending_release: set[Any] = field(default_factory=set)


class Coordinator:
    """The coordinator's side of one group."""

    def __init__(self) -> None:
        self.epoch = 0
        self.members: dict[str, ModelMember] = {}

    def target(self, member_id: str) -> set[Any]:
        ordered = sorted(self.members)
        return set(PARTITIONS[ordered.index(member_id) :: len(ordered)])

    def remove(self, member_id: str) -> None:
        if self.members.pop(member_id, None) is not None:
            self.epoch += 1

    def heartbeat(self, member_id: str, sent: SendConsumerHeartbeat) -> Any:
        """Return the event for the response."""
        owned = None if sent.owned is None else set(sent.owned)
        if sent.epoch == states.JOIN_EPOCH:
            assert sent.full
            assert owned == set()
            assert sent.topics
            if member_id not in self.members:
                self.epoch += 1
            known = self.members.setdefault(member_id, ModelMember())
            known.assigned, known.pending_release = set(), set()
        elif (found := self.members.get(member_id)) is None:
            return events.MemberFenced(sent.request, FENCED)
        else:
            known = found
            lost_response = (
                sent.epoch == known.previous_epoch and owned is not None and owned <= known.assigned
            )
            if sent.epoch != known.epoch and not lost_response:
                return events.MemberFenced(sent.request, FENCED)
        before = (set(known.assigned), set(known.pending_release))
        self._reconcile(member_id, known, owned)
        changed = before != (known.assigned, known.pending_release)
        target = (
            states.TargetAssignment(tuple(sorted(known.assigned))) if changed or sent.full else None
        )
        return events.HeartbeatResponded(sent.request, known.epoch, INTERVAL_S, target)

    def _reconcile(self, member_id: str, known: ModelMember, owned: set[Any] | None) -> None:
        if known.pending_release:
            if owned is None or owned & known.pending_release:
                return
            known.pending_release = set()
        target = self.target(member_id)
        if known.assigned - target:
            known.pending_release = known.assigned - target
            known.assigned &= target
            return
        held = {
            partition
            for other, member in self.members.items()
            if other != member_id
            for partition in member.assigned | member.pending_release
        }
        known.assigned |= target - held
        if known.epoch != self.epoch:
            known.previous_epoch, known.epoch = known.epoch, self.epoch


class Member:
    """A machine, and the partitions that its consumer owns."""

    def __init__(self, member_id: str, now: float) -> None:
        options = ConsumerProtocolSettings(
            member_id=member_id,
            group_instance_id=None,
            max_poll_interval_ms=10**9,
            retry_backoff_ms=100,
            retry_backoff_max_ms=1_000,
            request_timeout_ms=30_000,
            default_api_timeout_ms=60_000,
        )
        self.member_id = member_id
        self.machine = ConsumerProtocolMachine(options, random.Random(1), now)
        self.owned: set[TopicPartition] = set()
        self.requests: list[Any] = []
        self.handle(shared.Subscribed(("orders",)), now)

    def handle(self, event: Any, now: float) -> None:
        for effect in self.machine.handle(event, now):
            match effect:
                case AssignPartitions(partitions):
                    assert not self.owned.intersection(partitions)
                    self.owned.update(partitions)
                case LosePartitions(partitions):
                    assert self.owned.issuperset(partitions)
                    self.owned.difference_update(partitions)
                case RevokePartitions(_, partitions):
                    assert self.owned.issuperset(partitions)
                    self.requests.append(effect)
                case FindCoordinator() | SendConsumerHeartbeat() | SendLeaveEpoch():
                    self.requests.append(effect)


class Groups(RuleBasedStateMachine):
    """Members come, poll, are removed, and leave; responses and requests are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.coordinator = Coordinator()
        self.members: list[Member] = []
        self.joined = 0

    @precondition(lambda self: len(self.members) < 4)
    @rule()
    def join(self) -> None:
        self.joined += 1
        self.members.append(Member(f"m{self.joined}", self.now))

    @precondition(lambda self: self.members)
    @rule(data=data(), lost=sampled_from(("", "", "request", "response", "response")))
    def answer(self, data: Any, lost: str) -> None:
        """Answer the oldest request of a member, or make its next one due."""
        self.step(data.draw(sampled_from(self.members)), lost)

    def step(self, member: Member, lost: str = "") -> None:
        self._perform(member, lost)
        self._forget_closed()

    def _forget_closed(self) -> None:
        self.members = [member for member in self.members if not member.machine.is_closed]

    def _perform(self, member: Member, lost: str) -> None:
        if not member.requests:
            self.now = max(self.now, min(member.machine.next_deadline(), self.now + 10.0))
            member.handle(shared.DeadlineReached(), self.now)
            return
        request = member.requests.pop(0)
        match request:
            case FindCoordinator(number):
                member.handle(shared.CoordinatorFound(number, 1), self.now)
            case RevokePartitions(number, partitions):
                member.owned.difference_update(partitions)
                member.handle(shared.PartitionsRevoked(number), self.now)
            case SendLeaveEpoch(number):
                if lost != "request":
                    self.coordinator.remove(member.member_id)
                member.handle(shared.GroupLeft(number), self.now)
                if member.machine.is_closed:
                    # Its session times out.
                    self.coordinator.remove(member.member_id)
            case SendConsumerHeartbeat():
                event = (
                    None
                    if lost == "request"
                    else self.coordinator.heartbeat(member.member_id, request)
                )
                if lost:
                    event = shared.CoordinatorUnavailable(request.request)
                member.handle(event, self.now)

    @precondition(lambda self: self.members)
    @rule(data=data(), finish=sampled_from((True, False)))
    def poll(self, data: Any, finish: bool) -> None:
        member = data.draw(sampled_from(self.members))
        timer = member.machine.context.poll_timer
        if timer.open_polls:
            timer.finish_poll(self.now)
            return
        timer.start_poll(self.now)
        member.handle(shared.PollStarted(), self.now)
        if finish:
            timer.finish_poll(self.now)

    @precondition(lambda self: self.members)
    @rule(data=data())
    def session_times_out(self, data: Any) -> None:
        """The coordinator removes a member, which does not know it yet."""
        self.coordinator.remove(data.draw(sampled_from(self.members)).member_id)

    @precondition(lambda self: len(self.members) > 1)
    @rule(data=data())
    def close(self, data: Any) -> None:
        member = data.draw(sampled_from(self.members))
        member.handle(shared.CloseRequested(self.now + 30.0), self.now)
        self._forget_closed()

    @precondition(lambda self: self.members)
    @rule(data=data())
    def reject_commit(self, data: Any) -> None:
        data.draw(sampled_from(self.members)).handle(shared.CommitRejected(), self.now)

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        known = self.coordinator.members
        owned = [tp for member in self.members if member.member_id in known for tp in member.owned]
        assert len(owned) == len(set(owned))

    @precondition(lambda self: self.members)
    @rule(rounds=integers(60, 80))
    def settle(self, rounds: int) -> None:
        """Without failures the members own all partitions in the end."""
        for _ in range(rounds):
            for member in list(self.members):
                timer = member.machine.context.poll_timer
                timer.open_polls = 0
                timer.start_poll(self.now)
                member.handle(shared.PollStarted(), self.now)
                timer.finish_poll(self.now)
                self.step(member)
                self.no_partition_has_two_owners()
        if self.members:
            owned = sorted(tp.partition for member in self.members for tp in member.owned)
            assert owned == list(range(len(PARTITIONS)))


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroups = pytest.mark.slow(TestGroups)
