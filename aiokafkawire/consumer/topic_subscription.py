"""Follows the subscription: which partitions are assigned, as topics appear, grow and disappear."""

from __future__ import annotations

from collections.abc import Collection

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.metadata import MetadataUpdate
from aiokafkawire.errors import IllegalState, KafkaError
from aiokafkawire.runtime import Clock, Supervisor
from aiokafkawire.types import OffsetAndMetadata, TopicPartition

from .assignment import ConsumerAssignment
from .auto_commit import AutoCommit
from .delivery import RecordDelivery
from .group_session import GroupSession
from .missing_topics import MissingTopics
from .notifier import Notifier
from .partition import AssignedPartition
from .partition_states import (
    AwaitingCommitted,
    CommittedOffsetFetched,
    PositionTarget,
    ResetOffset,
    Resetting,
    TopicRecreated,
)
from .subscription import (
    ManualAssignment,
    NoSubscription,
    RebalanceListener,
    SubscribedPattern,
    SubscribedTopics,
    Subscription,
    SubscriptionPattern,
)

__all__ = ("PATTERN_REFUSED", "TopicSubscription")

PATTERN_REFUSED = (
    "a SubscriptionPattern is matched by the coordinator in the consumer protocol (KIP-848), which"
    " needs a group_id and group_protocol='consumer'; pass pattern='…' to match in the client"
)


