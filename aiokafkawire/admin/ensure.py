"""Operations beyond Java's: topics that must exist, and the wait until all brokers know them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, overload

from aiokafkawire.admin.arguments import as_list, new_topics
from aiokafkawire.admin.configs import ConfigOperations
from aiokafkawire.admin.items import finish_items
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.topic_partitions import PartitionOperations
from aiokafkawire.admin.topics import TopicOperations
from aiokafkawire.admin.types.configs import ConfigResource, ConfigResourceType
from aiokafkawire.admin.types.topics import (
    CreatedTopic,
    EnsuredTopic,
    NewTopic,
    TopicDescription,
)
from aiokafkawire.cluster.bootstrap import metadata_request
from aiokafkawire.cluster.metadata import EMPTY_SNAPSHOT
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode, error_for

__all__ = ("EnsureOperations",)


class EnsureOperations(TopicOperations, PartitionOperations, ConfigOperations):
    """Operations that combine others."""

    async def wait_for_topics(
        self, topics: Collection[str], *, timeout_ms: int | None = None
    ) -> dict[str, TopicDescription]:
        """Wait until all brokers know some topics, and each partition has a leader.

        Use it after `create_topics`, before other clients use the topics.

        Args:
            topics: Names of the topics.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The descriptions by name.

        Raises:
            PartialFailure: Some topics were not ready before the deadline.
            KafkaError: No broker could answer.
        """
        requester = self._requester(timeout_ms)
        wanted = list(dict.fromkeys(as_list("topics", topics)))

        async def attempt(names: Collection[str], _: int) -> dict[str, KafkaError | None]:
            return await _unready_topics(requester, names)

        results = await requester.retry_items(wanted, attempt, _is_final)
        finish_items(results, "topics")
        described = await self.describe_topics(wanted, timeout_ms=requester.left_ms)
        return {name: described[name] for name in wanted}

    @overload
    async def ensure_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, EnsuredTopic]: ...

    @overload
    async def ensure_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str, EnsuredTopic | KafkaError]: ...

    async def ensure_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, EnsuredTopic | KafkaError]:
        """Create topics that do not exist, and bring those that do up to date; idempotent.

        A topic that exists gets more partitions if it has fewer than `num_partitions`, and the
        values of `configs`. All else stays: partitions beyond `num_partitions`, other configs, and
        replicas. Several services may call it at the same time. Returns when all brokers know the
        topics. For topics that are up to date, the principal needs the permission Describe alone,
        and DescribeConfigs for those with `configs`.

        ::

            await admin.ensure_topics([NewTopic("orders", 6, configs={"retention.ms": "-1"})])

        Args:
            topics: The topics; a name alone is a topic with the brokers' defaults.
            validate_only: Change nothing, and return the changes that would be made.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            What was changed, by topic.

        Raises:
            PartialFailure: Some topics could not be created or changed.
            UnsupportedVersion: A topic does not exist, and brokers before 0.10.1 cannot create it.
            KafkaError: The brokers could not be reached.
        """
        wanted = {topic.name: topic for topic in new_topics(topics)}
        requester = self._requester(timeout_ms)
        existing = await _existing_topics(requester, wanted)
        missing = [topic for name, topic in wanted.items() if name not in existing]
        results = await self._create(requester, missing, validate_only=validate_only)
        # Another client may have created some meanwhile.
        existing |= {
            name: wanted[name]
            for name, result in results.items()
            if getattr(result, "code", None) == ErrorCode.TOPIC_ALREADY_EXISTS
        }
        if existing:
            update = _Update(self, requester, existing, validate_only)
            results |= await update.run()
        if not validate_only:
            ready = [name for name, each in results.items() if not isinstance(each, KafkaError)]
            if ready:
                await self.wait_for_topics(ready, timeout_ms=requester.left_ms)
        in_order = {name: results[name] for name in wanted}
        return finish_items(in_order, "topics", return_errors=return_errors)

    async def _create(
        self, requester: Requester, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> dict[str, EnsuredTopic | KafkaError]:
        if not topics:
            return {}
        created = await self.create_topics(
            topics, validate_only=validate_only, timeout_ms=requester.left_ms, return_errors=True
        )
        return {name: _created(name, result) for name, result in created.items()}


async def _existing_topics(
    requester: Requester, topics: Mapping[str, NewTopic]
) -> dict[str, NewTopic]:
    """Return the topics that a broker knows; it may not know those created a moment ago."""
    if not topics:
        return {}
    response = await requester.request(metadata_request([*topics], allow_creation=False))
    known = EMPTY_SNAPSHOT.with_response(response, [*topics]).snapshot.topics
    return {name: topic for name, topic in topics.items() if name in known}


def _created(name: str, result: CreatedTopic | KafkaError) -> EnsuredTopic | KafkaError:
    return result if isinstance(result, KafkaError) else EnsuredTopic(name, is_created=True)


class _Update:
    """Changes of topics that exist already."""

    def __init__(
        self,
        admin: EnsureOperations,
        requester: Requester,
        topics: Mapping[str, NewTopic],
        validate_only: bool,
    ) -> None:
        self._admin = admin
        self._requester = requester
        self._topics = topics
        self._options: dict[str, Any] = {"validate_only": validate_only, "return_errors": True}

    async def run(self) -> dict[str, EnsuredTopic | KafkaError]:
        added = await self._add_partitions()
        altered = await self._alter_configs()
        results: dict[str, EnsuredTopic | KafkaError] = {}
        for name in self._topics:
            partitions, configs = added.get(name, 0), altered.get(name, {})
            if isinstance(partitions, KafkaError):
                results[name] = partitions
            elif isinstance(configs, KafkaError):
                results[name] = configs
            else:
                results[name] = EnsuredTopic(
                    name, is_created=False, added_partitions=partitions, altered_configs=configs
                )
        return results

    async def _add_partitions(self) -> dict[str, int | KafkaError]:
        """Return the number of added partitions, or the error, by topic."""
        totals = {
            name: total for name, topic in self._topics.items() if (total := _partitions(topic))
        }
        results: dict[str, int | KafkaError] = {}
        missing: dict[str, int] = {}
        before = await self._count(totals)
        for name, count in before.items():
            if isinstance(count, KafkaError):
                results[name] = count
            elif count < totals[name]:
                missing[name] = totals[name] - count
        if not missing:
            return results
        changed = await self._admin.create_partitions(
            {name: totals[name] for name in missing},
            timeout_ms=self._requester.left_ms,
            **self._options,
        )
        refused = [
            name
            for name, error in changed.items()
            if getattr(error, "code", None) == ErrorCode.INVALID_PARTITIONS
        ]
        # Another client may have added them meanwhile.
        after = await self._count(refused)
        for name, error in changed.items():
            now = after.get(name)
            if isinstance(now, int) and now >= totals[name]:
                continue
            results[name] = missing[name] if error is None else error
        return results

    async def _count(self, names: Collection[str]) -> dict[str, int | KafkaError]:
        if not names:
            return {}
        described = await self._admin.describe_topics(
            list(names), timeout_ms=self._requester.left_ms, return_errors=True
        )
        return {
            name: topic if isinstance(topic, KafkaError) else len(topic.partitions)
            for name in names
            for topic in [described[name]]
        }

    async def _alter_configs(self) -> dict[str, dict[str, str | None] | KafkaError]:
        """Return the configs that were altered, or the error, by topic."""
        resources = {
            ConfigResource(ConfigResourceType.TOPIC, name): topic.configs
            for name, topic in self._topics.items()
            if topic.configs
        }
        if not resources:
            return {}
        current = await self._admin.describe_configs(
            {resource: list(configs) for resource, configs in resources.items()},
            timeout_ms=self._requester.left_ms,
            return_errors=True,
        )
        results: dict[str, dict[str, str | None] | KafkaError] = {}
        changes: dict[ConfigResource, dict[str, str | None]] = {}
        for resource, entries in current.items():
            if isinstance(entries, KafkaError):
                results[resource.name] = entries
                continue
            values = {name: entry.value for name, entry in entries.items()}
            changed = {
                name: value
                for name, value in resources[resource].items()
                if name not in values or values[name] != value
            }
            if changed:
                changes[resource] = changed
        if changes:
            altered = await self._admin.incremental_alter_configs(
                changes, timeout_ms=self._requester.left_ms, **self._options
            )
            for resource, error in altered.items():
                results[resource.name] = changes[resource] if error is None else error
        return results


def _partitions(topic: NewTopic) -> int | None:
    if topic.replica_assignments is not None:
        return len(topic.replica_assignments)
    return topic.num_partitions


def _is_final(error: KafkaError, _: int) -> bool:
    return not error.retriable


async def _unready_topics(
    requester: Requester, names: Collection[str]
) -> dict[str, KafkaError | None]:
    """Return the reason why each topic cannot be used at all brokers yet; None if it can."""
    responses = await requester.request_all(metadata_request(list(names), allow_creation=False))
    results: dict[str, KafkaError | None] = dict.fromkeys(names)
    for node_id, response in responses.items():
        if isinstance(response, KafkaError):
            return dict.fromkeys(names, response)
        snapshot = EMPTY_SNAPSHOT.with_response(response, list(names)).snapshot
        for name in names:
            topic = snapshot.topics.get(name)
            code = None
            if topic is None or not topic.partitions:
                code = snapshot.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif any(
                snapshot.leader(TopicPartition(name, partition)) is None
                for partition in topic.partitions
            ):
                code = ErrorCode.LEADER_NOT_AVAILABLE
            if code is not None:
                results[name] = error_for(code, api="Metadata", broker=str(node_id), topic=name)
    return results
