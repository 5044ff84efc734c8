"""Wait until the metadata has what a call needs: a topic, the nodes, the controller."""

from __future__ import annotations

from aiokafkawire.cluster.metadata import TopicMetadata
from aiokafkawire.cluster.metadata_updater import MetadataUpdater
from aiokafkawire.errors import KafkaError, NoBrokerAvailable, RequestTimedOut, UnknownTopic
from aiokafkawire.wire import ErrorCode, error_for

__all__ = ("MAX_UNKNOWN_TOPIC_RESPONSES", "wait_controller", "wait_nodes", "wait_topic")

MAX_UNKNOWN_TOPIC_RESPONSES = 3
"""UNKNOWN_TOPIC_OR_PARTITION responses until `UnknownTopic`, without automatic topic creation."""


async def wait_topic(
    updater: MetadataUpdater, name: str, deadline: float, *, auto_create: bool
) -> TopicMetadata:
    """Return the metadata of a topic once a refresh has it; see `Cluster.topic_metadata`.

    Args:
        updater: Has been asked to refresh the topic.
        name: The topic.
        deadline: End of the wait.
        auto_create: Whether brokers may create the topic.
    """
    version = updater.metadata.version
    unknown_responses = 0
    while await updater.wait_update(version, deadline, fail_early=True):
        metadata = updater.metadata
        version = metadata.version
        topic = metadata.topics.get(name)
        if topic is not None and topic.partitions:
            return topic
        code = metadata.errors.get(name)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            unknown_responses += 1
            if not auto_create and unknown_responses >= MAX_UNKNOWN_TOPIC_RESPONSES:
                raise UnknownTopic(
                    f"topic {name!r} does not exist, and allow_auto_create_topics is off",
                    topic=name,
                )
        elif code is not None:
            error = error_for(code, api="Metadata", broker=updater.source, topic=name)
            if not error.retriable:
                raise error
        updater.request_update((name,))
    raise _topic_timeout(updater, name)


def _topic_timeout(updater: MetadataUpdater, name: str) -> KafkaError:
    code = updater.metadata.errors.get(name)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopic(
            f"topic {name!r} does not exist, and no broker created it before the deadline (is"
            " auto.create.topics.enable off?)",
            topic=name,
        )
    if code is not None:
        return UnknownTopic(
            f"topic {name!r} was not ready before the deadline: {error_for(code).reason}",
            topic=name,
        )
    return RequestTimedOut(
        f"no broker returned metadata of topic {name!r} before the deadline{_failure(updater)}",
        sent=False,
        topic=name,
        api="Metadata",
    )


async def wait_nodes(updater: MetadataUpdater, deadline: float) -> None:
    """Wait for the first metadata; only needed after a start without `connect_on_start`."""
    while not updater.metadata.nodes:
        if not await updater.wait_update(updater.metadata.version, deadline, fail_early=True):
            raise NoBrokerAvailable(
                f"no broker could be reached before the deadline{_failure(updater)}"
            )


async def wait_controller(updater: MetadataUpdater, deadline: float) -> None:
    """Wait until the controller is known."""
    while updater.metadata.controller_id not in updater.metadata.nodes:
        version = updater.metadata.version
        updater.request_update()
        if not await updater.wait_update(version, deadline, fail_early=True):
            raise RequestTimedOut("the cluster had no controller before the deadline", sent=False)


def _failure(updater: MetadataUpdater) -> str:
    """Return the reason of the last failed refresh, as the end of an error text."""
    return "" if updater.last_failure is None else f": {updater.last_failure.reason}"
