"""The group member at work: carries out what the membership machine asks for."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import anyio

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.cluster.routing import Coordinator, CoordinatorType, Node
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.connection import ByVersion
from aiokafkawire.errors import GroupFailed, KafkaError, ProtocolError
from aiokafkawire.runtime import Host, Runtime, Signal, wait_until
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode, Request, Response
from aiokafkawire.wire.consumer_protocol import encode_assignment, encode_subscription
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest
from aiokafkawire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiokafkawire.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from aiokafkawire.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from . import answers
from . import effects as do
from . import events as on
from . import states as s
from .assignors import Assignor, MemberSubscription
from .membership import GroupSettings, Membership
from .offsets import Credentials

__all__ = ("JOIN_SLACK_S", "GroupMember", "PartitionOwner", "replica_racks", "settings_of")

logger = logging.getLogger("aiokafkawire.group")

JOIN_SLACK_S = 5.0
"""How long after the rebalance timeout an answer to JoinGroup or SyncGroup may still come."""

PROTOCOL_TYPE = "consumer"

FIRST_WITH_STATIC_MEMBERS: Mapping[ApiKey, int] = {
    ApiKey.JOIN_GROUP: 5,
    ApiKey.SYNC_GROUP: 3,
    ApiKey.HEARTBEAT: 3,
}
FIRST_WITH_MEMBERS_TO_LEAVE = 3

R = TypeVar("R", bound=Response)


class PartitionOwner(Protocol):
    """Who uses the partitions of a member: the consumer. All but `revoke` return at once."""

    def assign(self, partitions: s.Assignment, generation: s.Generation) -> None: ...

    def withdraw(self, partitions: s.Assignment) -> None:
        """Give the application nothing of them any more; `revoke` follows."""
        ...

    async def revoke(self, partitions: s.Assignment) -> None:
        """Call back, commit, give the partitions up. Bounded; does not raise."""
        ...

    def lose(self, partitions: s.Assignment, reason: str) -> None: ...

    def interrupt(self) -> None:
        """A revocation is due: the next call of the application must reach `entered`."""
        ...

    def heard(self, failure: KafkaError | None) -> None:
        """The coordinator answered, or could not be reached."""
        ...

    def changed(self) -> None:
        """The state may be another one now; `GroupMember.error` says if it is the end."""
        ...


def settings_of(config: ConsumerConfig) -> GroupSettings:
    """What of a consumer's options concerns its membership."""
    return GroupSettings(
        group_instance_id=config.group_instance_id,
        session_timeout_ms=config.effective_session_timeout_ms,
        session_timeout_is_default=config.session_timeout_ms is None,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        request_timeout_ms=config.request_timeout_ms,
    )


def topics_of(members: Sequence[MemberSubscription]) -> list[str]:
    """All topics that some member subscribes to, sorted."""
    return sorted({topic for member in members for topic in member.topics})


def replica_racks(
    metadata: MetadataSnapshot, topics: Iterable[str]
) -> dict[TopicPartition, tuple[str, ...]]:
    """The racks of the replicas of each partition of these topics; empty if none is known."""
    racks = {id: node.rack for id, node in metadata.nodes.items() if node.rack}
    if not racks:
        return {}
    return {
        TopicPartition(topic, number): tuple(
            dict.fromkeys(racks[node] for node in partition.replicas if node in racks)
        )
        for topic in topics
        if topic in metadata.topics
        for number, partition in metadata.topics[topic].partitions.items()
    }


