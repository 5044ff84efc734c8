"""Several membership machines with the broker's group machine, on a network with faults.

Requests and responses of a member keep their order on each of its two connections, as on TCP.
Hypothesis chooses the order of all else.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aiokafkawire.broker.groups import events as broker
from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.errors import KafkaError
from aiokafkawire.group import responses
from aiokafkawire.group.assignors import Assignor, create_assignors
from aiokafkawire.group.leader import compute_assignments, decode_subscriptions, encode_assignments
from aiokafkawire.group.membership import events, states
from aiokafkawire.group.membership.effects import (
    AssignPartitions,
    ComputeAssignment,
    EnterGeneration,
    FindCoordinator,
    LosePartitions,
    MembershipEffect,
    RevokePartitions,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    WatchPartitionCounts,
)
from aiokafkawire.group.membership.membership_machine import MembershipMachine
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.consumer_protocol import encode_subscription
from aiokafkawire.wire.messages.heartbeat import HeartbeatResponse
from aiokafkawire.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from aiokafkawire.wire.messages.sync_group import SyncGroupResponse

from .machines import settings as group_settings
from .test_membership_machine import check_invariants, check_step

pytestmark = pytest.mark.slow

NODE = 1
LOST = KafkaError("connection lost", retriable=True)
MAX_MEMBERS = 4
EXAMPLES = 25
MAX_DELIVERY_S = 40.0
"""A request that takes longer counts as a fault."""


@dataclass(eq=False)
class ModelRequest:
    """A request that is being sent, waits at the coordinator, or whose response is being sent."""

    member: ClassicGroupMember
    effect: Any
    connection: str
    sent_at: float
    answer: events.RequestCompleted | None = None
    arrived: bool = False


@dataclass(eq=False)
class ClassicGroupMember:
    """A membership machine with its application and its requests in flight."""

    name: str
    machine: MembershipMachine
    assignors: dict[str, Assignor]
    topics: tuple[str, ...]
    instance_id: str | None
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    in_flight: list[ModelRequest] = field(default_factory=list)
    known_counts: dict[str, int] = field(default_factory=dict)
    dead: bool = False

    @property
    def ended(self) -> bool:
        return self.dead or self.machine.is_closed

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        state = self.machine.state
        return state.assignment if isinstance(state, states.Assigned) else ()


class GroupModel(RuleBasedStateMachine):
    """`strategies` are the lists of assignors that members may use."""

    strategies: tuple[tuple[str, ...], ...] = ()
    static = False
    with_faults = True

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.group = ClassicGroup("g")
        self.members: list[ClassicGroupMember] = []
        self.partitions = {"orders": 5, "payments": 2}
        self.committed: dict[TopicPartition, int] = {}
        self.created = 0
        self.faulty = False
        self.counts_at_assignment: dict[str, int] = {}
        self.owes_rebalance = False

    # --- members ---

    @initialize()
    def first(self) -> None:
        self.add(0, False)

    @property
    def alive(self) -> list[ClassicGroupMember]:
        return [member for member in self.members if not member.ended]

    @precondition(lambda self: len(self.alive) < MAX_MEMBERS)
    @rule(strategy=st.integers(0, 2), both=st.booleans())
    def add(self, strategy: int, both: bool) -> None:
        self.created += 1
        instance_id = f"i{self.created % MAX_MEMBERS}" if self.static else None
        self.add_member(strategy, both, instance_id)

    def add_member(self, strategy: int, both: bool, instance_id: str | None) -> None:
        names = self.strategies[strategy % len(self.strategies)]
        assignors = create_assignors(names)
        config = group_settings(
            cooperative=all(each.cooperative for each in assignors),
            group_instance_id=instance_id,
        )
        member = ClassicGroupMember(
            f"m{self.created}",
            MembershipMachine(config, random.Random(self.created), self.now),
            {each.name: each for each in assignors},
            ("orders", "payments") if both and not self.static else ("orders",),
            instance_id,
        )
        for other in self.alive if self.static else ():
            if other.instance_id == instance_id:
                self.interrupt(other)
        member.machine.context.poll_timer.start_poll(self.now)
        self.members.append(member)
        self.handle_event(member, events.Subscribed(member.topics))

    def pick(self, number: int) -> ClassicGroupMember:
        return self.alive[number % len(self.alive)]

    @precondition(lambda self: self.alive)
    @rule(number=st.integers(0, 9))
    def close(self, number: int) -> None:
        if len(self.alive) < 2:
            return
        self.handle_event(self.pick(number), events.CloseRequested(self.now + 30))

    # A static member that comes back with other topics does not cause a rebalance, as in Kafka.
    @precondition(lambda self: self.alive and not self.static)
    @rule(number=st.integers(0, 9), both=st.booleans())
    def subscribe(self, number: int, both: bool) -> None:
        member = self.pick(number)
        if not member.machine.context.topics:
            return
        member.topics = ("orders", "payments") if both else ("orders",)
        self.handle_event(member, events.Subscribed(member.topics))

    @precondition(lambda self: self.alive)
    @rule(number=st.integers(0, 9))
    def start_or_finish_poll(self, number: int) -> None:
        """Start or finish a poll of the application."""
        member = self.pick(number)
        poll_timer = member.machine.context.poll_timer
        if poll_timer.open_polls:
            poll_timer.finish_poll(self.now)
        else:
            poll_timer.start_poll(self.now)
            self.handle_event(member, events.PollStarted())

    @precondition(lambda self: self.alive)
    @rule(number=st.integers(0, 9))
    def process_records(self, number: int) -> None:
        member = self.pick(number)
        for tp in member.owned:
            member.positions[tp] += 1

    @precondition(lambda self: self.alive)
    @rule(number=st.integers(0, 9))
    def commit(self, number: int) -> None:
        member = self.pick(number)
        self.commit_all(member, member.owned)

    @precondition(lambda self: self.with_faults and self.alive)
    @rule(number=st.integers(0, 9))
    def kill(self, number: int) -> None:
        member = self.pick(number)
        self.interrupt(member)
        member.dead = True

    def interrupt(self, member: ClassicGroupMember) -> None:
        """Note that a member ends without leaving.

        A static member returns to its old assignment, as in Java. What it should have revoked for
        others gets an owner in the next rebalance.
        """
        self.faulty = True
        self.owes_rebalance |= self.static and not isinstance(member.machine.state, states.Stable)

    @precondition(lambda self: self.alive)
    @rule()
    def add_partition(self) -> None:
        if self.partitions["orders"] < 8:
            self.partitions["orders"] += 1
            for member in self.alive:
                self.check_partition_counts(member)

    def check_partition_counts(self, member: ClassicGroupMember) -> None:
        """Request a rejoin as `GroupLeader.find_changed_topic` would."""
        generation = member.machine.generation
        is_leader = generation is not None and generation.is_leader
        settled = isinstance(member.machine.state, states.Stable)
        if is_leader and settled and member.known_counts != self.partitions:
            self.handle_event(member, events.RejoinRequested("grown"))

    # --- the network ---

    def deliverable(self) -> list[ModelRequest]:
        """Return the first request of each connection, and all local ones."""
        found: list[ModelRequest] = []
        for member in self.members:
            connections: dict[str, None] = {}
            for pending in member.in_flight:
                is_waiting = pending.arrived and pending.answer is None
                if pending.connection == "local" or pending.connection not in connections:
                    connections[pending.connection] = None
                    if not is_waiting:
                        found.append(pending)
        return found

    @precondition(lambda self: self.deliverable())
    @rule(number=st.integers(0, 99))
    def deliver(self, number: int) -> None:
        deliverable = self.deliverable()
        self.deliver_next(deliverable[number % len(deliverable)])

    @rule(steps=st.sampled_from([3, 10, 10, 200, 200]), seed=st.integers(0, 7))
    def run_without_faults(self, steps: int, seed: int) -> None:
        """Run a number of steps without faults."""
        order = random.Random(seed)
        for _ in range(steps):
            if deliverable := self.deliverable():
                self.deliver_next(order.choice(deliverable))
                self.partitions_have_one_owner()
            elif self.is_settled() or not self.alive:
                break
            else:
                deadlines = [member.machine.next_deadline() for member in self.alive]
                next_deadline = min([*deadlines, self.group.next_deadline()])
                self.advance(min(max(next_deadline - self.now, 0.0), 3.1))

    @precondition(lambda self: self.with_faults and any(m.in_flight for m in self.alive))
    @rule(number=st.integers(0, 99), reaches_coordinator=st.booleans())
    def disconnect(self, number: int, reaches_coordinator: bool) -> None:
        """Close a connection, so that its requests get no response."""
        self.faulty = True
        remote = [x for m in self.alive for x in m.in_flight if x.connection != "local"]
        if not remote:
            return
        first = remote[number % len(remote)]
        lost = [x for x in first.member.in_flight if x.connection == first.connection]
        for pending in lost:
            if reaches_coordinator and not pending.arrived and not pending.member.ended:
                self.handle_at_coordinator(pending)
        for pending in lost:
            first.member.in_flight.remove(pending)
        for pending in lost:
            request = pending.effect.request
            if isinstance(pending.effect, FindCoordinator):
                self.handle_event(first.member, events.CoordinatorNotFound(request))
            elif isinstance(pending.effect, SendLeave):
                self.handle_event(first.member, events.GroupLeft(request))
            else:
                self.handle_event(first.member, responses.failure_event(request, LOST))

    @precondition(lambda self: self.with_faults)
    @rule()
    def move_coordinator(self) -> None:
        self.faulty = True
        self.reply(self.group.handle(broker.CoordinatorChanged(loaded_at=self.now), self.now))

    def deliver_next(self, pending: ModelRequest) -> None:
        if pending.answer is not None or pending.connection == "local":
            pending.member.in_flight.remove(pending)
            answer = pending.answer or self.perform_locally(pending)
            if isinstance(answer, events.Synced):
                state = pending.member.machine.state
                if isinstance(state, states.InGeneration) and answer.request in state.awaited:
                    generation = state.generation
                    assignor = pending.member.assignors[generation.protocol]
                    assignor.on_assignment(answer.assignment, generation.number)
            self.handle_event(pending.member, answer)
        else:
            self.handle_at_coordinator(pending)

    def perform_locally(self, pending: ModelRequest) -> events.RequestCompleted:
        effect, member = pending.effect, pending.member
        if isinstance(effect, RevokePartitions):
            self.commit_all(member, effect.partitions)
            return events.PartitionsRevoked(effect.request)
        assert isinstance(effect, ComputeAssignment)
        member.known_counts = self.counts_at_assignment = dict(self.partitions)
        subscriptions, unreadable = decode_subscriptions(effect.members)
        assert not unreadable
        assigned = compute_assignments(
            member.assignors[effect.protocol], dict(self.partitions), subscriptions, {}
        )
        return events.AssignmentComputed(effect.request, encode_assignments(assigned))

    # --- the coordinator ---

    def handle_at_coordinator(self, pending: ModelRequest) -> None:
        pending.arrived = True
        effect, member = pending.effect, pending.member
        match effect:
            case FindCoordinator(request):
                pending.answer = events.CoordinatorFound(request, NODE)
                return
            case SendJoin():
                self.created += 1
                protocols = tuple(
                    (
                        each.name,
                        encode_subscription(
                            effect.topics,
                            user_data=each.user_data(effect.topics),
                            owned_partitions=effect.owned,
                            generation_id=effect.generation,
                        ),
                    )
                    for each in member.assignors.values()
                )
                event: broker.Event = broker.Join(
                    reply=pending,
                    member_id=effect.member_id,
                    new_member_id=f"{member.name}-{self.created}",
                    protocol_type="consumer",
                    protocols=protocols,
                    session_timeout_s=45,
                    rebalance_timeout_s=300,
                    instance_id=member.instance_id,
                    requires_known_member_id=True,
                    supports_skipping_assignment=True,
                )
            case SendSync(generation=generation):
                event = broker.Sync(
                    reply=pending,
                    member_id=generation.member_id,
                    generation=generation.number,
                    assignments=effect.assignments,
                    instance_id=member.instance_id,
                    protocol=generation.protocol,
                )
            case SendHeartbeat(generation=generation):
                event = broker.Heartbeat(
                    reply=pending,
                    member_id=generation.member_id,
                    generation=generation.number,
                    instance_id=member.instance_id,
                )
            case SendLeave(member_id=member_id):
                event = broker.Leave(reply=pending, member_id=member_id)
            case _:
                raise AssertionError(effect)
        self.reply(self.group.handle(event, self.now))

    def reply(self, replies: list[broker.GroupReply]) -> None:
        for reply in replies:
            pending, result = reply.to, reply.result
            if isinstance(pending, ModelRequest):
                pending.answer = event_of_result(pending, result)

    def commit_all(self, member: ClassicGroupMember, partitions: Any) -> None:
        generation = member.machine.generation
        if generation is None:
            return
        event = broker.ValidateOffsetCommit(
            reply="commit",
            member_id=generation.member_id,
            generation=generation.number,
            instance_id=member.instance_id,
        )
        replies = self.group.handle(event, self.now)
        accepted = any(reply.to == "commit" and reply.result is ErrorCode.NONE for reply in replies)
        self.reply([reply for reply in replies if reply.to != "commit"])
        for tp in partitions if accepted else ():
            position = member.positions[tp]
            assert position >= self.committed.get(tp, 0), f"{tp} goes back"
            self.committed[tp] = position

    # --- time ---

    @rule(seconds=st.sampled_from([0.2, 1.0, 3.1]))
    def wait(self, seconds: float) -> None:
        self.advance(seconds)

    @precondition(lambda self: self.with_faults)
    @rule(seconds=st.sampled_from([20.0, 46.0, 310.0]))
    def wait_long(self, seconds: float) -> None:
        self.faulty = True
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        late = [x for m in self.alive for x in m.in_flight if self.now - x.sent_at > MAX_DELIVERY_S]
        away = [m for m in self.alive if m.machine.context.poll_timer.deadline < self.now + 100]
        if late or away:
            self.faulty = True
        if self.group.next_deadline() <= self.now:
            self.reply(self.group.handle(broker.GroupDeadlineReached(), self.now))
        for member in self.alive:
            if member.machine.next_deadline() <= self.now:
                self.handle_event(member, events.DeadlineReached())

    # --- the machines ---

    def handle_event(self, member: ClassicGroupMember, event: events.MembershipEvent) -> None:
        if member.ended:
            return
        machine = member.machine
        before = machine.state
        late = isinstance(event, events.RequestCompleted) and event.request not in before.awaited
        effects = machine.handle(event, self.now)
        check_invariants(machine)
        if not late:
            check_step(before, event, effects, machine.state)
        for effect in effects:
            self.perform(member, effect)
        if any(isinstance(effect, EnterGeneration) for effect in effects):
            self.check_partition_counts(member)

    def perform(self, member: ClassicGroupMember, effect: MembershipEffect) -> None:
        connection = CONNECTIONS.get(type(effect))
        if connection is not None:
            member.in_flight.append(ModelRequest(member, effect, connection, self.now))
        elif isinstance(effect, WatchPartitionCounts):
            # A static leader that returns does not know what there was when it left, as in Java.
            self.owes_rebalance |= self.partitions != self.counts_at_assignment
            member.known_counts = dict(self.partitions)
        elif isinstance(effect, AssignPartitions):
            for tp in effect.partitions:
                member.positions[tp] = self.committed.get(tp, 0)
        elif isinstance(effect, LosePartitions):
            assert self.faulty, f"{member.name} lost {effect.partitions}: {effect.reason}"

    # --- what is always so ---

    @invariant()
    def partitions_have_one_owner(self) -> None:
        holders: dict[TopicPartition, str] = {}
        for member in self.members:
            generation = member.machine.generation
            if generation is None or not self.is_current(generation):
                continue
            for tp in member.owned:
                assert holders.setdefault(tp, member.name) == member.name, f"{tp} has two owners"

    def is_current(self, generation: states.Generation) -> bool:
        return (
            generation.number == self.group.generation
            and generation.member_id in self.group.members
        )

    @invariant()
    def no_member_fails(self) -> None:
        for member in self.alive:
            assert not isinstance(member.machine.state, states.JoinFailed), member.machine.error
            if isinstance(member.machine.state, states.Fenced):
                assert self.static
                member.dead = True

    def teardown(self) -> None:
        """Check that the group settles without further faults and owns every partition."""
        for member in self.alive:
            if not member.machine.context.poll_timer.open_polls:
                member.machine.context.poll_timer.start_poll(self.now)
                self.handle_event(member, events.PollStarted())
        for _ in range(3_000):
            if deliverable := self.deliverable():
                self.deliver_next(deliverable[0])
                self.partitions_have_one_owner()
                self.no_member_fails()
            elif self.is_settled() and not self.owes_rebalance:
                break
            elif self.is_settled():
                self.owes_rebalance = False
                for member in self.alive:
                    generation = member.machine.generation
                    if generation is not None and generation.is_leader:
                        self.handle_event(member, events.RejoinRequested("owed"))
            else:
                deadlines = [member.machine.next_deadline() for member in self.alive]
                self.advance(max(min([*deadlines, self.group.next_deadline()]) - self.now, 0.0))
        else:
            states = [type(member.machine.state).__name__ for member in self.alive]
            raise AssertionError(f"no rest: {states}, the group is {self.group.state}")
        owned = sorted(tp for member in self.alive for tp in member.owned)
        readers = [member for member in self.alive if member.machine.context.topics]
        topics = {topic for member in readers for topic in member.topics}
        assert owned == sorted(
            TopicPartition(topic, number)
            for topic in topics
            for number in range(self.partitions[topic])
        )
        if len({member.topics for member in readers}) == 1:
            shares = [len(member.owned) for member in readers]
            assert max(shares) - min(shares) <= len(topics), shares

    def is_settled(self) -> bool:
        """Return whether all members are stable in the group's generation."""
        ids = set()
        for member in self.alive:
            state = member.machine.state
            if (
                not isinstance(state, states.Stable)
                or state.generation.number != self.group.generation
            ):
                return False
            ids.add(state.generation.member_id)
        settled = self.group.state in {
            broker.ClassicGroupState.STABLE,
            broker.ClassicGroupState.EMPTY,
        }
        return settled and ids == set(self.group.members) and not self.group.pending_members


