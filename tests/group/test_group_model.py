"""Several membership machines against the broker's own group machine, on a network that may fail.

Requests and answers of a member keep their order on each of its two connections, as on TCP; all
else happens in whatever order Hypothesis likes.
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
from aiokafkawire.group import events, responses, states
from aiokafkawire.group.assignors import Assignor, create_assignors
from aiokafkawire.group.effects import (
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
from aiokafkawire.group.leader import compute_assignments, decode_subscriptions
from aiokafkawire.group.membership_machine import MembershipMachine
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
PATIENCE_S = 40.0
"""What takes longer than this to arrive counts as a fault."""


@dataclass(eq=False)
class Letter:
    """A request on its way to the coordinator, or waiting there, or its answer on its way back."""

    member: ClassicGroupMember
    effect: Any
    lane: str
    sent_at: float
    answer: events.RequestCompleted | None = None
    arrived: bool = False


@dataclass(eq=False)
class ClassicGroupMember:
    """A machine, its application and its side of the network."""

    name: str
    machine: MembershipMachine
    assignors: dict[str, Assignor]
    topics: tuple[str, ...]
    instance_id: str | None
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    dead: bool = False

    @property
    def ended(self) -> bool:
        return self.dead or self.machine.is_closed

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        state = self.machine.state
        return state.assignment if isinstance(state, states.Assigned) else ()


class GroupModel(RuleBasedStateMachine):
    """`strategies` are what members may list as their assignors."""

    strategies: tuple[tuple[str, ...], ...] = ()
    static = False
    bundle_of_faults = True

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.group = ClassicGroup("g")
        self.members: list[ClassicGroupMember] = []
        self.partitions = {"orders": 5, "payments": 2}
        self.committed: dict[TopicPartition, int] = {}
        self.made = 0
        self.faulty = False

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
        self.made += 1
        names = self.strategies[strategy % len(self.strategies)]
        assignors = create_assignors(names)
        instance_id = f"i{self.made % MAX_MEMBERS}" if self.static else None
        config = group_settings(
            cooperative=all(each.cooperative for each in assignors),
            group_instance_id=instance_id,
        )
        member = ClassicGroupMember(
            f"m{self.made}",
            MembershipMachine(config, random.Random(self.made), self.now),
            {each.name: each for each in assignors},
            ("orders", "payments") if both and not self.static else ("orders",),
            instance_id,
        )
        if any(other.instance_id == instance_id for other in self.alive) and self.static:
            self.faulty = True
        member.machine.poll_timer.start_poll(self.now)
        self.members.append(member)
        self.tell(member, events.Subscribed(member.topics))

    def pick(self, number: int) -> ClassicGroupMember:
        return self.alive[number % len(self.alive)]

    @precondition(lambda self: self.alive)
    @rule(number=st.integers(0, 9))
    def close(self, number: int) -> None:
        if len(self.alive) < 2:
            return
        self.tell(self.pick(number), events.CloseRequested(self.now + 30))

    # A static member that comes back with other topics is not enough for a rebalance, in Kafka too.
    @precondition(lambda self: self.alive and not self.static)
    @rule(number=st.integers(0, 9), both=st.booleans())
    def subscribe(self, number: int, both: bool) -> None:
        member = self.pick(number)
        if not member.machine.topics:
            return
        member.topics = ("orders", "payments") if both else ("orders",)
        self.tell(member, events.Subscribed(member.topics))

    @precondition(lambda self: self.alive)
    @rule(number=st.integers(0, 9))
    def call(self, number: int) -> None:
        """The application comes back for more, or goes to work."""
        member = self.pick(number)
        poll_timer = member.machine.poll_timer
        if poll_timer.open_polls:
            poll_timer.finish_poll(self.now)
        else:
            poll_timer.start_poll(self.now)
            self.tell(member, events.PollStarted())

    @precondition(lambda self: self.alive)
    @rule(number=st.integers(0, 9))
    def work(self, number: int) -> None:
        member = self.pick(number)
        for tp in member.owned:
            member.positions[tp] += 1

    @precondition(lambda self: self.alive)
    @rule(number=st.integers(0, 9))
    def commit(self, number: int) -> None:
        member = self.pick(number)
        self.commit_all(member, member.owned)

    @precondition(lambda self: self.bundle_of_faults and self.alive)
    @rule(number=st.integers(0, 9))
    def kill(self, number: int) -> None:
        self.faulty = True
        self.pick(number).dead = True

    @precondition(lambda self: self.alive)
    @rule()
    def grow(self) -> None:
        if self.partitions["orders"] < 8:
            self.partitions["orders"] += 1
            for member in self.alive:
                self.look_after(member)

    def look_after(self, member: ClassicGroupMember) -> None:
        """A leader sees what `Leader.outdated` tells."""
        generation = member.machine.generation
        is_leader = generation is not None and generation.is_leader
        settled = isinstance(member.machine.state, states.Stable)
        if is_leader and settled and member.counted != self.partitions:
            self.tell(member, events.RejoinRequested("grown"))

    # --- the network ---

    def heads(self) -> list[Letter]:
        """What may arrive next: the first of each connection, and all that is local."""
        found: list[Letter] = []
        for member in self.members:
            lanes: dict[str, None] = {}
            for letter in member.letters:
                is_waiting = letter.arrived and letter.answer is None
                if letter.lane == "local" or letter.lane not in lanes:
                    lanes[letter.lane] = None
                    if not is_waiting:
                        found.append(letter)
        return found

    @precondition(lambda self: self.heads())
    @rule(number=st.integers(0, 99))
    def deliver(self, number: int) -> None:
        heads = self.heads()
        self.arrive(heads[number % len(heads)])

    @rule(steps=st.sampled_from([3, 10, 10, 200, 200]), seed=st.integers(0, 7))
    def go_on(self, steps: int, seed: int) -> None:
        """A while without faults."""
        order = random.Random(seed)
        for _ in range(steps):
            if heads := self.heads():
                self.arrive(order.choice(heads))
                self.nobody_else_may_commit()
            elif self.at_rest() or not self.alive:
                break
            else:
                deadlines = [member.machine.next_deadline() for member in self.alive]
                next_deadline = min([*deadlines, self.group.next_deadline()])
                self.advance(min(max(next_deadline - self.now, 0.0), 3.1))

    @precondition(lambda self: self.bundle_of_faults and any(m.letters for m in self.alive))
    @rule(number=st.integers(0, 99), carried_out=st.booleans())
    def lose(self, number: int, carried_out: bool) -> None:
        """A connection breaks: nothing that is on it is answered."""
        self.faulty = True
        remote = [x for m in self.alive for x in m.letters if x.lane != "local"]
        if not remote:
            return
        first = remote[number % len(remote)]
        lost = [x for x in first.member.letters if x.lane == first.lane]
        for letter in lost:
            if carried_out and not letter.arrived and not letter.member.ended:
                self.carry_out(letter)
        for letter in lost:
            first.member.letters.remove(letter)
        for letter in lost:
            request = letter.effect.request
            if isinstance(letter.effect, FindCoordinator):
                self.tell(first.member, events.CoordinatorNotFound(request))
            elif isinstance(letter.effect, SendLeave):
                self.tell(first.member, events.GroupLeft(request))
            else:
                self.tell(first.member, responses.failure_event(request, LOST))

    @precondition(lambda self: self.bundle_of_faults)
    @rule()
    def move_coordinator(self) -> None:
        self.faulty = True
        self.reply(self.group.handle(broker.CoordinatorChanged(loaded_at=self.now), self.now))

    def arrive(self, letter: Letter) -> None:
        if letter.answer is not None or letter.lane == "local":
            letter.member.letters.remove(letter)
            answer = letter.answer or self.locally(letter)
            if isinstance(answer, events.Synced):
                state = letter.member.machine.state
                if isinstance(state, states.InGeneration) and answer.request in state.awaited:
                    generation = state.generation
                    assignor = letter.member.assignors[generation.protocol]
                    assignor.on_assignment(answer.assignment, generation.number)
            self.tell(letter.member, answer)
        else:
            self.carry_out(letter)

    def locally(self, letter: Letter) -> events.RequestCompleted:
        effect, member = letter.effect, letter.member
        if isinstance(effect, RevokePartitions):
            self.commit_all(member, effect.partitions)
            return events.PartitionsRevoked(effect.request)
        assert isinstance(effect, ComputeAssignment)
        member.counted = dict(self.partitions)
        subscriptions, unreadable = decode_subscriptions(effect.members)
        assert not unreadable
        assigned = compute_assignments(
            member.assignors[effect.protocol], dict(self.partitions), subscriptions, {}
        )
        return events.AssignmentComputed(effect.request, assigned)

    # --- the coordinator ---

    def carry_out(self, letter: Letter) -> None:
        letter.arrived = True
        effect, member = letter.effect, letter.member
        match effect:
            case FindCoordinator(request):
                letter.answer = events.CoordinatorFound(request, NODE)
                return
            case SendJoin():
                self.made += 1
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
                    reply=letter,
                    member_id=effect.member_id,
                    new_member_id=f"{member.name}-{self.made}",
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
                    reply=letter,
                    member_id=generation.member_id,
                    generation=generation.number,
                    assignments=effect.assignments,
                    instance_id=member.instance_id,
                    protocol=generation.protocol,
                )
            case SendHeartbeat(generation=generation):
                event = broker.Heartbeat(
                    reply=letter,
                    member_id=generation.member_id,
                    generation=generation.number,
                    instance_id=member.instance_id,
                )
            case SendLeave(member_id=member_id):
                event = broker.Leave(reply=letter, member_id=member_id)
            case _:
                raise AssertionError(effect)
        self.reply(self.group.handle(event, self.now))

    def reply(self, replies: list[broker.GroupReply]) -> None:
        for reply in replies:
            letter, result = reply.to, reply.result
            if isinstance(letter, Letter):
                letter.answer = answer_of(letter, result)

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

    @precondition(lambda self: self.bundle_of_faults)
    @rule(seconds=st.sampled_from([20.0, 46.0, 310.0]))
    def wait_long(self, seconds: float) -> None:
        self.faulty = True
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        late = [x for m in self.alive for x in m.letters if self.now - x.sent_at > PATIENCE_S]
        away = [m for m in self.alive if m.machine.poll_timer.deadline < self.now + 100]
        if late or away:
            self.faulty = True
        if self.group.next_deadline() <= self.now:
            self.reply(self.group.handle(broker.GroupDeadlineReached(), self.now))
        for member in self.alive:
            if member.machine.next_deadline() <= self.now:
                self.tell(member, events.DeadlineReached())

    # --- the machines ---

    def tell(self, member: ClassicGroupMember, event: events.MembershipEvent) -> None:
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
            self.look_after(member)

    def perform(self, member: ClassicGroupMember, effect: MembershipEffect) -> None:
        lane = LANES.get(type(effect))
        if lane is not None:
            member.letters.append(Letter(member, effect, lane, self.now))
        elif isinstance(effect, WatchPartitionCounts):
            member.counted = dict(self.partitions)
        elif isinstance(effect, AssignPartitions):
            for tp in effect.partitions:
                member.positions[tp] = self.committed.get(tp, 0)
        elif isinstance(effect, LosePartitions):
            assert self.faulty, f"{member.name} lost {effect.partitions}: {effect.reason}"

    # --- what is always so ---

    @invariant()
    def nobody_else_may_commit(self) -> None:
        holders: dict[TopicPartition, str] = {}
        for member in self.members:
            generation = member.machine.generation
            if generation is None or not self.in_charge(generation):
                continue
            for tp in member.owned:
                assert holders.setdefault(tp, member.name) == member.name, f"{tp} has two owners"

    def in_charge(self, generation: states.Generation) -> bool:
        return (
            generation.number == self.group.generation
            and generation.member_id in self.group.members
        )

    @invariant()
    def nobody_fails(self) -> None:
        for member in self.alive:
            assert not isinstance(member.machine.state, states.JoinFailed), member.machine.error
            if isinstance(member.machine.state, states.Fenced):
                assert self.static
                member.dead = True

    def teardown(self) -> None:
        """Without further faults the group comes to rest, and every partition has its owner."""
        for member in self.alive:
            if not member.machine.poll_timer.open_polls:
                member.machine.poll_timer.start_poll(self.now)
                self.tell(member, events.PollStarted())
        for _ in range(3_000):
            if heads := self.heads():
                self.arrive(heads[0])
                self.nobody_else_may_commit()
                self.nobody_fails()
            elif self.at_rest():
                break
            else:
                deadlines = [member.machine.next_deadline() for member in self.alive]
                self.advance(max(min([*deadlines, self.group.next_deadline()]) - self.now, 0.0))
        else:
            states = [type(member.machine.state).__name__ for member in self.alive]
            raise AssertionError(f"no rest: {states}, the group is {self.group.state}")
        owned = sorted(tp for member in self.alive for tp in member.owned)
        readers = [member for member in self.alive if member.machine.topics]
        topics = {topic for member in readers for topic in member.topics}
        assert owned == sorted(
            TopicPartition(topic, number)
            for topic in topics
            for number in range(self.partitions[topic])
        )
        if len({member.topics for member in readers}) == 1:
            shares = [len(member.owned) for member in readers]
            assert max(shares) - min(shares) <= len(topics), shares

    def at_rest(self) -> bool:
        """Whether all are stable in the group's one generation, and agree on who there is."""
        ids = set()
        for member in self.alive:
            state = member.machine.state
            if (
                not isinstance(state, states.Stable)
                or state.generation.number != self.group.generation
            ):
                return False
            ids.add(state.generation.member_id)
        settled = self.group.state in {broker.GroupState.STABLE, broker.GroupState.EMPTY}
        return settled and ids == set(self.group.members) and not self.group.pending_members


