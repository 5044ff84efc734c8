"""Metadata requests, and the error when no bootstrap address responds."""

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

__all__ = (
    "metadata_request",
    "no_broker_available",
    "reason_with_broker",
    "with_previous_reason",
)

FIRST_WITH_ALLOW_AUTO_TOPIC_CREATION = 4
"""Metadata version that can forbid topic creation; older requests may create the named topics."""


def metadata_request(
    wanted: Sequence[str] | None, *, allow_creation: bool
) -> VersionedRequest[MetadataResponse]:
    """Build a Metadata request.

    Args:
        wanted: Topics to request; None for all.
        allow_creation: Whether the broker may create missing topics. If not, a request below v4
            is for all topics, because naming a topic there may create it.

    Returns:
        The request. Its response may contain more topics than `wanted`.
    """
    avoid_creation = bool(wanted) and not allow_creation

    def build(version: int) -> MetadataRequest:
        topics: list[MetadataRequestTopic] | None
        if wanted is None or (avoid_creation and version < FIRST_WITH_ALLOW_AUTO_TOPIC_CREATION):
            topics = None if version >= 1 else []
        else:
            # v0 returns all topics for an empty list; the caller skips the others.
            topics = [MetadataRequestTopic(name=name) for name in wanted]
        if version < FIRST_WITH_ALLOW_AUTO_TOPIC_CREATION:
            return MetadataRequest(topics=topics)
        return MetadataRequest(topics=topics, allow_auto_topic_creation=allow_creation)

    return VersionedRequest(ApiKey.METADATA, build)


def no_broker_available(failures: Sequence[KafkaError]) -> NoBrokerAvailable:
    """Return one error for the failures of all bootstrap addresses; retriable if any of them is."""
    reasons = [*map(reason_with_broker, failures)]
    return NoBrokerAvailable(
        f"no broker of bootstrap_servers could be used: {'; '.join(reasons)}",
        reasons=reasons,
        retriable=any(error.retriable for error in failures),
    )


def reason_with_broker(error: KafkaError) -> str:
    """Return "broker: reason"; the reason alone if it begins with the broker's address."""
    if not error.broker or error.reason.startswith((f"{error.broker}: ", f"{error.broker} (")):
        return error.reason
    return f"{error.broker}: {error.reason}"


def with_previous_reason(failure: KafkaError, earlier: KafkaError | None) -> KafkaError:
    """Return `failure`; append the reason of the earlier attempt to a timeout without it."""
    if (
        isinstance(failure, RequestTimedOut)
        and not isinstance(earlier, RequestTimedOut | None)
        and earlier.reason not in failure.reason
    ):
        failure.reason += f"; the attempt before: {earlier.reason}"
    return failure