CONNECTIONS: dict[type[MembershipEffect], str] = {
    FindCoordinator: "general",
    SendJoin: "join",
    SendSync: "join",
    SendHeartbeat: "general",
    SendLeave: "general",
    ComputeAssignment: "local",
    RevokePartitions: "local",
}


def event_of_result(pending: ModelRequest, result: broker.Result) -> events.RequestCompleted:
    effect = pending.effect
    if isinstance(effect, SendLeave):
        return events.GroupLeft(effect.request)
    if isinstance(effect, SendHeartbeat):
        assert isinstance(result, ErrorCode)
        return responses.heartbeat_event(effect.request, HeartbeatResponse(error_code=result))
    if isinstance(result, broker.SyncResult):
        sync = SyncGroupResponse(error_code=result.code, assignment=result.assignment)
        return responses.sync_event(effect.request, sync)
    assert isinstance(result, broker.JoinResult)
    join = JoinGroupResponse(
        error_code=result.code,
        generation_id=result.generation,
        protocol_name=result.protocol,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ],
    )
    return responses.join_event(effect.request, join, list(pending.member.assignors))


COOPERATIVE = ("cooperative-sticky",)
BRIDGE = ("cooperative-sticky", "range")
EAGER = ("range",)

MODELS: dict[str, Callable[[], type[GroupModel]]] = {
    "cooperative": lambda: model((COOPERATIVE,)),
    "cooperative without faults": lambda: model((COOPERATIVE,), with_faults=False),
    "eager": lambda: model((EAGER,)),
    "rolling upgrade": lambda: model((BRIDGE, COOPERATIVE)),
    "static": lambda: model((COOPERATIVE,), static=True),
}


