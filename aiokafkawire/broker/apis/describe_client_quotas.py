"""DescribeClientQuotas: quotas of the entities that match a filter (KIP-546)."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.quotas import EntityFilter
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_client_quotas import (
    DescribeClientQuotasEntityData,
    DescribeClientQuotasEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ValueData,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    if not context.is_authorized(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return error_response(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    filters = [
        EntityFilter(each.entity_type, each.match_type, each.match) for each in request.components
    ]
    try:
        found = context.cluster.metadata.quotas.describe(filters, strict=request.strict)
    except ApiError as error:
        response = error_response(request, context.version, error.code)
        response.error_message = error.message
        return response
    return DescribeClientQuotasResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message="",
        entries=[
            DescribeClientQuotasEntryData(
                entity=[
                    DescribeClientQuotasEntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found
        ],
    )


def error_response(
    request: DescribeClientQuotasRequest, version: int, code: int
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=code, error_message=None, entries=None
    )