class GroupMember:
    """One membership. Methods that are not async may be called from any task of the consumer."""

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        host: Host,
        config: ConsumerConfig,
        *,
        assignors: Sequence[Assignor],
        owner: PartitionOwner,
    ) -> None:
        assert config.group_id is not None
        self.group_id = config.group_id
        self._cluster = cluster
        self._clock = runtime.clock
        self._host = host
        self._config = config
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._owner = owner
        self._machine = Membership(settings_of(config), runtime.rng, self._clock.now())
        self._events: deque[on.Event] = deque()
        self._handling = False
        self._deadline_moved = Signal()
        self._closed = anyio.Event()
        self._counts: dict[str, int] = {}

    # --- what the consumer says and asks ---

    @property
    def state(self) -> s.State:
        return self._machine.state

    @property
    def error(self) -> KafkaError | None:
        """Why this member will own nothing any more, if so."""
        return self._machine.error

    @property
    def topics(self) -> tuple[str, ...]:
        """What was last subscribed to."""
        return self._machine.topics

    @property
    def settled(self) -> bool:
        """Whether no rebalance is under way."""
        return isinstance(self._machine.state, s.Stable)

    @property
    def away(self) -> bool:
        """Whether this is no member, and on no way to become one."""
        return isinstance(self._machine.state, s.Unjoined | s.Closed)

    def credentials(self) -> Credentials | None:
        """As whom to commit at present; None while no partitions are owned."""
        generation = self._machine.generation
        if generation is None:
            return None
        return Credentials(generation.number, generation.member_id, self._config.group_instance_id)

    @property
    def generation(self) -> s.Generation | None:
        return self._machine.generation

    def subscribe(self, topics: Collection[str]) -> None:
        """Join for these topics, or again if they are others than before; none means leaving."""
        if topics:
            self._post(on.Subscribed(tuple(sorted(topics))))
        else:
            self._post(on.Unsubscribed())

    def entered(self) -> None:
        """The application called, and waits; what it was given before counts as processed."""
        self._machine.presence.enter(self._clock.now())
        self._post(on.ApplicationEntered())

    def left(self) -> None:
        """The application's call returns."""
        # The next heartbeat looks at the deadline that this sets.
        self._machine.presence.leave(self._clock.now())

    def touched(self) -> None:
        """The application called, and was answered from what is there."""
        self._machine.presence.last_call = self._clock.now()

    def doubt(self) -> None:
        """A commit was refused."""
        self._post(on.Doubted())

    def metadata_changed(self) -> None:
        """If this member leads, the group joins again when partitions were added."""
        generation = self._machine.generation
        if generation is None or not generation.leads or not self.settled:
            return
        metadata = self._cluster.metadata
        for topic, count in self._counts.items():
            now = len(metadata.partitions(topic))
            gone = metadata.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if now != count and (now or gone):
                self._post(on.Rejoin(f"topic {topic!r} has {now} partitions, not {count}"))
                return

    async def close(self, deadline: float) -> bool:
        """Revoke, leave, and wait for it; False if the deadline came first."""
        self._post(on.Closing(deadline))
        return await wait_until(self._closed, deadline)

    async def run(self) -> None:
        """Wake the machine when a deadline comes, for ever."""
        while not self._machine.done:
            if not await self._deadline_moved.wait(self._machine.next_deadline()):
                self._post(on.Tick())

    # --- the machine ---

    def _post(self, event: on.Event) -> None:
        """Handle an event and all that follow from it, in their order."""
        if self._machine.done:
            return
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        before = self._machine.state
        try:
            while self._events and not self._machine.done:
                for effect in self._machine.handle(self._events.popleft(), self._clock.now()):
                    self._perform(effect)
        finally:
            self._handling = False
        if isinstance(self._machine.state, s.Closed):
            self._forget_counts()
            self._closed.set()
        if self._machine.state is not before:
            self._deadline_moved.set()
            self._owner.changed()

    def _perform(self, effect: do.Effect) -> None:
        match effect:
            case do.FindCoordinator(request):
                self._start("find-coordinator", self._find(request))
            case do.ForgetCoordinator():
                self._cluster.coordinator_failed(self.group_id, CoordinatorType.GROUP)
            case do.SendJoin():
                self._start("join", self._join(effect))
            case do.MakeAssignment():
                self._start("assign", self._make_assignment(effect))
            case do.WatchPartitions(members):
                self._watch_later(members)
            case do.SendSync():
                self._start("sync", self._sync(effect))
            case do.SendHeartbeat():
                self._start("heartbeat", self._beat(effect))
            case do.SendLeave():
                self._start("leave", self._leave(effect))
            case do.RevokePartitions(request, partitions):
                self._forget_counts()
                self._owner.withdraw(partitions)
                self._start("revoke", self._revoke(request, partitions))
            case do.LosePartitions(partitions, reason):
                self._forget_counts()
                self._owner.lose(partitions, reason)
            case do.AssignPartitions(partitions, generation):
                self._log(f"generation {generation.number}: {len(partitions)} partitions")
                self._owner.assign(partitions, generation)
                self.metadata_changed()
            case do.Interrupt():
                self._owner.interrupt()
            case do.Note(text, warning):
                self._log(text, logging.WARNING if warning else logging.INFO)

    def _log(self, text: str, level: int = logging.INFO) -> None:
        logger.log(level, "group %s: %s", self.group_id, text)

    def _start(self, name: str, work: Callable[[], Awaitable[on.Event]]) -> None:
        async def run() -> None:
            self._post(await work())

        if self._host.running:
            self._host.spawn(run, name=name)

    def _ask(
        self,
        request: int,
        node: NodeId,
        message: Request[R],
        deadline: float,
        read: Callable[[R, str], on.Answer],
    ) -> Callable[[], Awaitable[on.Answer]]:
        min_version = 0
        if self._config.group_instance_id is not None:
            min_version = FIRST_WITH_STATIC_MEMBERS[ApiKey(message.api_key)]

        async def ask() -> on.Answer:
            try:
                response = await self._cluster.request(
                    message, to=Node(node), deadline=deadline, retry=False, min_version=min_version
                )
            except KafkaError as error:
                self._owner.heard(error)
                return answers.failure(request, error)
            self._owner.heard(None)
            return read(response, str(node))

        return ask

    # --- requests ---

    def _find(self, request: int) -> Callable[[], Awaitable[on.Answer]]:
        deadline = self._clock.now() + self._config.request_timeout_ms / 1000

        async def find() -> on.Answer:
            try:
                node = await self._cluster.coordinator(
                    self.group_id, CoordinatorType.GROUP, deadline=deadline
                )
            except KafkaError as error:
                self._owner.heard(error)
                if error.retriable or isinstance(error, ProtocolError):
                    return on.CoordinatorMissing(request)
                return on.Refused(request, error)
            return on.CoordinatorFound(request, node)

        return find

    def _rebalance_deadline(self) -> float:
        return self._clock.now() + self._config.max_poll_interval_ms / 1000 + JOIN_SLACK_S

    def _join(self, effect: do.SendJoin) -> Callable[[], Awaitable[on.Answer]]:
        protocols = [
            JoinGroupRequestProtocol(
                name=assignor.name,
                metadata=encode_subscription(
                    effect.topics,
                    user_data=assignor.user_data(effect.topics),
                    rack_id=self._config.client_rack or None,
                ),
            )
            for assignor in self._assignors.values()
        ]
        message = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=effect.session_timeout_ms,
            rebalance_timeout_ms=self._config.max_poll_interval_ms,
            member_id=effect.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
        )
        return self._ask(
            effect.request,
            effect.node,
            message,
            self._rebalance_deadline(),
            lambda response, broker: answers.join_answer(
                effect.request, response, self._assignors, broker
            ),
        )

    def _sync(self, effect: do.SendSync) -> Callable[[], Awaitable[on.Answer]]:
        message = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=effect.generation.number,
            member_id=effect.generation.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=effect.generation.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in effect.assignments.items()
            ],
        )
        return self._ask(
            effect.request,
            effect.node,
            message,
            self._rebalance_deadline(),
            lambda response, broker: self._tell_assignor(
                effect, answers.sync_answer(effect.request, response, broker)
            ),
        )

    def _tell_assignor(self, effect: do.SendSync, answer: on.Answer) -> on.Answer:
        if isinstance(answer, on.Synced):
            generation = effect.generation
            try:
                self._assignors[generation.protocol].assigned(answer.assignment, generation.number)
            except Exception as error:
                failed = GroupFailed(f"the assignor {generation.protocol!r} failed: {error!r}")
                failed.__cause__ = error
                return on.Refused(effect.request, failed)
        return answer

    def _beat(self, effect: do.SendHeartbeat) -> Callable[[], Awaitable[on.Answer]]:
        message = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=effect.generation.number,
            member_id=effect.generation.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        timeout_s = self._config.request_timeout_ms / 1000
        return self._ask(
            effect.request,
            effect.node,
            message,
            min(effect.deadline, self._clock.now() + timeout_s),
            lambda response, broker: answers.heartbeat_answer(effect.request, response, broker),
        )

    def _leave(self, effect: do.SendLeave) -> Callable[[], Awaitable[on.Answer]]:
        def build(version: int) -> LeaveGroupRequest:
            if version < FIRST_WITH_MEMBERS_TO_LEAVE:
                return LeaveGroupRequest(group_id=self.group_id, member_id=effect.member_id)
            member = MemberIdentity(member_id=effect.member_id, reason=effect.reason)
            return LeaveGroupRequest(group_id=self.group_id, members=[member])

        async def leave() -> on.Answer:
            message: ByVersion[LeaveGroupResponse] = ByVersion(ApiKey.LEAVE_GROUP, build)
            try:
                await self._cluster.request(
                    message, to=Coordinator(self.group_id), deadline=effect.deadline
                )
            except KafkaError as error:
                self._log(f"left without the coordinator's knowledge: {error}")
            return on.LeftGroup(effect.request)

        return leave

    def _revoke(self, request: int, partitions: s.Assignment) -> Callable[[], Awaitable[on.Answer]]:
        async def revoke() -> on.Answer:
            await self._owner.revoke(partitions)
            return on.Revoked(request)

        return revoke

    # --- the leader's part ---

    def _make_assignment(self, effect: do.MakeAssignment) -> Callable[[], Awaitable[on.Answer]]:
        async def make() -> on.Answer:
            try:
                members = answers.subscriptions_of(effect.members)
                counts = await self._count_partitions(topics_of(members))
                assignments = self._divide(effect.protocol, counts, members)
            except KafkaError as error:
                return on.Refused(effect.request, error)
            return on.AssignmentMade(effect.request, assignments)

        return make

    def _watch_later(self, joined: Sequence[s.JoinedMember]) -> None:
        async def watch() -> None:
            try:
                members = answers.subscriptions_of(joined)
            except KafkaError as error:
                self._log(f"its topics cannot be watched: {error}", logging.WARNING)
            else:
                await self._count_partitions(topics_of(members))
                self.metadata_changed()

        if self._host.running:
            self._host.spawn(watch, name="watch-partitions")

    async def _count_partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """How many partitions each topic has; topics that do not exist (yet) are left out."""
        self._forget_counts()
        self._counts = dict.fromkeys(topics, 0)
        self._cluster.add_topics(topics)
        deadline = self._clock.now() + self._config.request_timeout_ms / 1000
        metadata = self._cluster.metadata
        while any(
            topic not in metadata.topics and topic not in metadata.errors for topic in topics
        ):
            if not await self._cluster.wait_update(metadata.version, deadline):
                break
            metadata = self._cluster.metadata
        counts = {topic: len(metadata.partitions(topic)) for topic in topics}
        if list(self._counts) == list(topics):
            self._counts = counts
        return {topic: count for topic, count in counts.items() if count}

    def _forget_counts(self) -> None:
        if self._counts:
            self._cluster.remove_topics(self._counts)
            self._counts = {}

    def _divide(
        self, protocol: str, counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, bytes]:
        """Run the assignor, and hold its result to what it must be. Raises `GroupFailed`."""
        racks = replica_racks(self._cluster.metadata, counts)
        try:
            assignment = self._assignors[protocol].assign(counts, members, racks)
        except Exception as error:
            raise GroupFailed(f"the assignor {protocol!r} failed: {error!r}") from error
        known = {member.member_id for member in members}
        owners: dict[TopicPartition, str] = {}
        for member_id, partitions in assignment.items():
            for tp in partitions:
                if member_id not in known or owners.setdefault(tp, member_id) != member_id:
                    raise GroupFailed(f"the assignor {protocol!r} gives {tp} to the wrong member")
        return {
            member.member_id: encode_assignment(assignment.get(member.member_id, ()))
            for member in members
        }
