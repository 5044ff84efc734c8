"""Metadata requests, and the error when no bootstrap address responds."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafkawire.config import ClientConfig
from aiokafkawire.connection import BrokerClient, VersionedRequest
from aiokafkawire.errors import KafkaError, NoBrokerAvailable, RequestTimedOut
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)

__all__ = (
    "fetch_metadata",
    "metadata_request",
    "no_broker_available",
    "reason_with_broker",
    "with_previous_reason",
)

CONTROLLER_ENDPOINTS = 2
FIRST_WITH_ENDPOINT_TYPE = 1
"""DescribeCluster version that can list the controllers (KIP-919)."""

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


async def fetch_metadata(
    client: BrokerClient, wanted: Sequence[str] | None, config: ClientConfig, deadline: float
) -> MetadataResponse:
    """Request metadata from a broker, or the nodes of the quorum from a controller.

    Args:
        client: The broker or controller.
        wanted: Topics to request from a broker; None for all.
        config: Options of the client.
        deadline: End of the wait for the response.
    """
    if not config.uses_controllers:
        request = metadata_request(wanted, allow_creation=config.allow_auto_create_topics)
        return await client.request(request, deadline=deadline)
    # Producers and consumers never need it.
    from aiokafkawire.wire.messages.describe_cluster import (  # noqa: PLC0415
        DescribeClusterRequest,
    )

    response = await client.request(
        DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=CONTROLLER_ENDPOINTS
        ),
        deadline=deadline,
        min_version=FIRST_WITH_ENDPOINT_TYPE,
    )
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack
            )
            for node in response.brokers
        ],
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        topics=[],
        error_code=response.error_code,
    )


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
