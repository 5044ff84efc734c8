"""Operations on topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, overload
from uuid import UUID

from aiokafkawire.admin.arguments import as_list, new_topics
from aiokafkawire.admin.describe_topics import TopicDescriber
from aiokafkawire.admin.items import ItemRequest, ItemResult, finish_items, topic_context
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.response_values import known_member, unless_negative, unless_zero
from aiokafkawire.admin.types.configs import ConfigEntry, ConfigSource
from aiokafkawire.admin.types.topics import (
    CreatedTopic,
    NewTopic,
    TopicDescription,
    TopicListing,
)
from aiokafkawire.cluster.bootstrap import metadata_request
from aiokafkawire.errors import KafkaError
from aiokafkawire.wire import ZERO_UUID, ApiKey
from aiokafkawire.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aiokafkawire.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

__all__ = ("TopicOperations",)

BROKER_DEFAULT = -1
FIRST_WITH_DEFAULTS = 4
"""CreateTopics version whose partitions and replicas may be the broker's default (KIP-464)."""

FIRST_WITH_VALIDATE_ONLY = 1
FIRST_WITH_TOPIC_IDS = 6
"""DeleteTopics version that can name topics by id (KIP-516)."""


class TopicOperations(Operations):
    """Operations on topics."""

    @overload
    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, CreatedTopic]: ...

    @overload
    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str, CreatedTopic | KafkaError]: ...

    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, CreatedTopic | KafkaError]:
        """Create topics.

        Brokers may take a moment to learn of a new topic: see `wait_for_topics`.

        ::

            await admin.create_topics([NewTopic("orders", num_partitions=6)])

        Args:
            topics: The topics; a name alone is a topic with the brokers' defaults.
            validate_only: Only check whether the topics could be created (Kafka 0.10.2+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The created topics by name.

        Raises:
            PartialFailure: Some topics were not created, such as those that exist already
                (TOPIC_ALREADY_EXISTS).
            UnsupportedVersion: Brokers before 0.10.1 cannot create topics.
            KafkaError: The controller could not be reached.
        """
        wanted = {topic.name: topic for topic in new_topics(topics)}

        def build(names: Sequence[str], version: int, timeout_ms: int) -> CreateTopicsRequest:
            return CreateTopicsRequest(
                topics=[_creatable(wanted[name], version) for name in names],
                timeout_ms=timeout_ms,
                validate_only=validate_only,
            )

        request: ItemRequest[str, CreatedTopic] = ItemRequest(
            api_key=ApiKey.CREATE_TOPICS,
            build=build,
            read=_read_created,
            context=topic_context,
            min_version=FIRST_WITH_VALIDATE_ONLY if validate_only else 0,
        )
        results = await self._requester(timeout_ms).request_items(request, wanted)
        return finish_items(results, "topics", return_errors=return_errors)

    async def delete_topics(
        self,
        topics: Iterable[str | UUID],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[str | UUID, KafkaError | None]:
        """Delete topics with all their records. This cannot be undone.

        Args:
            topics: Names, or ids (Kafka 2.8+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each deleted topic, by name or id as given.

        Raises:
            PartialFailure: Some topics were not deleted, such as those that do not exist.
            UnsupportedVersion: Brokers before 0.10.1 cannot delete topics, brokers before 2.8 not
                by id.
            KafkaError: The controller could not be reached.
        """
        wanted = list(dict.fromkeys(as_list("topics", topics)))
        names = [topic for topic in wanted if isinstance(topic, str)]
        ids = [topic for topic in wanted if isinstance(topic, UUID)]
        requester = self._requester(timeout_ms)
        results: dict[str | UUID, KafkaError | None] = {}
        if names:
            results |= await requester.request_items(_delete_by_name(), names)
        if ids:
            results |= await requester.request_items(_delete_by_id(), ids)
        in_order = {topic: results[topic] for topic in wanted}
        return finish_items(in_order, "topics", return_errors=return_errors)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: int | None = None
    ) -> dict[str, TopicListing]:
        """List the topics that the principal may describe, sorted by name.

        Args:
            include_internal: Include topics of the brokers, such as `__consumer_offsets`.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The topics by name.

        Raises:
            KafkaError: No broker could answer.
        """
        response = await self._requester(timeout_ms).request(
            metadata_request(None, allow_creation=False)
        )
        listings = {
            topic.name: TopicListing(topic.name, unless_zero(topic.topic_id), is_internal)
            for topic in response.topics
            if topic.name and ((is_internal := bool(topic.is_internal)) <= include_internal)
        }
        return {name: listings[name] for name in sorted(listings)}

    @overload
    async def describe_topics(
        self,
        topics: Collection[str | UUID],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str | UUID, TopicDescription]: ...

    @overload
    async def describe_topics(
        self,
        topics: Collection[str | UUID],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str | UUID, TopicDescription | KafkaError]: ...

    async def describe_topics(
        self,
        topics: Collection[str | UUID],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str | UUID, TopicDescription | KafkaError]:
        """Describe topics: their ids, partitions, leaders and replicas.

        Topics by name are read in pages of 2,000 partitions where the brokers support it
        (DescribeTopicPartitions, Kafka 3.8+).

        Args:
            topics: Names, or ids (Kafka 3.1+).
            include_authorized_operations: Ask for the operations that the principal may perform
                on each topic (Kafka 2.3+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The descriptions by name or id as given.

        Raises:
            PartialFailure: Some topics could not be described, such as those that do not exist.
            UnsupportedVersion: The brokers do not support topic ids or authorized operations.
            KafkaError: No broker could answer.
        """
        describer = TopicDescriber(
            self._requester(timeout_ms), include_authorized_operations=include_authorized_operations
        )
        results = await describer.describe(as_list("topics", topics))
        return finish_items(results, "topics", return_errors=return_errors)


