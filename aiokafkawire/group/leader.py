"""The leader's part of the group protocol: decode subscriptions and assign partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.errors import GroupFailed, MalformedMessage
from aiokafkawire.logs import NO_FIELDS, RateLimit, count_partitions, list_names, log_fields
from aiokafkawire.runtime import Clock
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.consumer_protocol import (
    decode_subscription,
    encode_assignment,
    flatten_by_topic,
)

from .assignors import Assignor, MemberSubscription
from .membership import states

__all__ = (
    "GroupLeader",
    "compute_assignments",
    "decode_subscriptions",
    "encode_assignments",
    "raising_group_failed",
    "replica_racks",
)

logger = logging.getLogger("aiokafkawire.group")


class GroupLeader:
    """Assigns the partitions of a group and watches their numbers.

    The topics of all members stay in the metadata until `stop_watching`.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        group_id: str,
        assignors: Mapping[str, Assignor],
        fields: Mapping[str, object] = NO_FIELDS,
    ) -> None:
        self._fields = fields
        self._rate_limit = RateLimit()
        self._cluster = cluster
        self._clock = clock
        self._group_id = group_id
        self._assignors = assignors
        self._counts: dict[str, int] = {}
        self._member_ids: frozenset[str] | None = None  # of the last assignment
        self._logged_idle: dict[frozenset[str], tuple[int, int, int]] = {}

    async def assign(
        self, protocol: str, joined: Sequence[states.JoinedMember]
    ) -> dict[str, bytes]:
        """Return the encoded assignment per member id.

        Raises:
            GroupFailed: The assignor failed or returned an invalid assignment.
        """
        self._log_member_changes(frozenset(member.member_id for member in joined))
        members = self._decode(joined)
        counts = await self._count_partitions(members)
        racks = replica_racks(self._cluster.metadata, counts)
        assignments = compute_assignments(self._assignors[protocol], counts, members, racks)
        self._log_idle_members(counts, members, assignments)
        return encode_assignments(assignments)

    async def watch(self, joined: Sequence[states.JoinedMember]) -> None:
        """Watch the members' topics without computing an assignment."""
        await self._count_partitions(self._decode(joined))

    def stop_watching(self) -> None:
        """Remove the topics from the metadata: this member is no longer the leader."""
        if self._counts:
            self._cluster.remove_topics(self._counts)
            self._counts = {}

    def find_changed_topic(self) -> str | None:
        """Return a reason to rejoin if the number of partitions of a topic changed, else None."""
        metadata = self._cluster.metadata
        for topic, count in self._counts.items():
            now = len(metadata.partitions(topic))
            deleted = metadata.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if now != count and (now or deleted):
                return f"topic {topic!r} has {count_partitions(range(now))} instead of {count}"
        return None

    def _decode(self, joined: Sequence[states.JoinedMember]) -> list[MemberSubscription]:
        members, unreadable = decode_subscriptions(joined)
        for member_id, error in unreadable.items():
            logger.log(
                self._rate_limit.level(logging.WARNING, member_id, self._clock.now()),
                "Group %s: member %s gets no partitions: its subscription cannot be decoded: %s",
                self._group_id,
                member_id,
                error,
                extra=log_fields(
                    self._fields, error=error, group=self._group_id, member_id=member_id
                ),
            )
        return members

    def _log_member_changes(self, member_ids: frozenset[str]) -> None:
        """Log which members joined and left since this member's last assignment as the leader."""
        before, self._member_ids = self._member_ids, member_ids
        if before is None or before == member_ids:
            return
        changes = {"left": before - member_ids, "joined": member_ids - before}
        logger.info(
            "Group %s: %s",
            self._group_id,
            "; ".join(
                f"members that {verb}: {list_names(sorted(ids))}"
                for verb, ids in changes.items()
                if ids
            ),
            extra=log_fields(self._fields, group=self._group_id, members=len(member_ids)),
        )

    def _log_idle_members(
        self,
        counts: Mapping[str, int],
        members: Sequence[MemberSubscription],
        assignments: Mapping[str, Sequence[TopicPartition]],
    ) -> None:
        """Log the number of members without partitions if they outnumber those of their topics.

        The same numbers are not logged again in the next generation.
        """
        if sum(map(len, assignments.values())) < sum(counts.values()):
            # A cooperative member may wait for partitions that another one revokes first (KIP-429).
            return
        # Other members have topics that do not exist, or a subscription that cannot be decoded.
        topics_by_member = {
            member.member_id: frozenset(topic for topic in member.topics if counts.get(topic))
            for member in members
        }
        logged_before, self._logged_idle = self._logged_idle, {}
        is_idle = {member_id: not assignments[member_id] for member_id in topics_by_member}
        for topics in dict.fromkeys(topics_by_member[each] for each in is_idle if is_idle[each]):
            subscribed = [
                member_id for member_id, each in topics_by_member.items() if each & topics
            ]
            idle = sum(is_idle[member_id] for member_id in subscribed)
            partitions = sum(counts[topic] for topic in topics)
            if len(subscribed) <= partitions:
                continue
            numbers = self._logged_idle[topics] = (idle, len(subscribed), partitions)
            if numbers != logged_before.get(topics):
                self._log_idle(topics, *numbers)

    def _log_idle(self, own: frozenset[str], idle: int, members: int, partitions: int) -> None:
        names = list_names(sorted(own))
        logger.info(
            "Group %s: no partition for %s of %s members: %s only %s",
            self._group_id,
            f"{idle:,}",
            f"{members:,}",
            f"topic {names} has" if len(own) == 1 else f"topics {names} have",
            count_partitions(range(partitions)),
            extra=log_fields(
                self._fields,
                group=self._group_id,
                idle_members=idle,
                members=members,
                partitions=partitions,
            ),
        )

    async def _count_partitions(self, members: Sequence[MemberSubscription]) -> dict[str, int]:
        """Return the number of partitions per existing topic, and watch all subscribed topics."""
        self.stop_watching()
        topics = sorted({topic for member in members for topic in member.topics})
        self._counts = dict.fromkeys(topics, 0)
        self._cluster.add_topics(topics)
        deadline = self._clock.now() + self._cluster.config.request_timeout_ms / 1000
        metadata = self._cluster.metadata
        while any(
            topic not in metadata.topics and topic not in metadata.errors for topic in topics
        ):
            if not await self._cluster.wait_update(metadata.version, deadline):
                break
            metadata = self._cluster.metadata
        counts = {topic: len(metadata.partitions(topic)) for topic in topics}
        if list(self._counts) == topics:
            self._counts = counts
        return {topic: count for topic, count in counts.items() if count}


