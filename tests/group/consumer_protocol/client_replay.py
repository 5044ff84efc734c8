"""Replays what Kafka's own clients received to this package's member, and compares its requests.

The recording has the requests and responses of each client. The member gets the responses and the
calls of the application at their times, and its requests are compared field by field with those of
the recording. `ALLOWED` are the differences that are intended.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from aiokafkawire.config import ConsumerConfig
from aiokafkawire.group.consumer_protocol.context import ConsumerProtocolSettings
from aiokafkawire.group.consumer_protocol.effects import SendConsumerHeartbeat, SendLeaveEpoch
from aiokafkawire.group.consumer_protocol.events import TopicsResolved
from aiokafkawire.group.consumer_protocol.machine import ConsumerProtocolMachine
from aiokafkawire.group.consumer_requests import (
    CONSUMER_HEARTBEAT,
    heartbeat_request,
    leave_request,
)
from aiokafkawire.group.heartbeat_requests import heartbeat_event
from aiokafkawire.group.membership import events
from aiokafkawire.group.membership.effects import (
    AssignPartitions,
    FindCoordinator,
    MembershipEffect,
    RevokePartitions,
)
from aiokafkawire.group.offset_fetch import offset_fetch_request
from aiokafkawire.group.offsets import CommitIdentity, offset_commit_request
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire.json_converter import from_json, to_json
from aiokafkawire.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from aiokafkawire.wire.primitives import uuid_from_text

HEARTBEAT = "ConsumerGroupHeartbeat"
NODE = 1

ALLOWED: Mapping[str, str] = {
    "alive": "a heartbeat without content before the interval is over: Java sends about 100 of them"
    " while its metadata lacks a topic",
    "nothing": "the report that a member owns nothing, after it has joined with that report",
    "again": "the partitions that the member has reported before, because its epoch has changed",
    "leave": "fields of a heartbeat that leaves, which the coordinator ignores",
    "repeated": "known fields, which librdkafka repeats until it owns partitions",
    "pattern": 'an empty pattern of a member that had none, which librdkafka sends as "no pattern"',
    "outside": "a commit with epoch -1 after the member has left, which is refused: this package"
    " raises CommitFailed without a request",
    "anonymous": "librdkafka fetches offsets without member id and epoch",
}
"""Intended differences by name, with the reason."""

Action = Callable[["ReplayedMember", float], None]


def subscribe(*topics: str, pattern: str | None = None) -> Action:
    return lambda member, now: member.handle(events.Subscribed(topics, pattern), now)


def unsubscribe(member: ReplayedMember, now: float) -> None:
    member.handle(events.Unsubscribed(), now)


def close(operation: Any = "default") -> Action:
    return lambda member, now: member.handle(events.CloseRequested(now + 30, operation), now)


def stop_polling(member: ReplayedMember, now: float) -> None:
    member.machine.context.poll_timer.finish_poll(now)


def poll(member: ReplayedMember, now: float) -> None:
    member.machine.context.poll_timer.start_poll(now)
    member.handle(events.PollStarted(), now)


def learn(topic: str) -> Action:
    """Return the action of metadata that has a topic from now on."""

    def act(member: ReplayedMember, now: float) -> None:
        member.known.add(topic)
        member.handle(TopicsResolved(member.names()), now)

    return act


@dataclass(slots=True)
class ReplayedMember:
    """One recorded client, played by this package's member."""

    config: ConsumerConfig
    member_id: str
    ids: Mapping[str, UUID]
    known: set[str]
    machine: ConsumerProtocolMachine = field(init=False)
    sent: list[tuple[Any, Any]] = field(default_factory=list)
    """Heartbeats that the recording must have next: the effect and the message."""
    awaited: Any = None
    assigned: set[TopicPartition] = field(default_factory=set)
    equal: Counter[str] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = self.config
        settings = ConsumerProtocolSettings(
            member_id=self.member_id,
            group_instance_id=config.group_instance_id,
            max_poll_interval_ms=config.max_poll_interval_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            request_timeout_ms=config.request_timeout_ms,
            default_api_timeout_ms=config.default_api_timeout_ms,
        )
        self.machine = ConsumerProtocolMachine(settings, random.Random(1), 0.0)
        self.machine.context.poll_timer.start_poll(0.0)

    def names(self) -> dict[UUID, str]:
        return {self.ids[topic]: topic for topic in self.known}

    # --- the member ---

    def handle(self, event: events.MembershipEvent, now: float) -> None:
        """Handle an event, and perform its effects at once."""
        for effect in self.machine.handle(event, now):
            self._perform(effect, now)
        if self.machine.next_deadline() <= now:
            self.handle(events.DeadlineReached(), now)

    def _perform(self, effect: MembershipEffect, now: float) -> None:
        match effect:
            case FindCoordinator(request):
                self.handle(events.CoordinatorFound(request, NODE), now)
            case SendConsumerHeartbeat():
                message = heartbeat_request(effect, self.config, self.member_id)
                self.sent.append((effect, message))
            case SendLeaveEpoch():
                self.sent.append((effect, leave_request(effect, self.config, self.member_id)))
            case RevokePartitions(request, partitions):
                self.assigned -= {*partitions}
                self.handle(events.PartitionsRevoked(request), now)
            case AssignPartitions(partitions):
                self.assigned |= {*partitions}

    def heartbeat_now(self, now: float) -> None:
        """Send the next heartbeat before its interval is over."""
        self.handle(events.CommitRejected(), now)

    # --- the recording ---

    def request(self, api: str, version: int, recorded: Mapping[str, Any], now: float) -> None:
        """Compare a recorded request with the one of the member."""
        if api == HEARTBEAT:
            self._compare_heartbeat(version, recorded, now)
        elif api == "OffsetFetch":
            self._compare_fetch(version, recorded, now)
        else:
            self._compare_commit(version, recorded, now)

    def response(self, recorded: Mapping[str, Any], version: int, now: float) -> None:
        """Pass the response to a heartbeat that was compared, if the member sent it."""
        effect, self.awaited = self.awaited, None
        if effect is None:
            return
        if isinstance(effect, SendLeaveEpoch):
            self.handle(events.GroupLeft(effect.request), now)
            return
        response = from_json(ConsumerGroupHeartbeatResponse, version, recorded)
        event = heartbeat_event(CONSUMER_HEARTBEAT, effect, response, self.names())
        self.handle(event, now)

    def _compare_heartbeat(self, version: int, recorded: Mapping[str, Any], now: float) -> None:
        if not self.sent and self.machine.next_deadline() <= now + JITTER_S:
            self.handle(events.DeadlineReached(), max(now, self.machine.next_deadline()))
        wanted = normal(recorded)
        if not self.sent:
            self._note(self._extra_heartbeat(wanted), f"{now}: not sent: {recorded}")
            return
        effect, message = self.sent.pop(0)
        self.awaited = effect
        ours = normal(to_json(message, version))
        kinds = {
            kind
            for name in wanted.keys() | ours.keys()
            if (kind := _difference(name, ours[name], wanted)) is not None
        }
        for kind in kinds:
            self._note(kind or None, f"{now}: {kinds} {ours} is not {wanted}")
        if not kinds:
            self.equal[HEARTBEAT] += 1

    def _extra_heartbeat(self, wanted: Mapping[str, Any]) -> str | None:
        """Return the kind of a recorded heartbeat that the member does not send."""
        content = {
            name: value
            for name, value in wanted.items()
            if name not in IN_EVERY_HEARTBEAT and value not in (None, -1)
        }
        if not content:
            return "alive"
        if content.keys() != {"topicPartitions"}:
            return None
        if not content["topicPartitions"]:
            return "nothing"
        reported = {
            TopicPartition(self._name({"topicId": topic_id}), number)
            for topic_id, numbers in content["topicPartitions"]
            for number in numbers
        }
        return "again" if reported == self.assigned else None

    def _compare_fetch(self, version: int, recorded: Mapping[str, Any], now: float) -> None:
        [group] = recorded["groups"]
        partitions = [
            TopicPartition(self._name(topic), number)
            for topic in group["topics"]
            for number in topic["partitionIndexes"]
        ]
        if not self.assigned.issuperset(partitions):
            self._note(None, f"{now}: {partitions} are not assigned: {self.assigned}")
        generation = self.machine.generation
        assert generation is not None
        request, _ = offset_fetch_request(
            group["groupId"],
            partitions,
            self.ids,
            member_id=generation.member_id,
            member_epoch=generation.number,
        )
        ours = to_json(request.build(version), version)
        if group["memberId"] is None:
            self.allowed["anonymous"] += 1
            ours["groups"][0].update(memberId=None, memberEpoch=-1)
        self._compare("OffsetFetch", ours, recorded, now)

    def _compare_commit(self, version: int, recorded: Mapping[str, Any], now: float) -> None:
        generation = self.machine.generation
        if generation is None:
            kind = "outside" if recorded["generationIdOrMemberEpoch"] == -1 else None
            self._note(kind, f"{now}: no member commits: {recorded}")
            return
        offsets = {
            TopicPartition(self._name(topic), each["partitionIndex"]): OffsetAndMetadata(
                each["committedOffset"], each["committedMetadata"], each["committedLeaderEpoch"]
            )
            for topic in recorded["topics"]
            for each in topic["partitions"]
        }
        identity = CommitIdentity(
            generation.number, generation.member_id, self.config.group_instance_id
        )
        message = offset_commit_request(recorded["groupId"], identity, offsets, self.ids)
        self._compare("OffsetCommit", to_json(message, version), recorded, now)

    def _compare(
        self, api: str, ours: Mapping[str, Any], recorded: Mapping[str, Any], now: float
    ) -> None:
        if ours == recorded:
            self.equal[api] += 1
        else:
            self._note(None, f"{now}: {ours} is not {recorded}")

    def _name(self, topic: Mapping[str, Any]) -> str:
        by_id = {topic_id: name for name, topic_id in self.ids.items()}
        name: str = topic.get("name") or by_id[uuid_from_text(topic["topicId"])]
        return name

    def _note(self, kind: str | None, text: str) -> None:
        if kind is None:
            self.differences.append(text)
        else:
            self.allowed[kind] += 1


