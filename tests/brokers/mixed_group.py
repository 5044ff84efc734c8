"""Random conversations of groups with members of both protocols, at two coordinators."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    flatten_by_topic,
)
from aiokafkawire.wire.messages import describe_groups, heartbeat, join_group, leave_group
from aiokafkawire.wire.messages import sync_group as sync
from tests.brokers.group_side import Side

Partition = tuple[str, int]

CLASSIC = ("c1", "c2", "c3", "c4")
CONSUMER = ("n1", "n2", "n3")
STATIC = {"c4": "inst-1", "n3": "inst-1"}
"""Members of one instance id: one takes over from the other."""

REJOIN = {ErrorCode.REBALANCE_IN_PROGRESS}
LOST = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
}
SETTLE_S, ANSWER_S = 0.02, 10.0
LOGGED_LINES = 24
"""Lines of a conversation that a failed comparison shows."""


def short(request: Any) -> str:
    """Return the fields of a request that matter here."""
    if isinstance(request, join_group.JoinGroupRequest):
        return f"{request.member_id} {decode_subscription(request.protocols[0].metadata)}"
    return str(request)


@dataclass(slots=True)
class Member:
    """Latest state of a member, the same at both coordinators."""

    name: str
    member_id: str = ""
    epoch: int = 0
    protocol: str = ""
    leads: Sequence[Any] = ()
    next: str = "join"
    owned: list[Partition] = field(default_factory=list)

    def forget(self, *, keeps_id: bool = False) -> None:
        self.member_id = self.member_id if keeps_id else ""
        self.epoch, self.next, self.owned, self.leads = 0, "join", [], ()


def _is_other_order(expected: Any, found: Any) -> bool:
    """Return True if two descriptions of a consumer group differ in their targets."""
    (state, epochs, assignor, members), ours = expected[1], found[1]
    return (
        expected[0] == found[0]
        and (state, epochs, assignor) == ours[:3]
        and [each[:2] for each in members] == [each[:2] for each in ours[3]]
        and [each[3] for each in members] != [each[3] for each in ours[3]]
    )


class Conversation:
    """Sends each request to both coordinators; `run` fails at the first other response.

    Assignments with equal balance depend on the order of Kafka's maps. It is not known for each
    sequence of joins: where only the target differs, `run` ends and `has_other_order` is set.
    """

    def __init__(
        self, real: Side, ours: Side, broker: Broker, group: str, rng: random.Random
    ) -> None:
        self._sides = {"real": real, "ours": ours}
        self._topics = sorted(real.topics)
        self._coordinator: Any = broker._running.group_coordinator
        self._group, self._rng = group, rng
        self._cooperative = rng.random() < 0.7
        self._members = {name: Member(name) for name in (*CLASSIC, *CONSUMER)}
        self._waiting: dict[str, str] = {}
        self._answers: dict[str, dict[str, Any]] = {"real": {}, "ours": {}}
        self._answered = anyio.Event()
        self.compared = 0
        self.has_other_order = False
        self._log: list[str] = []

    async def run(self, steps: int) -> int:
        """Take random steps; return the number of equal responses."""
        async with anyio.create_task_group() as tasks:
            for _ in range(steps):
                idle = [each for each in self._members.values() if each.name not in self._waiting]
                if not idle:
                    break
                await self._step(tasks, self._rng.choice(idle))
                if self.has_other_order:
                    break
            tasks.cancel_scope.cancel()
        return self.compared

    # --- steps -------------------------------------------------------------------------------

    async def _step(self, tasks: TaskGroup, member: Member) -> None:
        action = self._rng.random()
        if member.name in CONSUMER:
            kind, request, version = self._consumer_request(member, action)
        else:
            kind, request, version = self._classic_request(member, action)
        self._log.append(f"{member.name} {kind} {short(request)}")
        self._waiting[member.name] = kind
        tasks.start_soon(self._call, "real", member.name, request, version)
        if kind == "join" and member.name in CLASSIC and not member.member_id:
            self._use_id(await self._made_id(member.name))
        tasks.start_soon(self._call, "ours", member.name, request, version)
        plain = await self._settle()
        expected, found = await self._describe("real"), await self._describe("ours")
        self._log.append(f"  == {found}")
        self.has_other_order = _is_other_order(expected, found)
        if self.has_other_order:
            return
        assert plain["ours"] == plain["real"], self._difference(plain["real"], plain["ours"])
        assert found == expected, self._difference(expected, found)
        self.compared += len(found)
        if expected[-1][0] == "Empty":
            # A join with an unknown member id would replace the group before that is committed.
            for name in CLASSIC:
                self._members[name].forget()

    async def _call(self, side: str, name: str, request: Any, version: int) -> None:
        connection = await self._sides[side].connection(name)
        self._answers[side][name] = await connection.call(request, version)
        self._answered.set()

    async def _settle(self) -> dict[str, Any]:
        """Wait for the responses that are due; return those of both coordinators."""
        await anyio.sleep(SETTLE_S)
        await self._describe("ours")
        with anyio.move_on_after(ANSWER_S):
            while self._answers["ours"].keys() - self._answers["real"].keys():
                self._answered = anyio.Event()
                await self._answered.wait()
        expected, found = self._answers["real"], self._answers["ours"]
        kinds = {name: self._waiting[name] for name in {**expected, **found}}
        self._answers = {"real": {}, "ours": {}}
        plain = {
            side: {name: self._plain(side, kinds[name], answer) for name, answer in answers.items()}
            for side, answers in (("real", expected), ("ours", found))
        }
        self._log.append(f"  <- {plain['real']}")
        self.compared += len(found)
        for name, answer in found.items():
            del self._waiting[name]
            self._learn(self._members[name], kinds[name], answer)
        return plain

    def _difference(self, expected: Any, found: Any) -> str:
        lines = "\n".join(self._log[-LOGGED_LINES:])
        return f"{self._group}\n{lines}\nreal: {expected}\nours: {found}"

    async def _made_id(self, name: str) -> str:
        """Return the member id that real Kafka makes for a joining member."""
        with anyio.fail_after(ANSWER_S):
            while True:
                answer = self._answers["real"].get(name)
                if answer is not None:
                    return str(answer.member_id)
                [group] = (await self._describe_classic("real", 5)).groups
                instance = STATIC.get(name)
                for each in group.members:
                    is_it = (
                        each.group_instance_id == instance
                        if instance
                        else each.client_id == f"lab-{name}"
                    )
                    known = {member.member_id for member in self._members.values()}
                    if is_it and each.member_id not in known:
                        return str(each.member_id)
                await anyio.sleep(SETTLE_S / 4)

    def _use_id(self, member_id: str) -> None:
        self._coordinator.member_id = lambda prefix: member_id
        self._coordinator.new_member_id = lambda: member_id

    # --- requests ----------------------------------------------------------------------------

    def _classic_request(self, member: Member, action: float) -> tuple[str, Any, int]:
        instance = STATIC.get(member.name)
        kind = member.next
        if action < 0.1 and member.member_id:
            kind = "leave"
        elif action < 0.2 and member.member_id:
            kind = self._rng.choice(("join", "sync", "heartbeat"))
        if kind == "join":
            return kind, self._join(member), self._rng.choice((5, 9))
        if kind == "sync":
            request = sync.SyncGroupRequest(
                group_id=self._group,
                generation_id=member.epoch,
                member_id=member.member_id,
                group_instance_id=instance,
                protocol_type="consumer",
                protocol_name=member.protocol or "range",
                assignments=self._assign(member.leads),
            )
            return kind, request, 5
        if kind == "leave":
            who = leave_group.MemberIdentity(member_id=member.member_id, group_instance_id=instance)
            return kind, leave_group.LeaveGroupRequest(group_id=self._group, members=[who]), 5
        request = heartbeat.HeartbeatRequest(
            group_id=self._group,
            generation_id=member.epoch,
            member_id=member.member_id,
            group_instance_id=instance,
        )
        return "heartbeat", request, 4

    def _join(self, member: Member) -> Any:
        topics = self._topics
        if self._rng.random() < 0.2:
            topics = sorted(self._rng.sample(topics, self._rng.randint(1, len(topics))))
        cooperative = self._cooperative
        owned = member.owned if cooperative else ()
        metadata = encode_subscription(
            topics, owned_partitions=owned, generation_id=member.epoch or -1
        )
        names = ["cooperative-sticky"] if cooperative else ["range", "roundrobin"]
        return join_group.JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=member.member_id,
            group_instance_id=STATIC.get(member.name),
            protocol_type="consumer",
            protocols=[
                join_group.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names
            ],
        )

    def _assign(self, members: Sequence[Any]) -> list[sync.SyncGroupRequestAssignment]:
        """Assign partitions in turn; a cooperative leader waits for those that others own."""
        subscribed = {each.member_id: decode_subscription(each.metadata) for each in members}
        owner = {
            (tp.topic, tp.partition): member_id
            for member_id, each in subscribed.items()
            for tp in flatten_by_topic(each.owned_partitions)
        }
        given: dict[str, list[Partition]] = {member_id: [] for member_id in subscribed}
        for number, partition in enumerate(self._partitions()):
            takers = [key for key, each in subscribed.items() if partition[0] in each.topics]
            if takers:
                taker = takers[number % len(takers)]
                if owner.get(partition, taker) == taker:
                    given[taker].append(partition)
        return [
            sync.SyncGroupRequestAssignment(
                member_id=member_id, assignment=encode_assignment(partitions)
            )
            for member_id, partitions in given.items()
        ]

    def _partitions(self) -> Iterable[Partition]:
        topics = self._sides["real"].topics
        return [(name, number) for name in self._topics for number in range(topics[name])]

    def _consumer_request(self, member: Member, action: float) -> tuple[str, Any, int]:
        fields: dict[str, Any] = {}
        if member.name in STATIC:
            fields["instance_id"] = STATIC[member.name]
        epoch, owned = member.epoch, self._by_topic(member.owned)
        if member.next == "join" or action < 0.05:
            names = sorted(self._rng.sample(self._topics, self._rng.randint(1, len(self._topics))))
            epoch, owned = 0, {}
            fields |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": names}
        elif action < 0.2:
            epoch = -2 if member.name in STATIC and action < 0.12 else -1
        elif action < 0.3:
            return self._heartbeat(member.name, epoch, None, fields)
        return self._heartbeat(member.name, epoch, owned, fields)

    def _heartbeat(
        self, name: str, epoch: int, owned: Any, fields: Mapping[str, Any]
    ) -> tuple[str, Any, int]:
        request = self._sides["real"].heartbeat_request(self._group, name, epoch, owned, **fields)
        return "leave" if epoch < 0 else "consumer heartbeat", request, 1

    @staticmethod
    def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
        by_topic: dict[str, list[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append(number)
        return by_topic

    # --- responses ---------------------------------------------------------------------------

    def _plain(self, side: str, kind: str, answer: Any) -> Any:
        if hasattr(answer, "member_epoch"):
            return self._sides[side].plain_heartbeat(answer)
        if kind == "join":
            members = [(each.member_id, bytes(each.metadata)) for each in answer.members]
            protocol = answer.protocol_type, answer.protocol_name, answer.skip_assignment
            return (
                ErrorCode(answer.error_code),
                answer.generation_id,
                answer.member_id,
                answer.leader,
                protocol,
                sorted(members),
            )
        if kind == "sync":
            found = flatten_by_topic(decode_assignment(answer.assignment).assigned_partitions)
            return ErrorCode(answer.error_code), sorted((tp.topic, tp.partition) for tp in found)
        codes = [each.error_code for each in getattr(answer, "members", [])]
        return ErrorCode(answer.error_code), codes

    def _learn(self, member: Member, kind: str, answer: Any) -> None:
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = answer.member_id
        elif kind == "leave" or code in LOST:
            member.forget(keeps_id=code is ErrorCode.ILLEGAL_GENERATION)
        elif code in REJOIN:
            member.next = "join"
        elif not code and hasattr(answer, "member_epoch"):
            member.epoch, member.next = answer.member_epoch, "heartbeat"
            if answer.assignment is not None:
                given = self._sides["ours"].plain_heartbeat(answer)[-1]
                member.owned = [(topic, each) for topic, parts in given.items() for each in parts]
        elif not code and kind == "join":
            member.member_id, member.epoch = answer.member_id, answer.generation_id
            member.protocol, member.leads, member.next = (
                answer.protocol_name,
                answer.members,
                "sync",
            )
        elif not code and kind == "sync":
            found = flatten_by_topic(decode_assignment(answer.assignment).assigned_partitions)
            member.owned = sorted((tp.topic, tp.partition) for tp in found)
            member.next = "heartbeat"

    # --- descriptions ------------------------------------------------------------------------

    async def _describe_classic(self, side: str, version: int) -> Any:
        request = describe_groups.DescribeGroupsRequest(groups=[self._group])
        return await (await self._sides[side].connection()).call(request, version)

    async def _describe(self, side: str) -> tuple[Any, ...]:
        """Return the group as both kinds of description show it."""
        [group] = (await self._describe_classic(side, 6)).groups
        classic = sorted(
            (
                each.member_id,
                each.group_instance_id,
                sorted(
                    flatten_by_topic(decode_assignment(each.member_assignment).assigned_partitions)
                ),
            )
            for each in group.members
        )
        seen = await self._sides[side].describe(self._group)
        return (group.error_code, group.group_state, group.protocol_data, classic), seen
