"""AlterClientQuotas: set and remove quotas (KIP-546)."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.broker.quotas import QuotaChange
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.alter_client_quotas import (
    AlterClientQuotasEntityData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryResult,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    if not context.is_authorized(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER):
        return error_response(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.accepts_controller_requests:
        return error_response(request, context.version, ErrorCode.NOT_CONTROLLER)
    changes = [
        QuotaChange(
            {each.entity_type: each.entity_name for each in entry.entity},
            [(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in request.entries
    ]
    cluster = context.cluster
    before = cluster.metadata.quotas.to_json()
    results = cluster.metadata.quotas.alter(changes, validate_only=request.validate_only)
    if not request.validate_only:
        try:
            cluster.save()
        except StorageError as error:
            cluster.metadata.quotas.load(before)
            return error_response(request, context.version, error.code)
    return AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[
            EntryResult(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                entity=[
                    AlterClientQuotasEntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
            )
            for entity, error in results.items()
        ],
    )


def error_response(
    request: AlterClientQuotasRequest, version: int, code: int
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[
            EntryResult(error_code=code, error_message=None, entity=list(entry.entity))
            for entry in request.entries
        ],
    )
