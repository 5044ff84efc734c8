"""ApiVersions: list the API versions and features of a broker. Key 18."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Self

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "FinalizedFeatureKey",
    "SupportedFeatureKey",
)

UNSUPPORTED_VERSION = b"\x00\x23"
"""Error code 35: the start of a response if the broker does not support the version."""


@request(key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    client_software_name: str = field(versions="3+", default="", ignorable=True)
    client_software_version: str = field(versions="3+", default="", ignorable=True)
    cluster_id: str | None = field(versions="5+", default=None, ignorable=True)
    node_id: int32 = field(versions="5+", default=-1, ignorable=True)


@struct
class ApiVersion(Struct):
    api_key: int16
    min_version: int16
    max_version: int16


@struct
class SupportedFeatureKey(Struct):
    name: str
    min_version: int16
    max_version: int16


@struct
class FinalizedFeatureKey(Struct):
    name: str
    max_version_level: int16
    min_version_level: int16


@response(key=18, versions="0-5", flexible="3+")
class ApiVersionsResponse(Response):
    """A response with error 35 has the layout of version 0, for any version of the request.

    Version 5 may return REBOOTSTRAP_REQUIRED (KIP-1242).
    """

    # Before this response the client does not know if the broker supports flexible headers.
    header_version_overrides: ClassVar[Mapping[int, int]] = MappingProxyType({3: 0, 4: 0, 5: 0})

    @classmethod
    def layout_version(cls, version: int, body: memoryview) -> int:
        return 0 if body[:2] == UNSUPPORTED_VERSION else version

    @classmethod
    def decode_fallback(cls, version: int, body: memoryview) -> Self | None:
        # librdkafka's mock cluster refuses in the layout of the version that it refuses.
        if body[:2] != UNSUPPORTED_VERSION:
            return None
        return cls(error_code=int.from_bytes(UNSUPPORTED_VERSION), api_keys=[])

    error_code: int16
    api_keys: list[ApiVersion]
    throttle_time_ms: int32 = field(versions="1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        versions="3+", default_factory=list, tag=0, ignorable=True
    )
    finalized_features_epoch: int64 = field(versions="3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        versions="3+", default_factory=list, tag=2, ignorable=True
    )
    zk_migration_ready: bool = field(versions="3+", default=False, tag=3, ignorable=True)
