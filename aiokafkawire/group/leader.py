"""The leader's part of the group protocol: whose subscription says what, and who gets what."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.errors import GroupFailed, MalformedMessage
from aiokafkawire.logs import NO_FIELDS, RateLimit, log_fields
from aiokafkawire.runtime import Clock
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.consumer_protocol import (
    decode_subscription,
    encode_assignment,
    flatten_by_topic,
)

from . import states
from .assignors import Assignor, MemberSubscription

__all__ = (
    "GroupLeader",
    "compute_assignments",
    "decode_subscriptions",
    "raising_group_failed",
    "replica_racks",
)

logger = logging.getLogger("aiokafkawire.group")


class GroupLeader:
    """Divides the partitions of a group, and watches whether there are more or fewer of them.

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
        self._limit = RateLimit()
        self._cluster = cluster
        self._clock = clock
        self._group_id = group_id
        self._assignors = assignors
        self._counts: dict[str, int] = {}

    async def assign(
        self, protocol: str, joined: Sequence[states.JoinResponseMember]
    ) -> dict[str, bytes]:
        """The encoded assignment of each member. Raises `GroupFailed`."""
        members = self._read(joined)
        counts = await self._count(topics_of(members))
        racks = replica_racks(self._cluster.metadata, counts)
        return compute_assignments(self._assignors[protocol], counts, members, racks)

    async def watch(self, joined: Sequence[states.JoinResponseMember]) -> None:
        """Watch without having assigned."""
        await self._count(topics_of(self._read(joined)))

    def stop_watching(self) -> None:
        """Another one leads, or nobody does."""
        if self._counts:
            self._cluster.remove_topics(self._counts)
            self._counts = {}

    def find_changed_topic(self) -> str | None:
        """Why what was assigned is out of date, if it is."""
        metadata = self._cluster.metadata
        for topic, count in self._counts.items():
            now = len(metadata.partitions(topic))
            gone = metadata.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if now != count and (now or gone):
                return f"topic {topic!r} has {now} partitions, not {count}"
        return None

    def _read(self, joined: Sequence[states.JoinResponseMember]) -> list[MemberSubscription]:
        members, unreadable = decode_subscriptions(joined)
        for member_id, error in unreadable.items():
            logger.log(
                self._limit.level(logging.WARNING, member_id, self._clock.now()),
                "Group %s: member %s gets no partitions: its subscription cannot be decoded: %s",
                self._group_id,
                member_id,
                error,
                extra=log_fields(
                    self._fields, error=error, group=self._group_id, member_id=member_id
                ),
            )
        return members

    async def _count(self, topics: Sequence[str]) -> dict[str, int]:
        """How many partitions each topic has; topics that do not exist (yet) are left out."""
        self.stop_watching()
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
        if list(self._counts) == list(topics):
            self._counts = counts
        return {topic: count for topic, count in counts.items() if count}


def decode_subscriptions(
    members: Iterable[states.JoinResponseMember],
) -> tuple[list[MemberSubscription], dict[str, MalformedMessage]]:
    """What the members subscription the leader, and whose words cannot be read.

    Such a member is taken for one that subscribes to nothing: the others are not to suffer for it.
    """
    subscriptions: list[MemberSubscription] = []
    unreadable: dict[str, MalformedMessage] = {}
    for member in members:
        try:
            subscription = decode_subscription(member.metadata)
        except MalformedMessage as error:
            unreadable[member.member_id] = error
            nothing = MemberSubscription(member.member_id, (), member.group_instance_id)
            subscriptions.append(nothing)
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


@contextmanager
def raising_group_failed(assignor: Assignor) -> Iterator[None]:
    """What an assignor raises is `GroupFailed`: it may be the application's own."""
    try:
        yield
    except Exception as error:
        raise GroupFailed(f"the assignor {assignor.name!r} failed: {error!r}") from error


def compute_assignments(
    assignor: Assignor,
    counts: Mapping[str, int],
    members: Sequence[MemberSubscription],
    racks: Mapping[TopicPartition, tuple[str, ...]],
) -> dict[str, bytes]:
    """Run an assignor, and hold its result to what it must be. Raises `GroupFailed`."""
    with raising_group_failed(assignor):
        assignment = assignor.assign(counts, members, racks)
    known = {member.member_id: member for member in members}
    owners: dict[TopicPartition, str] = {}
    for member_id, partitions in assignment.items():
        for tp in partitions:
            if member_id not in known or owners.setdefault(tp, member_id) != member_id:
                raise GroupFailed(f"the assignor {assignor.name!r} gives {tp} to the wrong member")
    if assignor.cooperative:
        _check_not_taken(assignor, members, owners)
    return {
        member.member_id: encode_assignment(assignment.get(member.member_id, ()))
        for member in members
    }


def _check_not_taken(
    assignor: Assignor,
    members: Sequence[MemberSubscription],
    owners: Mapping[TopicPartition, str],
) -> None:
    """What a member still owns goes to nobody else before that one has given it back (KIP-429).

    Of several that say so the newest generation is believed, and none if that is not one member.
    """
    newest: dict[TopicPartition, int] = {}
    owners_by_claim: dict[TopicPartition, list[str]] = {}
    for member in members:
        for tp in member.owned:
            if member.generation > newest.get(tp, -2):
                newest[tp], owners_by_claim[tp] = member.generation, []
            if member.generation == newest[tp]:
                owners_by_claim[tp].append(member.member_id)
    for tp, held_by in owners_by_claim.items():
        if len(held_by) == 1 and owners.get(tp, held_by[0]) != held_by[0]:
            raise GroupFailed(
                f"the assignor {assignor.name!r} gives {tp} away while another member owns it"
            )
