"""UpdateMetadata: the controller says what a node tells clients of the cluster."""

from __future__ import annotations

from aiokafkawire.broker.call import Call, replicas_of
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.replication.messages import metadata_order
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

__all__ = ("failed", "handle")


async def handle(call: Call, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    try:
        replicas_of(call).update_metadata(metadata_order(request, call.version))
    except Refusal as refusal:
        return UpdateMetadataResponse(error_code=refusal.code)
    return UpdateMetadataResponse(error_code=ErrorCode.NONE)


def failed(request: UpdateMetadataRequest, version: int, code: int) -> UpdateMetadataResponse:
    return UpdateMetadataResponse(error_code=code)