JITTER_S = 0.1
"""A recorded heartbeat is compared if the member's is due within this time."""


def normal(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a heartbeat with its partitions in one order."""
    owned = request["topicPartitions"]
    by_topic = (
        owned
        if owned is None
        else sorted((each["topicId"], sorted(each["partitions"])) for each in owned)
    )
    return {**request, "topicPartitions": by_topic}


IN_EVERY_HEARTBEAT = frozenset({"groupId", "memberId", "memberEpoch", "instanceId"})


def _difference(name: str, ours: Any, wanted: Mapping[str, Any]) -> str | None:
    """Return the kind of a difference in one field: None if there is none, "" if it is a bug."""
    if ours == wanted[name]:
        return None
    if name not in IN_EVERY_HEARTBEAT:
        if wanted["memberEpoch"] < 0 and ours is None:
            return "leave"
        if name == "subscribedTopicRegex" and ours is None and wanted[name] == "":
            return "pattern"
        if ours in (None, -1) and wanted["memberEpoch"] > 0 and wanted["topicPartitions"] == []:
            return "repeated"
    return ""


def replay(
    member: ReplayedMember,
    lines: Iterable[Mapping[str, Any]],
    actions: Collection[tuple[float, Action]],
) -> None:
    """Play the lines of one client, and the application's calls at their times."""
    waiting = sorted(actions, key=lambda each: each[0])
    for line in lines:
        now = line["t"]
        while waiting and waiting[0][0] <= now:
            at, act = waiting.pop(0)
            act(member, at)
        if "request" in line:
            member.request(line["api"], line["version"], line["request"], now)
        elif line["api"] == HEARTBEAT:
            member.response(line["response"], line["version"], now)
    assert not waiting
