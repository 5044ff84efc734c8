"""The first contact with a cluster: how to ask for its metadata, and what to say if it fails."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import KafkaError, NoBrokerAvailable, RequestTimedOut
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

__all__ = ("metadata_request", "no_broker_available", "with_previous_reason")

FIRST_WITH_ALLOW_AUTO_TOPIC_CREATION = 4
"""Older versions make a topic that is named, where the broker makes topics on demand."""


def metadata_request(
    wanted: Sequence[str] | None, *, allow_creation: bool
) -> VersionedRequest[MetadataResponse]:
    """A request for some topics, or all (None); the answer may tell of more than was asked for."""
    careful = bool(wanted) and not allow_creation

    def build(version: int) -> MetadataRequest:
        topics: list[MetadataRequestTopic] | None
        if wanted is None or (careful and version < FIRST_WITH_ALLOW_AUTO_TOPIC_CREATION):
            topics = None if version >= 1 else []
        else:
            # Version 0 takes an empty list for all topics; the reader leaves out the rest.
            topics = [MetadataRequestTopic(name=name) for name in wanted]
        if version < FIRST_WITH_ALLOW_AUTO_TOPIC_CREATION:
            return MetadataRequest(topics=topics)
        return MetadataRequest(topics=topics, allow_auto_topic_creation=allow_creation)

    return VersionedRequest(ApiKey.METADATA, build)


def no_broker_available(failures: Sequence[KafkaError]) -> NoBrokerAvailable:
    """One error for the failures of all bootstrap addresses; final if each of them is."""
    reasons = "; ".join(
        error.reason
        if not error.broker or error.reason.startswith(f"{error.broker}: ")
        else f"{error.broker}: {error.reason}"
        for error in failures
    )
    return NoBrokerAvailable(
        f"no broker of bootstrap_servers could be used: {reasons}",
        retriable=any(error.retriable for error in failures),
    )


def with_previous_reason(failure: KafkaError, earlier: KafkaError | None) -> KafkaError:
    """The last failure; if it is a deadline, with the reason why the time before it ran out."""
    if isinstance(failure, RequestTimedOut) and not isinstance(earlier, RequestTimedOut | None):
        failure.reason += f"; the attempt before: {earlier.reason}"
    return failure
