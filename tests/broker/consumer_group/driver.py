"""A consumer group without a network, with a clock and topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from aiokafkawire.broker.groups.consumer_group.events import (
    AppendRecords,
    ConsumerGroupHeartbeat,
    ConsumerGroupSettings,
    Downgrade,
    RegexesResolved,
    ResolveRegexes,
)
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.consumer_group.records import GroupRecord
from aiokafkawire.broker.groups.consumer_group.regexes import compile_pattern
from aiokafkawire.broker.groups.consumer_group.topics import SubscribedTopic, TopicsImage
from aiokafkawire.broker.groups.events import (
    GroupDeadlineReached,
    GroupReply,
    HeartbeatResult,
    Leave,
)
from aiokafkawire.wire import ErrorCode

T, U = UUID(int=1), UUID(int=2)

Partitions = Mapping[UUID, Sequence[int]]


class Driver:
    """Gives events to a group and performs its effects."""

    def __init__(self, **settings: Any) -> None:
        self.group = ConsumerGroup("g", ConsumerGroupSettings(**settings))
        self.now = 100.0
        self.batches: list[tuple[GroupRecord, ...]] = []
        self.lookups = 0
        self.downgraded: Downgrade | None = None
        self.set_topics(t=(T, 3))

    def set_topics(self, **topics: tuple[UUID, int]) -> None:
        self.group.topics = TopicsImage.of(
            self.group.topics.version + 1,
            [SubscribedTopic(name, topic, count) for name, (topic, count) in topics.items()],
        )

    def configure(self, **settings: Any) -> None:
        self.group.settings = replace(self.group.settings, **settings)

    def give(self, event: Any) -> Any:
        """Return the reply to an event."""
        reply = None
        for effect in self.group.handle(event, self.now):
            if isinstance(effect, AppendRecords):
                self.batches.append(effect.records)
            elif isinstance(effect, GroupReply):
                reply = effect.result
            elif isinstance(effect, ResolveRegexes):
                self._resolve(effect)
            else:
                assert isinstance(effect, Downgrade)
                self.downgraded = effect
        return reply

    def _resolve(self, effect: ResolveRegexes) -> None:
        self.lookups += 1
        topics = self.group.topics
        self.give(
            RegexesResolved(
                topics={
                    regex: compile_pattern(regex).filter(topics.topics) for regex in effect.regexes
                },
                version=topics.version,
            )
        )

    def heartbeat(
        self, member_id: str, epoch: int, owned: Partitions | None = None, **fields: Any
    ) -> HeartbeatResult:
        """Return the result of a heartbeat."""
        if owned is not None:
            owned = {topic: frozenset(parts) for topic, parts in owned.items()}
        event = ConsumerGroupHeartbeat(
            reply=object(), member_id=member_id, member_epoch=epoch, owned=owned, **fields
        )
        result = self.give(event)
        assert isinstance(result, HeartbeatResult)
        return result

    def join(self, member_id: str, *names: str, **fields: Any) -> HeartbeatResult:
        """Return the result of a first heartbeat."""
        fields = {
            "rebalance_timeout_ms": 5_000,
            "subscribed_names": names or ("t",),
            "owned": {},
        } | fields
        return self.heartbeat(member_id, 0, **fields)

    def leave(self, member_id: str, instance_id: str | None = None) -> ErrorCode:
        """Return the code of LeaveGroup."""
        code = self.give(Leave(reply=object(), member_id=member_id, instance_id=instance_id))
        assert isinstance(code, ErrorCode)
        return code

    def sleep(self, seconds: float) -> None:
        """Let time pass; deadlines are reached when they are due."""
        end = self.now + seconds
        while self.group.next_deadline() <= end:
            self.now = self.group.next_deadline()
            self.give(GroupDeadlineReached())
        self.now = end
