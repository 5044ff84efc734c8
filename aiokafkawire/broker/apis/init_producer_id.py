"""InitProducerId: producer id and epoch of an idempotent or transactional producer."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.transaction_requests import code_for
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

__all__ = ("error_response", "handle")

NONE = -1
FIRST_FENCED_VERSION = 4


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        producer = _init(context, request)
    except ApiError as error:
        code = code_for(context.version, error.code, fenced_since=FIRST_FENCED_VERSION)
        return error_response(request, context.version, code)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )


def error_response(
    request: InitProducerIdRequest, version: int, code: int
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)


def _authorize(context: RequestContext, transactional_id: str | None) -> None:
    """Raise `ApiError` unless the principal may write with the id, or idempotently."""
    if transactional_id is not None:
        context.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not (
        # Since KIP-679, Write on any topic is enough.
        context.release.since("2.8")
        and context.is_authorized_by_resource_type(AclOperation.WRITE, ResourceType.TOPIC)
    ):
        context.authorize(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


def _init(context: RequestContext, request: InitProducerIdRequest) -> ProducerIdAndEpoch:
    """Return the producer id and epoch to use from now on. Raises `ApiError`."""
    transactional_id = request.transactional_id
    _authorize(context, transactional_id)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        # Idempotent producers bump their epoch themselves, so each request gets a new id.
        return ProducerIdAndEpoch(context.cluster.producer_ids.generate(), 0)
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    context.check_coordinator(transactional_id)
    expected = None
    if request.producer_id != NONE:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    result = context.state.transaction_coordinator.init(
        transactional_id, request.transaction_timeout_ms, expected
    )
    if result.code:
        raise ApiError(result.code)
    return result.producer