class TopicSubscription:
    """Assigns the partitions of the subscribed topics, or has the group assign them.

    Args:
        cluster: Has the metadata, and requests it for the subscribed topics.
        clock: The clock.
        supervisor: Runs the commits of partitions that are no longer assigned manually.
        assignment: The assigned partitions.
        delivery: Is stopped by a new subscription.
        notifier: Is notified of changes.
        group: The group, if there is one.
        auto_offset_reset: The option of this name.

    Attributes:
        subscription: The current subscription.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        supervisor: Supervisor,
        *,
        assignment: ConsumerAssignment,
        delivery: RecordDelivery,
        notifier: Notifier,
        group: GroupSession | None,
        auto_offset_reset: str,
    ) -> None:
        self.subscription: Subscription = NoSubscription()
        self._cluster = cluster
        self._clock = clock
        self._supervisor = supervisor
        self._assignment = assignment
        self._delivery = delivery
        self._notifier = notifier
        self._group = group
        self._auto_offset_reset = auto_offset_reset
        self._missing_topics = MissingTopics(cluster.config.default_api_timeout_ms / 1000)

    def subscribe(self, subscription: Subscription, listener: RebalanceListener | None) -> None:
        """Replace the subscription.

        Between topics or a pattern and a `ManualAssignment` the caller sets `NoSubscription`, which
        leaves the group.
        """
        if isinstance(subscription, SubscriptionPattern):
            self._require_server_side_patterns()
        # Raises for an invalid topic, before anything has changed.
        self._cluster.add_topics(subscription.topics)
        before, self.subscription = self.subscription, subscription
        manual = isinstance(subscription, ManualAssignment)
        self._assignment.whole_topics = self._group is None and not manual
        known: tuple[TopicPartition, ...] = ()
        if isinstance(before, ManualAssignment):
            known = before.partitions
            kept = subscription.partitions if isinstance(subscription, ManualAssignment) else ()
            # Partitions that the group is still revoking are released by the group.
            self._remove(
                [
                    partition
                    for partition in self._assignment.values()
                    if not partition.pending_revocation and partition.tp not in kept
                ]
            )
        if self._group is not None:
            self._group.manual = manual
            self._group.rebalance.listener = listener
        self._cluster.remove_topics(before.topics)
        self._cluster.all_topics = isinstance(subscription, SubscribedPattern | SubscriptionPattern)
        if isinstance(subscription, ManualAssignment):
            for tp in subscription.partitions:
                if tp not in known:
                    self._add(tp)
        self._delivery.stop()
        self._apply()
        self._notifier.state_changed()

    def _add(self, tp: TopicPartition) -> AssignedPartition:
        state = AwaitingCommitted()
        partition = AssignedPartition(tp, self._auto_offset_reset, state, self._supervisor.fields)
        if self._group is None:
            # Nothing can be committed without a group: `auto_offset_reset` decides.
            partition.handle(CommittedOffsetFetched(state, None))
        self._assignment.add(partition)
        return partition

    def _remove(self, partitions: Collection[AssignedPartition]) -> None:
        """Remove manually assigned partitions, and commit their processed records."""
        group = self._group
        if group is not None and group.auto_commit is not None:
            offsets = group.auto_commit.uncommitted(partitions)
            if offsets:
                group.manual_commits += 1
                self._supervisor.spawn(
                    self._commit_before_joining, group, group.auto_commit, offsets, name="commit"
                )
        self._assignment.remove(partitions)

    async def _commit_before_joining(
        self,
        group: GroupSession,
        auto_commit: AutoCommit,
        offsets: dict[TopicPartition, OffsetAndMetadata],
    ) -> None:
        try:
            await auto_commit.wait_and_log([group.offsets.submit(offsets)], len(offsets))
        finally:
            group.manual_commits -= 1
            self._apply()

    def _apply(self) -> None:
        """Update the group's topics, or without a group the partitions, to match the metadata."""
        subscription, group = self.subscription, self._group
        if isinstance(subscription, ManualAssignment):
            return
        topics: tuple[str, ...] = ()
        if isinstance(subscription, SubscribedTopics):
            topics = subscription.topics
        elif isinstance(subscription, SubscriptionPattern):
            self._apply_server_side_pattern(subscription.pattern)
            return
        elif isinstance(subscription, SubscribedPattern):
            topics = subscription.matches(self._cluster.metadata)
            if group is None:
                topics = self._with_missing(subscription, topics)
        if group is None:
            self._assign_all(topics)
        # A member cannot commit manually assigned partitions, so the consumer joins after these
        # commits.
        elif not group.manual_commits and (
            tuple(sorted(topics)) != group.member.topics or group.member.pattern is not None
        ):
            group.member.subscribe(topics)
            group.rebalance.limit_to_topics(topics)

    def _require_server_side_patterns(self) -> None:
        if self._group is None or self._group.member.protocol == "classic":
            raise IllegalState(PATTERN_REFUSED)

    def _apply_server_side_pattern(self, pattern: str) -> None:
        group = self._group
        assert group is not None
        if not group.manual_commits and pattern != group.member.pattern:
            group.member.subscribe((), pattern)
            group.rebalance.limit_to_topics(None)

    def _assign_all(self, topics: Collection[str]) -> None:
        """Assign all partitions of these topics, and no others."""
        assignment, metadata = self._assignment, self._cluster.metadata
        known = {tp.topic for tp in assignment.topic_partitions}
        assignment.remove(
            [partition for partition in assignment.values() if partition.tp.topic not in topics]
        )
        for topic in topics:
            for number in metadata.partitions(topic):
                tp = TopicPartition(topic, number)
                if tp in assignment:
                    continue
                added = self._add(tp)
                if topic in known and isinstance(added.state, Resetting):
                    # Partitions added to a topic are read from the beginning.
                    added.handle(ResetOffset(PositionTarget.EARLIEST))

    def _with_missing(
        self, subscription: SubscribedPattern, topics: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Add topics that match and may be missing from the metadata for a moment only."""
        owned = dict.fromkeys(tp.topic for tp in self._assignment.topic_partitions)
        result = self._missing_topics.check_missing(
            self._cluster.metadata,
            topics,
            [topic for topic in owned if subscription.pattern.fullmatch(topic)],
            self._clock.now(),
        )
        self._restart_recreated(result.recreated)
        return (*topics, *result.kept)

    def _restart_recreated(self, topics: Collection[str]) -> list[AssignedPartition]:
        """Reset the partitions of recreated topics; remove those that no longer exist."""
        recreated = [
            partition for partition in self._assignment.values() if partition.tp.topic in topics
        ]
        for partition in recreated:
            # mutation: position-kept-in-recreated-topic
            partition.handle(TopicRecreated())
        if self._assignment.whole_topics:
            existing = {topic: self._cluster.metadata.partitions(topic) for topic in topics}
            self._assignment.remove(
                [
                    partition
                    for partition in recreated
                    if partition.tp.partition not in existing[partition.tp.topic]
                ]
            )
        return recreated

    def metadata_changed(self, update: MetadataUpdate) -> None:
        """Follow topics that have appeared, grown, disappeared or been recreated."""
        if not update.leaders_only:
            recreated = self._restart_recreated(update.recreated_topics)
            if recreated and self._group is not None:
                reason = "the topic was deleted and created again"
                self._group.offsets.end_ownership(
                    [partition.tp for partition in recreated], reason, lost=True
                )
            self._apply()
            if self._group is not None and not self._group.manual:
                self._group.member.metadata_changed()
        self._notifier.state_changed()

    def raise_error(self) -> None:
        """Raise an error if there is nothing to read, or a topic cannot be read."""
        if isinstance(self.subscription, NoSubscription):
            raise KafkaError("nothing to read: call subscribe() or assign() first")
        if self.subscription.topics and (
            self._cluster.metadata.errors or self._missing_topics.unknown_since
        ):
            missing = self._missing_topics.find_error(
                self._cluster.metadata, self.subscription.topics, self._clock.now()
            )
            if missing is not None:
                # The topic may have been created, or permitted, since the last refresh.
                self._cluster.request_update()
                raise missing