def decode_subscriptions(
    members: Iterable[states.JoinedMember],
) -> tuple[list[MemberSubscription], dict[str, MalformedMessage]]:
    """Return the members' subscriptions, and the error per member id that cannot be decoded.

    Such a member gets an empty subscription, so that the other members can go on.
    """
    subscriptions: list[MemberSubscription] = []
    unreadable: dict[str, MalformedMessage] = {}
    for member in members:
        try:
            subscription = decode_subscription(member.metadata)
        except MalformedMessage as error:
            unreadable[member.member_id] = error
            empty = MemberSubscription(member.member_id, (), member.group_instance_id)
            subscriptions.append(empty)
            continue
        subscriptions.append(
            MemberSubscription(
                member.member_id,
                tuple(subscription.topics),
                member.group_instance_id,
                subscription.user_data,
                tuple(flatten_by_topic(subscription.owned_partitions)),
                subscription.generation_id,
                subscription.rack_id,
            )
        )
    return subscriptions, unreadable


def replica_racks(
    metadata: MetadataSnapshot, names: Iterable[str]
) -> dict[TopicPartition, tuple[str, ...]]:
    """Return the replicas' racks per partition; empty if no rack is known."""
    racks = {id: node.rack for id, node in metadata.nodes.items() if node.rack}
    if not racks:
        return {}
    return {
        TopicPartition(name, number): tuple(
            dict.fromkeys(racks[node] for node in partition.replicas if node in racks)
        )
        for name in names
        if name in metadata.topics
        for number, partition in metadata.topics[name].partitions.items()
    }


@contextmanager
def raising_group_failed(assignor: Assignor) -> Iterator[None]:
    """Raise `GroupFailed` from any exception of an assignor, which may be the application's."""
    try:
        yield
    except Exception as error:
        raise GroupFailed(f"the assignor {assignor.name!r} failed: {error!r}") from error


def compute_assignments(
    assignor: Assignor,
    counts: Mapping[str, int],
    members: Sequence[MemberSubscription],
    racks: Mapping[TopicPartition, tuple[str, ...]],
) -> dict[str, tuple[TopicPartition, ...]]:
    """Run an assignor, and return its checked result with an entry for each member id.

    Raises:
        GroupFailed: The assignor failed or returned an invalid assignment.
    """
    with raising_group_failed(assignor):
        assignment = assignor.assign(counts, members, racks)
    known = {member.member_id: member for member in members}
    owners: dict[TopicPartition, str] = {}
    for member_id, partitions in assignment.items():
        for tp in partitions:
            if member_id not in known or owners.setdefault(tp, member_id) != member_id:
                raise GroupFailed(
                    f"the assignor {assignor.name!r} assigned {tp} to two members or an unknown one"
                )
    if assignor.cooperative:
        _check_not_taken(assignor, members, owners)
    return {member.member_id: tuple(assignment.get(member.member_id, ())) for member in members}


def encode_assignments(
    assignments: Mapping[str, Sequence[TopicPartition]],
) -> dict[str, bytes]:
    """Encode the partitions of each member for SyncGroup."""
    return {member_id: encode_assignment(given) for member_id, given in assignments.items()}


def _check_not_taken(
    assignor: Assignor,
    members: Sequence[MemberSubscription],
    owners: Mapping[TopicPartition, str],
) -> None:
    """Check that no partition is assigned to another member while it is still owned (KIP-429).

    If several members claim a partition, the newest generation owns it; if that is not exactly one
    member, nobody does.
    """
    newest: dict[TopicPartition, int] = {}
    claims: dict[TopicPartition, list[str]] = {}
    for member in members:
        for tp in member.owned:
            if member.generation > newest.get(tp, -2):
                newest[tp], claims[tp] = member.generation, []
            if member.generation == newest[tp]:
                claims[tp].append(member.member_id)
    for tp, claiming in claims.items():
        if len(claiming) == 1 and owners.get(tp, claiming[0]) != claiming[0]:
            raise GroupFailed(
                f"the assignor {assignor.name!r} assigned {tp} while another member still owns it"
            )
