"""ApiVersions: what this broker serves."""

from __future__ import annotations

import re

from aiokafkawire.broker.call import Call
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

__all__ = ("failed", "handle")

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= 3 and not all(
        SOFTWARE.fullmatch(text)
        for text in (request.client_software_name, request.client_software_version)
    ):
        return failed(request, call.version, ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(call.release.told.items())
        ],
    )


def failed(request: ApiVersionsRequest, version: int, code: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code, api_keys=[])
