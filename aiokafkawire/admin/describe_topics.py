"""Describes topics by DescribeTopicPartitions, page by page, or by Metadata."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from aiokafkawire.admin.items import PARTITION_LOOKUPS, UNKNOWN_ITEM_CODES, response_error
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.response_values import unless_zero
from aiokafkawire.admin.routing import RETRIED_CODES
from aiokafkawire.admin.types.acl_operation import AclOperation, authorized_operations
from aiokafkawire.admin.types.topics import TopicDescription, TopicPartitionInfo
from aiokafkawire.cluster.bootstrap import FIRST_WITH_ALLOW_AUTO_TOPIC_CREATION
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import BrokerError, KafkaError, ProtocolError, UnsupportedVersion
from aiokafkawire.types import NodeId
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.lazy_arrays import iter_fields
from aiokafkawire.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponseTopic,
    DescribeTopicPartitionsTopicRequest,
)
from aiokafkawire.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

__all__ = ("MAX_PARTITIONS_PER_PAGE", "TopicDescriber")

MAX_PARTITIONS_PER_PAGE = 2_000
"""Partitions in one DescribeTopicPartitions response, as brokers limit them by default."""

MAX_TOPICS_PER_REQUEST = 200
"""Topics in one DescribeTopicPartitions request; requests for other topics run in parallel."""

FIRST_WITH_AUTHORIZED_OPERATIONS = 8
FIRST_WITH_TOPIC_IDS = 12
"""Metadata version whose requests may name topics by id."""

_PAGES = "DescribeTopicPartitions"

Topic = str | UUID


class TopicDescriber:
    """Describes topics for one call."""

    def __init__(self, requester: Requester, *, include_authorized_operations: bool) -> None:
        self._requester = requester
        self._with_operations = include_authorized_operations
        self._has_pages = True
        # Partitions share the tuples of their replicas: the garbage collector's work grows with the
        # number of objects.
        self._known_ids: dict[tuple[NodeId, ...], tuple[NodeId, ...]] = {}

    async def describe(
        self, topics: Collection[Topic]
    ) -> dict[Topic, TopicDescription | KafkaError]:
        """Return the description or error of each topic, by name or id as given."""
        for topic in topics:
            if not isinstance(topic, Topic):
                raise TypeError(f"a topic must be a name or a UUID, not {topic!r:.80}")
        return await self._requester.retry_items(topics, self._attempt, _is_final)

    async def _attempt(
        self, topics: Sequence[Topic], _: int
    ) -> dict[Topic, TopicDescription | KafkaError]:
        names = [topic for topic in topics if isinstance(topic, str)]
        ids = [topic for topic in topics if isinstance(topic, UUID)]
        results: dict[Topic, TopicDescription | KafkaError] = {}
        try:
            if names:
                results |= await self._by_name(names)
        except KafkaError as error:
            results.update(dict.fromkeys(names, error))
        try:
            if ids:
                results |= await self._by_id(ids)
        except KafkaError as error:
            results.update(dict.fromkeys(ids, error))
        return results

    # --- DescribeTopicPartitions ---

    async def _by_name(self, names: Sequence[str]) -> Mapping[Topic, TopicDescription | KafkaError]:
        """Read the pages of some topics, then those of all others in parallel."""
        if not self._has_pages:
            return await self._by_metadata(names)
        in_order = sorted(names)
        size = MAX_TOPICS_PER_REQUEST
        first, *others = (in_order[at : at + size] for at in range(0, len(in_order), size))
        try:
            results = await self._pages(first)
        except UnsupportedVersion:
            self._has_pages = False
            return await self._by_metadata(names)

        async def read(some: Sequence[str]) -> None:
            try:
                results.update(await self._pages(some))
            except KafkaError as error:
                results.update(dict.fromkeys(some, error))

        await self._requester.run_parallel(read, [(some,) for some in others])
        return results

    async def _pages(self, in_order: Sequence[str]) -> dict[Topic, TopicDescription | KafkaError]:
        """Read all pages of sorted topics; the partitions of a topic may be on several pages."""
        places = {name: place for place, name in enumerate(in_order)}
        found: dict[str, TopicDescription | KafkaError] = {}
        cursor: Cursor | None = None
        while True:
            start = 0 if cursor is None else places[cursor.topic_name]
            response = await self._requester.request(
                DescribeTopicPartitionsRequest(
                    topics=[
                        DescribeTopicPartitionsTopicRequest(name=name) for name in in_order[start:]
                    ],
                    response_partition_limit=MAX_PARTITIONS_PER_PAGE,
                    cursor=cursor,
                )
            )
            for topic in response.topics:
                if topic.name is not None and topic.name in places:
                    found[topic.name] = self._paged_topic(topic.name, topic, found.get(topic.name))
            following = response.next_cursor
            if following is None:
                break
            if following.topic_name not in places or (
                cursor is not None and _place(following) <= _place(cursor)
            ):
                raise ProtocolError(
                    f"the DescribeTopicPartitions response continues at {following.topic_name!r}"
                    f" partition {following.partition_index}, which is no later page",
                    api=_PAGES,
                )
            cursor = following
        return {name: found.get(name) or _missing(_PAGES, name) for name in in_order}

    def _paged_topic(
        self,
        name: str,
        topic: DescribeTopicPartitionsResponseTopic,
        earlier: TopicDescription | KafkaError | None,
    ) -> TopicDescription | KafkaError:
        """Return a topic with the partitions of a page, and those of the pages before it."""
        error = response_error(topic.error_code, api=_PAGES, topic=name)
        if error is not None:
            return error
        partitions = self._paged_partitions(topic)
        if isinstance(earlier, TopicDescription):
            partitions = {**earlier.partitions, **partitions}
        return TopicDescription(
            name,
            unless_zero(topic.topic_id),
            topic.is_internal,
            _in_order(partitions),
            self._operations(topic.topic_authorized_operations),
        )

    def _paged_partitions(
        self, topic: DescribeTopicPartitionsResponseTopic
    ) -> dict[int, TopicPartitionInfo]:
        shared = self._known_ids.setdefault
        return {
            number: TopicPartitionInfo(
                number,
                leader_id if leader_id >= 0 else None,
                leader_epoch if leader_epoch >= 0 else None,
                shared(replicas, replicas),
                shared(isr, isr),
                offline and shared(offline, offline),
                eligible,
                last_known,
            )
            for (
                _,
                number,
                leader_id,
                leader_epoch,
                replicas,
                isr,
                eligible,
                last_known,
                offline,
            ) in iter_fields(topic, "partitions")
        }

    def _metadata_partitions(self, topic: MetadataResponseTopic) -> dict[int, TopicPartitionInfo]:
        shared = self._known_ids.setdefault
        return {
            number: TopicPartitionInfo(
                number,
                leader_id if leader_id >= 0 else None,
                leader_epoch if leader_epoch >= 0 else None,
                shared(replicas, replicas),
                shared(isr, isr),
                offline and shared(offline, offline),
            )
            for _, number, leader_id, leader_epoch, replicas, isr, offline in iter_fields(
                topic, "partitions"
            )
        }

    def _operations(self, bits: int) -> frozenset[AclOperation] | None:
        return authorized_operations(bits) if self._with_operations else None

    # --- Metadata ---

    async def _by_metadata(
        self, names: Sequence[str]
    ) -> dict[Topic, TopicDescription | KafkaError]:
        asked_for_all = False

        def build(version: int) -> MetadataRequest:
            nonlocal asked_for_all
            # Before v4, naming a topic may create it: ask for all topics.
            asked_for_all = version < FIRST_WITH_ALLOW_AUTO_TOPIC_CREATION
            if asked_for_all:
                return MetadataRequest(topics=None if version >= 1 else [])
            return MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=self._with_operations,
            )

        response = await self._metadata(
            build, FIRST_WITH_AUTHORIZED_OPERATIONS if self._with_operations else 0
        )
        found = {topic.name: topic for topic in response.topics}
        results: dict[Topic, TopicDescription | KafkaError] = {}
        for name in names:
            topic = found.get(name)
            if topic is None and asked_for_all:
                error = response_error(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, api="Metadata", topic=name
                )
                assert error is not None
                results[name] = error
            else:
                results[name] = self._metadata_topic(name, topic)
        return results

    async def _by_id(self, ids: Sequence[UUID]) -> dict[Topic, TopicDescription | KafkaError]:
        def build(_: int) -> MetadataRequest:
            return MetadataRequest(
                topics=[MetadataRequestTopic(topic_id=each, name=None) for each in ids],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=self._with_operations,
            )

        response = await self._metadata(build, FIRST_WITH_TOPIC_IDS)
        found = {topic.topic_id: topic for topic in response.topics}
        return {each: self._metadata_topic(each, found.get(each)) for each in ids}

    async def _metadata(
        self, build: Callable[[int], MetadataRequest], min_version: int
    ) -> MetadataResponse:
        request: VersionedRequest[MetadataResponse] = VersionedRequest(ApiKey.METADATA, build)
        return await self._requester.request(request, min_version=min_version)

    def _metadata_topic(
        self, asked: Topic, topic: MetadataResponseTopic | None
    ) -> TopicDescription | KafkaError:
        if topic is None:
            return _missing("Metadata", asked)
        error = response_error(topic.error_code, api="Metadata", topic=str(asked))
        if error is not None:
            return error
        if not topic.name:
            return _missing("Metadata", asked)
        return TopicDescription(
            topic.name,
            unless_zero(topic.topic_id),
            topic.is_internal,
            _in_order(self._metadata_partitions(topic)),
            self._operations(topic.topic_authorized_operations),
        )


def _is_final(error: KafkaError, count: int) -> bool:
    if isinstance(error, BrokerError):
        if error.code in UNKNOWN_ITEM_CODES:
            return count >= PARTITION_LOOKUPS
        return error.code not in RETRIED_CODES
    return not error.retriable


def _missing(api: str, topic: Topic) -> ProtocolError:
    return ProtocolError(f"the {api} response lacks topic {topic}", api=api, topic=str(topic))


def _place(cursor: Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _in_order(partitions: dict[int, TopicPartitionInfo]) -> dict[int, TopicPartitionInfo]:
    numbers = [*partitions]
    ordered = sorted(numbers)
    return partitions if numbers == ordered else {each: partitions[each] for each in ordered}
