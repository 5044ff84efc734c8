"""Decisions of a consumer group that its events share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.groups.consumer_group import records
from aiokafkawire.broker.groups.consumer_group.assignors import (
    ASSIGNORS,
    AssignmentSpec,
    MemberSpec,
)
from aiokafkawire.broker.groups.consumer_group.deadlines import Deadlines
from aiokafkawire.broker.groups.consumer_group.events import (
    ConsumerGroupSettings,
    Downgrade,
    Effect,
    RegexesResolved,
    ResolveRegexes,
)
from aiokafkawire.broker.groups.consumer_group.java_order import (
    hash_order,
    partition_order,
    text_hash,
    timeline_order,
    topic_hash,
)
from aiokafkawire.broker.groups.consumer_group.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
)
from aiokafkawire.broker.groups.consumer_group.metadata import ConsumerGroupMetadata
from aiokafkawire.broker.groups.consumer_group.reconciliation import Goal, reconcile
from aiokafkawire.broker.groups.consumer_group.records import GroupRecord
from aiokafkawire.broker.groups.consumer_group.topics import NO_TOPICS, metadata_hash
from aiokafkawire.wire import ErrorCode

__all__ = ("REGEX_REFRESH_MIN_INTERVAL_S", "GroupCore", "Timer")

REGEX_REFRESH_MIN_INTERVAL_S = 10.0
"""Shortest time between two lookups of topics for resolved regular expressions, as in Kafka."""

SESSION, REBALANCE, JOIN, SYNC = "session", "rebalance", "join", "sync"

Timer = tuple[str, str]
"""Kind of a timer and the member that it belongs to."""


class GroupCore:
    """Members of a group, their next states, epochs, and timers.

    The caller sets `settings` and `topics` to the current ones before each event.
    """

    def __init__(self, group_id: str, settings: ConsumerGroupSettings | None = None) -> None:
        self.group_id = group_id
        self.settings = settings or ConsumerGroupSettings()
        self.topics = NO_TOPICS
        self.data = ConsumerGroupMetadata(group_id)
        self.data.epoch = self.settings.first_epoch
        self.timers: Deadlines[Timer] = Deadlines()
        self._seen_topics = NO_TOPICS.version
        self._assigned_at = -math.inf
        self._resolved_at = -math.inf
        self._resolved_version = NO_TOPICS.version
        self._written: list[GroupRecord] = []
        self._effects: list[Effect] = []

    def add(self, effect: Effect) -> None:
        """Add an effect of the current event."""
        self._effects.append(effect)

    def write(self, record: GroupRecord) -> None:
        """Change the state by a record, which is appended."""
        self.data.apply(record)
        self._written.append(record)

    def take_effects(self) -> tuple[tuple[GroupRecord, ...], list[Effect]]:
        """Return the records and effects since the last call."""
        written, self._written = tuple(self._written), []
        effects, self._effects = self._effects, []
        return written, effects

    # --- members -----------------------------------------------------------------------------

    def join_static(
        self, existing: ConsumerGroupMember | None, member_id: str, instance_id: str
    ) -> ConsumerGroupMember:
        """Return the member that joins with an instance id, which may replace another.

        Raises:
            ApiError: The instance id belongs to a member of the consumer protocol that has not
                left. A classic member is replaced, as it cannot announce that it returns.
        """
        if existing is None:
            return ConsumerGroupMember(member_id=member_id, instance_id=instance_id)
        if existing.classic is None and existing.epoch != LEAVE_STATIC_EPOCH:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group"
                f" because the instance id is owned by {existing.member_id} member.",
            )
        return self.replace_static(existing, member_id)

    def replace_static(
        self, existing: ConsumerGroupMember, member_id: str, epoch: int = JOIN_EPOCH
    ) -> ConsumerGroupMember:
        """Give the target and the partitions of a static member to its replacement."""
        target = self.data.target.get(existing.member_id, {})
        self._write_removal(existing)
        member = replace(existing, member_id=member_id, epoch=epoch, previous_epoch=JOIN_EPOCH)
        self.write(records.member_metadata(self.group_id, member))
        self.write(records.target_assignment(self.group_id, member_id, target))
        self.write(records.current_assignment(self.group_id, member))
        return member

    def get_member(self, member_id: str) -> ConsumerGroupMember:
        """Return a member. Raises `ApiError`."""
        member = self.data.members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def check_instance(self, member_id: str, instance_id: str) -> ConsumerGroupMember:
        """Return the static member with an instance id. Raises `ApiError` if it is another."""
        member = self.data.static_member(instance_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by"
                f" member {member.member_id}.",
            )
        return member

    def check_size(self, member_id: str) -> None:
        """Raise `ApiError` if the group is full and a member would be new."""
        size = self.settings.max_size
        if len(self.data.members) >= size and member_id not in self.data.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {size} members.",
            )

    # --- a member's next state ---------------------------------------------------------------

    def update_member(
        self,
        member: ConsumerGroupMember,
        updated: ConsumerGroupMember,
        owned: OwnedPartitions | None,
        now: float,
        timestamp_ms: int,
    ) -> ConsumerGroupMember:
        """Store what a member reports, assign if it is due, and reconcile the member."""
        newest = updated.member_id if updated.epoch == JOIN_EPOCH else None
        bumps = self._write_metadata(member, updated)
        self._bump_epoch(bumps=bumps)
        self._assign(now, timestamp_ms, newest)
        return self._reconcile(member, updated, owned, now)

    def downgrade_with(
        self,
        member: ConsumerGroupMember,
        updated: ConsumerGroupMember,
        owned: OwnedPartitions | None,
        now: float,
    ) -> ConsumerGroupMember:
        """Convert the group: a classic member replaces its last member of the consumer protocol.

        The classic group rebalances if the assignment does not fit the new subscriptions.
        """
        is_stale = self._needs_epoch(bumps=self._write_metadata(member, updated))
        is_stale |= self.data.assignment_epoch < self.data.epoch
        self.add(Downgrade(updated.member_id, rebalances=is_stale))
        return updated if is_stale else self._reconcile(member, updated, owned, now)

    def _reconcile(
        self,
        member: ConsumerGroupMember,
        updated: ConsumerGroupMember,
        owned: OwnedPartitions | None,
        now: float,
    ) -> ConsumerGroupMember:
        goal = Goal(
            self.data.assignment_epoch,
            self.data.target.get(updated.member_id, {}),
            self.topics.ids(self.data.subscribed_by(updated)),
            owned,
            self.data.is_owned,
        )
        after = reconcile(updated, goal)
        is_new = member.epoch == JOIN_EPOCH and updated.epoch == JOIN_EPOCH
        if is_new or not after.has_assignment_of(updated):
            self.write(records.current_assignment(self.group_id, after))
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                self.start_rebalance_timer(after, now)
            else:
                self.timers.cancel((REBALANCE, after.member_id))
        return after

    def _write_metadata(self, member: ConsumerGroupMember, updated: ConsumerGroupMember) -> bool:
        """Write a changed member; return True if its subscription changed."""
        if updated.member_id in self.data.members and updated.has_metadata_of(member):
            return False
        self.write(records.member_metadata(self.group_id, updated))
        bumps = set(updated.subscribed_names) != set(member.subscribed_names)
        before, after = member.subscribed_regex, updated.subscribed_regex
        if before != after:
            # A regex that is not resolved matches nothing, so that it changes nothing yet.
            bumps |= before in self.data.regexes or after in self.data.regexes
            self._drop_unused_regex(before)
        return bumps

    def _drop_unused_regex(self, regex: str) -> None:
        if regex in self.data.regexes and not self.data.count_subscribers(regex):
            resolved = records.regular_expression(self.group_id, regex, (), 0, 0)
            self.write(records.tombstone(resolved))

    def _bump_epoch(self, *, bumps: bool) -> None:
        """Start the next epoch if a subscription changed, or a topic that it includes."""
        if self._needs_epoch(bumps=bumps):
            new_hash = metadata_hash(self.data.subscribed_topics(), self.topics)
            self.write(records.group_metadata(self.group_id, self.data.epoch + 1, new_hash))

    def _needs_epoch(self, *, bumps: bool) -> bool:
        if bumps:
            self._seen_topics = self.topics.version
            return True
        if self._seen_topics == self.topics.version:
            return False
        self._seen_topics = self.topics.version
        new_hash = metadata_hash(self.data.subscribed_topics(), self.topics)
        return new_hash != self.data.metadata_hash or not self.data.epoch

    def _assign(self, now: float, timestamp_ms: int, newest: str | None) -> None:
        """Compute the target assignment if the group has a new epoch and the interval is over."""
        data = self.data
        due_at = self._assigned_at + self.settings.assignment_interval_s
        if data.epoch <= data.assignment_epoch or now < due_at:
            return
        target = ASSIGNORS[self.assignor](self._assignment_spec(newest))
        for member_id in data.members:
            assigned = target.get(member_id, {})
            if data.target.get(member_id) != assigned:
                self.write(records.target_assignment(self.group_id, member_id, assigned))
        self.write(records.assignment_metadata(self.group_id, data.epoch, timestamp_ms))
        self._assigned_at = now

    def _assignment_spec(self, newest: str | None) -> AssignmentSpec:
        """Return the input of the assignor, in the order of Kafka's hash maps.

        `newest` is a member that joins now; Kafka adds it after the others.
        """
        members = self.data.members
        known = timeline_order(members, self.data.most_members)
        listed = [*(each for each in known if each != newest), *([newest] if newest else [])]
        topics = {topic.topic_id: topic.partitions for topic in self.topics.topics.values()}
        names = hash_order(sorted(self.data.subscribed_topics()), text_hash)
        known_topics = self.topics.topics
        subscribed = [known_topics[name].topic_id for name in names if name in known_topics]
        return AssignmentSpec(
            members={
                member_id: self._member_spec(members[member_id], topics)
                for member_id in hash_order(listed, text_hash)
            },
            partitions=topics,
            topic_order=tuple(hash_order(subscribed, topic_hash)),
        )

    def _member_spec(self, member: ConsumerGroupMember, topics: Mapping[UUID, int]) -> MemberSpec:
        target = self.data.target.get(member.member_id, {})
        return MemberSpec(
            topic_ids=tuple(self.topics.ids(self.data.subscribed_by(member))),
            assigned={
                topic: partition_order(target[topic])
                if max(target[topic], default=0) < topics[topic]
                else partition_order(tuple(p for p in target[topic] if p < topics[topic]))
                for topic in hash_order(target, topic_hash)
                if topic in topics
            },
            instance_id=member.instance_id,
        )

    @property
    def assignor(self) -> str:
        """Name of the assignor that most members ask for, the first of the broker by default."""
        votes = [
            member.server_assignor
            for member in self.data.members.values()
            if member.server_assignor in self.settings.assignors
        ]
        return max(self.settings.assignors, key=votes.count)

    # --- removal -----------------------------------------------------------------------------

    def remove(self, members: Iterable[ConsumerGroupMember]) -> None:
        """Remove members and start the next epoch."""
        for member in members:
            self._write_removal(member)
            self._drop_unused_regex(member.subscribed_regex)
            for timer in (SESSION, REBALANCE, JOIN, SYNC):
                self.timers.cancel((timer, member.member_id))
        if self.may_downgrade():
            self.add(Downgrade())
            return
        new_hash = metadata_hash(self.data.subscribed_topics(), self.topics)
        self.write(records.group_metadata(self.group_id, self.data.epoch + 1, new_hash))

    def may_downgrade(self, replaced: str | None = None) -> bool:
        """Return True if the group may be converted: all members, but for one, are classic ones."""
        members = self.data.members
        return (
            0 < len(members) <= self.settings.classic_max_size
            and self.settings.allows_downgrade
            and all(each.classic is not None for key, each in members.items() if key != replaced)
        )

    @property
    def rejoin_epoch(self) -> int:
        """Epoch that a classic member must have: with an older one it has to rejoin."""
        if self.settings.rejoins_once_assigned:
            return self.data.assignment_epoch
        return self.data.epoch

    def _write_removal(self, member: ConsumerGroupMember) -> None:
        self.write(records.tombstone(records.current_assignment(self.group_id, member)))
        self.write(
            records.tombstone(records.target_assignment(self.group_id, member.member_id, {}))
        )
        self.write(records.tombstone(records.member_metadata(self.group_id, member)))

    # --- regular expressions -----------------------------------------------------------------

    def request_regexes(self, now: float) -> None:
        """Ask for the topics of regular expressions that are new, or may match other topics."""
        regexes = tuple(self.data.subscribed_regexes())
        if not regexes:
            return
        if all(regex in self.data.regexes for regex in regexes):
            if now <= self._resolved_at + REGEX_REFRESH_MIN_INTERVAL_S:
                return
            is_old = now >= self._resolved_at + self.settings.regex_refresh_interval_s
            if self._resolved_version == self.topics.version and not is_old:
                return
        self.add(ResolveRegexes(regexes))

    def resolve_regexes(self, event: RegexesResolved, now: float) -> None:
        self._resolved_at, self._resolved_version = now, event.version
        bumps = False
        for regex, topics in event.topics.items():
            if not self.data.count_subscribers(regex):
                continue
            before = self.data.regexes.get(regex)
            if before is not None and before.topics == topics:
                continue
            bumps |= bool(topics) or before is not None
            self.write(
                records.regular_expression(
                    self.group_id, regex, topics, event.version, event.timestamp_ms
                )
            )
        if bumps:
            self._bump_epoch(bumps=True)

    # --- timers ------------------------------------------------------------------------------

    def extend_session(self, member: ConsumerGroupMember, now: float) -> None:
        """Start the session timeout of a member again."""
        classic = member.classic
        timeout_s = (
            self.settings.session_timeout_s
            if classic is None
            else classic.session_timeout_ms / 1000
        )
        self.timers.set((SESSION, member.member_id), now + timeout_s)

    def start_rebalance_timer(self, member: ConsumerGroupMember, now: float) -> None:
        timeout_s = max(member.rebalance_timeout_ms, 0) / 1000
        self.timers.set((REBALANCE, member.member_id), now + timeout_s)