def _creatable(topic: NewTopic, version: int) -> CreatableTopic:
    default = BROKER_DEFAULT if version >= FIRST_WITH_DEFAULTS else 1
    assignments = topic.replica_assignments
    if assignments is not None:
        default = BROKER_DEFAULT
    return CreatableTopic(
        name=topic.name,
        num_partitions=default if topic.num_partitions is None else topic.num_partitions,
        replication_factor=(
            default if topic.replication_factor is None else topic.replication_factor
        ),
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(replicas))
            for partition, replicas in (assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _read_created(response: CreateTopicsResponse) -> Iterable[ItemResult]:
    for topic in response.topics:
        yield ItemResult(topic.name, _created(topic), topic.error_code, topic.error_message)


def _created(topic: CreatableTopicResult) -> CreatedTopic:
    configs = None
    if topic.num_partitions >= 0 and topic.configs is not None:
        configs = {
            entry.name: ConfigEntry(
                entry.name,
                entry.value,
                known_member(ConfigSource, entry.config_source, ConfigSource.UNKNOWN),
                entry.read_only,
                entry.is_sensitive,
            )
            for entry in topic.configs
        }
    return CreatedTopic(
        topic.name,
        unless_zero(topic.topic_id),
        unless_negative(topic.num_partitions),
        unless_negative(topic.replication_factor),
        configs,
    )


def _delete_by_name() -> ItemRequest[Any, None]:
    def build(names: Sequence[str], version: int, timeout_ms: int) -> DeleteTopicsRequest:
        if version < FIRST_WITH_TOPIC_IDS:
            return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
        topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
        return DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)

    def read(response: DeleteTopicsResponse) -> Iterable[ItemResult]:
        for topic in response.responses:
            yield ItemResult(topic.name, None, topic.error_code, topic.error_message)

    return ItemRequest(api_key=ApiKey.DELETE_TOPICS, build=build, read=read, context=topic_context)


def _delete_by_id() -> ItemRequest[Any, None]:
    def build(ids: Sequence[UUID], _: int, timeout_ms: int) -> DeleteTopicsRequest:
        topics = [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids]
        return DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)

    def read(response: DeleteTopicsResponse) -> Iterable[ItemResult]:
        for topic in response.responses:
            yield ItemResult(topic.topic_id, None, topic.error_code, topic.error_message)

    def context(topic_id: UUID) -> Mapping[str, Any]:
        return {"topic": str(topic_id)}

    return ItemRequest(
        api_key=ApiKey.DELETE_TOPICS,
        build=build,
        read=read,
        context=context,
        min_version=FIRST_WITH_TOPIC_IDS,
    )