LANES: dict[type[MembershipEffect], str] = {
    FindCoordinator: "general",
    SendJoin: "join",
    SendSync: "join",
    SendHeartbeat: "general",
    SendLeave: "general",
    ComputeAssignment: "local",
    RevokePartitions: "local",
}


def answer_of(letter: Letter, result: broker.Result) -> events.RequestCompleted:
    effect = letter.effect
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
    return responses.join_event(effect.request, join, list(letter.member.assignors))


COOPERATIVE = ("cooperative-sticky",)
BRIDGE = ("cooperative-sticky", "range")
EAGER = ("range",)

KINDS: dict[str, Callable[[], type[GroupModel]]] = {
    "cooperative": lambda: model((COOPERATIVE,)),
    "cooperative without faults": lambda: model((COOPERATIVE,), bundle_of_faults=False),
    "eager": lambda: model((EAGER,)),
    "rolling upgrade": lambda: model((BRIDGE, COOPERATIVE)),
    "static": lambda: model((COOPERATIVE,), static=True),
}


def model(strategies: tuple[tuple[str, ...], ...], **attributes: Any) -> type[GroupModel]:
    return type("Model", (GroupModel,), {"strategies": strategies, **attributes})


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_keeps_its_promises(kind: str) -> None:
    run_state_machine_as_test(
        KINDS[kind](),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