def model(strategies: tuple[tuple[str, ...], ...], **attributes: Any) -> type[GroupModel]:
    return type("Model", (GroupModel,), {"strategies": strategies, **attributes})


@pytest.mark.parametrize("kind", MODELS)
def test_a_group_keeps_its_guarantees(kind: str) -> None:
    run_state_machine_as_test(
        MODELS[kind](),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize(
    "state", [states.Rejoining, states.Reassigning, states.Resyncing, states.Revoking]
)
def test_a_static_member_that_closes_in_a_rebalance_leaves_no_partition_without_owner(
    state: type[states.MembershipState],
) -> None:
    group = model((COOPERATIVE,), static=True)()
    group.add_member(0, False, "a")
    group.run_without_faults(steps=200, seed=0)
    group.add_member(0, False, "b")
    closing = group.members[0]
    while not isinstance(closing.machine.state, state):
        group.run_without_faults(steps=1, seed=0)
    group.close(0)
    while not closing.machine.is_closed:
        group.run_without_faults(steps=1, seed=0)
    group.add_member(0, False, "a")
    group.teardown()
    assert not group.faulty
    assert [len(member.owned) for member in group.alive] == [3, 2]


@pytest.mark.parametrize("ends", ["closes", "unsubscribes", "polls, closes"])
def test_a_static_member_that_missed_its_poll_in_a_rebalance_leaves_no_partition_without_owner(
    ends: str,
) -> None:
    group = model((COOPERATIVE,), static=True)()
    group.add_member(0, False, "a")
    group.run_without_faults(steps=200, seed=0)
    member = group.members[0]
    group.start_or_finish_poll(0)
    group.add_member(0, False, "b")
    while not isinstance(member.machine.state, states.PollTimedOut):
        group.run_without_faults(steps=1, seed=0)
    if ends == "unsubscribes":
        group.handle_event(member, events.Unsubscribed())
    elif ends == "polls, closes":
        group.start_or_finish_poll(0)
        while not isinstance(member.machine.state, states.Joining):
            group.run_without_faults(steps=1, seed=0)
    group.close(0)
    while not member.machine.is_closed:
        group.run_without_faults(steps=1, seed=0)
    group.add_member(0, False, "a")
    group.teardown()
    assert [len(member.owned) for member in group.alive] == [3, 2]
