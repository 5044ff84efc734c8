"""Performs the effects of consumer groups, and gives them their settings and topics."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from aiokafkawire.broker.client_log import LogRateLimiter
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.configs.definitions import ConfigResourceType
from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.consumer_group.conversion import DOWNGRADING_POLICIES, upgrade
from aiokafkawire.broker.groups.consumer_group.events import (
    AppendRecords,
    ConsumerGroupHeartbeat,
    ConsumerGroupSettings,
    Downgrade,
    RegexesResolved,
    ResolveRegexes,
)
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.consumer_group.member import ConsumerGroupMember
from aiokafkawire.broker.groups.consumer_group.record_log import GroupRecordLog
from aiokafkawire.broker.groups.consumer_group.regexes import compile_pattern
from aiokafkawire.broker.groups.consumer_group.topics import (
    NO_TOPICS,
    SubscribedTopic,
    TopicsImage,
)
from aiokafkawire.broker.groups.events import GroupDeadlineReached, GroupReply, Leave
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.releases import Release
from aiokafkawire.runtime import Clock

__all__ = ("MAX_LINES_PER_GROUP", "ConsumerGroups", "is_every_topic_visible")

logger = logging.getLogger("aiokafkawire.broker")

MAX_LINES_PER_GROUP = 100
"""Log lines per group and minute; further ones are logged at DEBUG."""

MAX_MEMBERS = 100_000
"""Limit of members in a group; the option can only lower it."""

FIRST_EPOCH_1_SINCE = "4.3"
ASSIGNMENT_EPOCHS_SINCE = "4.3"


def is_every_topic_visible(topic: str) -> bool:
    """Return True: without access control, a regular expression matches every topic."""
    return True


class ConsumerGroups:
    """Everything that consumer groups need from the broker."""

    def __init__(
        self,
        options: BrokerConfig,
        clock: Clock,
        cluster: ClusterState,
        log: GroupRecordLog,
        release: Callable[[], Release],
    ) -> None:
        self.log = log
        self._options = options
        self._clock = clock
        self._cluster = cluster
        self._release = release
        self._image = NO_TOPICS
        self._log_limiter = LogRateLimiter(clock.now, lines_per_key=MAX_LINES_PER_GROUP)

    def create(self, group_id: str) -> ConsumerGroup:
        """Return a group without members."""
        return ConsumerGroup(group_id, self._settings(group_id))

    def convert(self, classic: ClassicGroup) -> ConsumerGroup:
        """Return the consumer group that a classic group with members becomes.

        Raises:
            ApiError: The group cannot be converted.
        """
        group = self.create(classic.group_id)
        group.topics = self.topics()
        upgrade(classic, group, self._options.group_consumer_migration_policy)
        now = self._clock.now()
        for member in group.data.members.values():
            group.extend_session(member, now)
        return group

    def load(self, group_id: str, loaded_at: float) -> ConsumerGroup:
        """Return a group from its records; its timers start at `loaded_at`."""
        group = self.create(group_id)
        group.load(self.log.records(group_id), loaded_at)
        return group

    def handle(
        self,
        group: ConsumerGroup,
        event: Any,
        is_visible: Callable[[str], bool] = is_every_topic_visible,
    ) -> tuple[list[GroupReply], Downgrade | None]:
        """Apply an event to a group and append its records.

        Args:
            group: The group.
            event: The event.
            is_visible: Returns True for topics that a regular expression may match.

        Returns:
            The replies, and the effect by which the group becomes a classic group.

        Raises:
            StorageError: The records were not stored. The group must be loaded again.
        """
        group.settings, group.topics = self._settings(group.group_id), self.topics()
        before = (group.data.epoch, dict(group.data.members)) if self._logs(event) else None
        replies: list[GroupReply] = []
        conversion: Downgrade | None = None
        for effect in group.handle(event, self._clock.now()):
            if isinstance(effect, AppendRecords):
                self.log.append(group.group_id, effect.records)
            elif isinstance(effect, GroupReply):
                replies.append(effect)
            elif isinstance(effect, ResolveRegexes):
                self._resolve(group, effect, is_visible)
            else:
                assert isinstance(effect, Downgrade)
                conversion = effect
        if before is not None:
            self._log_changes(group, event, *before)
        return replies, conversion

    def topics(self) -> TopicsImage:
        """Return all topics, at their current version."""
        if self._image.version != self._cluster.topics.version:
            racks = self._cluster.racks
            self._image = TopicsImage.of(
                self._cluster.topics.version,
                [
                    SubscribedTopic(
                        topic.name,
                        topic.topic_id,
                        len(topic.partitions),
                        tuple(
                            tuple(sorted({racks[node] for node in part.replicas if node in racks}))
                            for part in topic.partitions
                        )
                        if racks
                        else (),
                    )
                    for topic in self._cluster.topics.values()
                ],
            )
        return self._image

    def _settings(self, group_id: str) -> ConsumerGroupSettings:
        options, release = self._options, self._release()
        configs = self._cluster.dynamic_configs.of(ConfigResourceType.GROUP, group_id)

        def value(name: str, default: int) -> int:
            return int(configs.get(f"consumer.{name}", default))

        session_ms = value("session.timeout.ms", options.group_consumer_session_timeout_ms)
        of_broker = self._cluster.dynamic_configs.broker_value(
            "group.consumer.assignment.interval.ms", self._cluster.coordinator(group_id)
        )
        interval_ms = value("assignment.interval.ms", int(of_broker))
        return ConsumerGroupSettings(
            session_timeout_s=session_ms / 1000,
            heartbeat_interval_ms=value(
                "heartbeat.interval.ms", options.group_consumer_heartbeat_interval_ms
            ),
            assignment_interval_s=interval_ms / 1000,
            regex_refresh_interval_s=options.group_consumer_regex_refresh_interval_ms / 1000,
            max_size=min(options.group_consumer_max_size, MAX_MEMBERS),
            first_epoch=int(release.since(FIRST_EPOCH_1_SINCE)),
            checks_assignment_epochs=release.since(ASSIGNMENT_EPOCHS_SINCE),
            allows_downgrade=options.group_consumer_migration_policy in DOWNGRADING_POLICIES,
            classic_max_size=options.group_max_size,
            rejoins_once_assigned=release.since(ASSIGNMENT_EPOCHS_SINCE),
        )

    def _resolve(
        self, group: ConsumerGroup, effect: ResolveRegexes, is_visible: Callable[[str], bool]
    ) -> None:
        """Look up topics after the reply, as Kafka does in another thread."""
        visible = [name for name in self._cluster.topics if is_visible(name)]
        event = RegexesResolved(
            topics={regex: compile_pattern(regex).filter(visible) for regex in effect.regexes},
            version=self._cluster.topics.version,
            timestamp_ms=self._clock.wall_ms(),
        )
        for following in group.handle(event, self._clock.now()):
            assert isinstance(following, AppendRecords)
            self.log.append(group.group_id, following.records)

    @staticmethod
    def _logs(event: Any) -> bool:
        is_heartbeat = isinstance(event, ConsumerGroupHeartbeat) and event.member_epoch > 0
        return not is_heartbeat and logger.isEnabledFor(logging.INFO)

    def _log_changes(
        self,
        group: ConsumerGroup,
        event: Any,
        epoch: int,
        members: Mapping[str, ConsumerGroupMember],
    ) -> None:
        name, data = group.group_id, group.data
        log = functools.partial(self._log_limiter.log, name, logging.INFO)
        for member_id in data.members.keys() - members.keys():
            member = data.members[member_id]
            client = f"client {member.client_id!r} at {member.client_host}"
            log("Group %s: member %s joined, %s", name, member_id, client)
        for member_id in members.keys() - data.members.keys():
            log("Group %s: member %s %s", name, member_id, _removal_reason(event))
        if data.epoch != epoch:
            log("Group %s: %s, group epoch %d", name, data.state.value, data.epoch)


def _removal_reason(event: Any) -> str:
    """Return why an event removed a member."""
    if isinstance(event, GroupDeadlineReached):
        return "removed: session or rebalance timeout"
    is_leaving = isinstance(event, ConsumerGroupHeartbeat) and event.member_epoch < 0
    return "left" if is_leaving or isinstance(event, Leave) else "removed"
