"""UpdateFeatures: change the finalized levels of features (KIP-584)."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.feature_levels import FeatureChange, UpgradeType
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = ("error_response", "handle")

SUCCESS = "NONE"
"""Message of an updated feature, as Kafka sends it."""


async def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if not context.is_authorized(AclOperation.ALTER, ResourceType.CLUSTER):
        return error_response(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.accepts_controller_requests:
        return error_response(request, context.version, ErrorCode.NOT_CONTROLLER)
    cluster = context.cluster
    before = cluster.metadata.features.to_json()
    updates = [
        FeatureChange(each.feature, each.max_version_level, _upgrade_type(context, each))
        for each in request.feature_updates
    ]
    try:
        cluster.metadata.features.update(
            updates,
            context.state.releases,
            cluster.controller_id,
            validate_only=request.validate_only,
        )
        if not request.validate_only:
            cluster.save()
    except ApiError as error:
        cluster.metadata.features.load(before)
        response = error_response(request, context.version, error.code)
        response.error_message = error.message
        return response
    cluster.on_features_updated(context.state.finalized_features)
    return UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[
            UpdatableFeatureResult(
                feature=each.feature, error_code=ErrorCode.NONE, error_message=SUCCESS
            )
            for each in request.feature_updates
        ],
    )


def error_response(
    request: UpdateFeaturesRequest, version: int, code: int
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        throttle_time_ms=0, error_code=code, error_message=None, results=[]
    )


def _upgrade_type(context: RequestContext, update: FeatureUpdateKey) -> int:
    """Return the permitted direction; version 0 has a flag."""
    if context.version > 0:
        return update.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
