"""Performs the effects of share groups, and gives them their settings and topics."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.broker.client_log import LogRateLimiter
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.groups.consumer_group.events import AppendRecords
from aiokafkawire.broker.groups.consumer_group.record_log import GroupRecordLog
from aiokafkawire.broker.groups.consumer_group.topics import TopicsImage
from aiokafkawire.broker.groups.events import GroupDeadlineReached, GroupReply
from aiokafkawire.broker.groups.share_group.events import (
    InitializePartitions,
    PartitionsInitialized,
    ShareGroupHeartbeat,
    ShareGroupSettings,
)
from aiokafkawire.broker.groups.share_group.group import ShareGroup
from aiokafkawire.broker.groups.share_group.member import ShareGroupMember
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.releases import Release
from aiokafkawire.broker.share.persister import NO_START_OFFSET, SharePartitionKey
from aiokafkawire.broker.share.share_partition_manager import SharePartitionManager
from aiokafkawire.broker.topics import SHARE_GROUP_STATE
from aiokafkawire.runtime import Clock

__all__ = ("ShareGroups",)

logger = logging.getLogger("aiokafkawire.broker")

MAX_LINES_PER_GROUP = 100
"""Log lines per group and minute; further ones are logged at DEBUG."""

FIRST_EPOCH_1_SINCE = "4.3"


class ShareGroups:
    """Everything that share groups need from the broker."""

    def __init__(
        self,
        options: BrokerConfig,
        clock: Clock,
        cluster: ClusterState,
        log: GroupRecordLog,
        partitions: SharePartitionManager,
        *,
        release: Callable[[], Release],
        topics: Callable[[], TopicsImage],
    ) -> None:
        self.log = log
        self.partitions = partitions
        self.topics = topics
        self._options = options
        self._clock = clock
        self._cluster = cluster
        self._release = release
        self._log_limiter = LogRateLimiter(clock.now, lines_per_key=MAX_LINES_PER_GROUP)

    def create(self, group_id: str) -> ShareGroup:
        """Return a group without members."""
        return ShareGroup(group_id, self._settings(group_id))

    def load(self, group_id: str, loaded_at: float) -> ShareGroup:
        """Return a group from its records; its sessions start at `loaded_at`."""
        group = self.create(group_id)
        group.load(self.log.records(group_id), loaded_at)
        return group

    def handle(self, group: ShareGroup, event: Any) -> list[GroupReply]:
        """Apply an event to a group and append its records; return the replies.

        Raises:
            StorageError: The records were not stored. The group must be loaded again.
        """
        group.settings, group.topics = self._settings(group.group_id), self.topics()
        before = (group.data.epoch, dict(group.data.members)) if self._logs(event) else None
        replies: list[GroupReply] = []
        now = self._clock.now()
        effects = list(group.handle(event, now))
        for effect in effects:
            if isinstance(effect, AppendRecords):
                self.log.append(group.group_id, effect.records)
            elif isinstance(effect, GroupReply):
                replies.append(effect)
            else:
                self._initialize(group, effect)
                effects += group.handle(PartitionsInitialized(), now)
        if before is not None:
            self._log_changes(group, event, *before)
        return replies

    def _initialize(self, group: ShareGroup, effect: InitializePartitions) -> None:
        self._cluster.create_internal_topic(SHARE_GROUP_STATE)
        for topic, partition in effect.partitions:
            key = SharePartitionKey(group.group_id, topic, partition)
            self.partitions.persister.initialize(key, NO_START_OFFSET, effect.state_epoch)

    def reset(self, group_id: str, offsets: Mapping[tuple[UUID, int], int]) -> None:
        """Start share partitions at other offsets. Raises `StorageError`."""
        persister = self.partitions.persister
        for (topic, partition), offset in offsets.items():
            key = SharePartitionKey(group_id, topic, partition)
            before = persister.read(key)
            persister.initialize(key, offset, 0 if before is None else before.state_epoch + 1)

    def delete_states(self, group_id: str, topics: Iterable[UUID] | None = None) -> None:
        """Delete the states of share partitions, by default those of the whole group."""
        persister = self.partitions.persister
        wanted = None if topics is None else set(topics)
        keys = [
            key
            for key in persister
            if key.group_id == group_id and (wanted is None or key.topic_id in wanted)
        ]
        persister.delete(keys)
        self.partitions.forget(keys)

    def delete_missing_topics(self) -> None:
        """Delete the states of topics that were deleted."""
        names = self.topics().names
        keys = [key for key in self.partitions.persister if key.topic_id not in names]
        # States that cannot be deleted now are deleted with the next topic.
        with contextlib.suppress(StorageError):
            self.partitions.persister.delete(keys)
        self.partitions.forget(keys)

    def _settings(self, group_id: str) -> ShareGroupSettings:
        options, configs = self._options, self.partitions.configs
        session_ms = configs.number(
            group_id, "session.timeout.ms", options.group_share_session_timeout_ms
        )
        of_broker = self._cluster.dynamic_configs.broker_value(
            "group.share.assignment.interval.ms", self._cluster.coordinator(group_id)
        )
        interval_ms = configs.number(group_id, "assignment.interval.ms", int(of_broker))
        return ShareGroupSettings(
            session_timeout_s=session_ms / 1000,
            heartbeat_interval_ms=configs.number(
                group_id, "heartbeat.interval.ms", options.group_share_heartbeat_interval_ms
            ),
            assignment_interval_s=interval_ms / 1000,
            max_size=options.group_share_max_size,
            first_epoch=int(self._release().since(FIRST_EPOCH_1_SINCE)),
        )

    @staticmethod
    def _logs(event: Any) -> bool:
        is_heartbeat = isinstance(event, ShareGroupHeartbeat) and event.member_epoch > 0
        return not is_heartbeat and logger.isEnabledFor(logging.INFO)

    def _log_changes(
        self, group: ShareGroup, event: Any, epoch: int, members: Mapping[str, ShareGroupMember]
    ) -> None:
        name, data = group.group_id, group.data
        log = functools.partial(self._log_limiter.log, name, logging.INFO)
        for member_id in data.members.keys() - members.keys():
            member = data.members[member_id]
            client = f"client {member.client_id!r} at {member.client_host}"
            log("Share group %s: member %s joined, %s", name, member_id, client)
        for member_id in members.keys() - data.members.keys():
            timed_out = isinstance(event, GroupDeadlineReached)
            reason = "removed: session timeout" if timed_out else "left"
            log("Share group %s: member %s %s", name, member_id, reason)
        if data.epoch != epoch:
            log("Share group %s: %s, group epoch %d", name, data.state.value, data.epoch)
