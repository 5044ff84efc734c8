"""ApiVersions: the supported API versions and features."""

from __future__ import annotations

import re

from aiokafkawire.broker.features import supported
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

__all__ = ("error_response", "handle")

FIRST_ZERO_VERSION = 4
"""Older clients fail on a feature whose lowest level is 0, so it is left out for them."""

FIRST_FEATURES_EPOCH = 1
NO_EPOCH = -1

TELEMETRY_APIS = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= 3 and not all(
        SOFTWARE.fullmatch(text)
        for text in (request.client_software_name, request.client_software_version)
    ):
        return error_response(request, context.version, ErrorCode.INVALID_REQUEST)
    if _is_misrouted(context, request):
        return error_response(request, context.version, ErrorCode.REBOOTSTRAP_REQUIRED)
    if context.connection.authenticator is not None:
        context.connection.authenticator.on_api_versions_answered()
    features = context.state.finalized_features
    context.connection.software_name = request.client_software_name
    context.connection.software_version = request.client_software_version
    advertised = {
        **context.release.advertised,
        **(context.release.inter_broker if context.is_from_broker else {}),
    }
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(advertised.items())
            if key not in TELEMETRY_APIS or context.state.options.client_telemetry
        ],
        supported_features=[
            SupportedFeatureKey(name=each.name, min_version=each.low, max_version=each.high)
            for each in supported(context.release)
            if each.low or context.version >= FIRST_ZERO_VERSION
        ],
        finalized_features_epoch=FIRST_FEATURES_EPOCH + context.cluster.metadata.features.updates
        if features
        else NO_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.items()
        ],
    )


def _is_misrouted(context: RequestContext, request: ApiVersionsRequest) -> bool:
    """Return True if the client expects another node or cluster (KIP-1242)."""
    expected = (request.cluster_id, request.node_id)
    return request.cluster_id is not None and expected != (
        context.cluster.cluster_id,
        context.node_id,
    )


def error_response(request: ApiVersionsRequest, version: int, code: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code, api_keys=[])
