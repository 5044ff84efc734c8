"""UpdateFeatures: change the finalized feature levels (KIP-584). Key 57."""

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "FeatureUpdateKey",
    "UpdatableFeatureResult",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
)


@struct
class FeatureUpdateKey(Struct):
    feature: str
    max_version_level: int16
    allow_downgrade: bool = field(versions="0", default=False)
    upgrade_type: int8 = field(versions="1+", default=1)


@request(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"]):
    timeout_ms: int32 = 60_000
    feature_updates: list[FeatureUpdateKey]
    validate_only: bool = field(versions="1+", default=False)


@struct
class UpdatableFeatureResult(Struct):
    feature: str
    error_code: int16
    error_message: str | None


@response(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None
    results: list[UpdatableFeatureResult] = field(
        versions="0-1", default_factory=list, ignorable=True
    )
