"""ShareAcknowledge: acknowledge records that a member of a share group has acquired (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.share_requests import (
    AcknowledgeResult,
    acknowledge,
    continue_session,
    parse_acknowledgements,
    session_key,
)
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionPartition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.common import LeaderIdAndEpoch
from aiokafkawire.wire.messages.share_acknowledge import (
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    try:
        results = _acknowledge(context, request)
    except ApiError as error:
        return error_response(request, context.version, error.code)
    lock_ms = context.state.share_partitions.configs.lock_duration_ms(request.group_id or "")
    return _response(results, lock_ms)


def error_response(
    request: ShareAcknowledgeRequest, version: int, code: int
) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        throttle_time_ms=0, error_code=code, responses=[], node_endpoints=[]
    )


def _acknowledge(
    context: RequestContext, request: ShareAcknowledgeRequest
) -> dict[SessionPartition, AcknowledgeResult]:
    key = session_key(context, request.group_id, request.member_id)
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = continue_session(context, key, epoch)
    manager = context.state.share_partitions
    if epoch == FINAL_EPOCH:
        manager.sessions(context.node_id).close(session)
    else:
        session.update(())
    acknowledgements = parse_acknowledgements(request.topics, allows_renew=request.is_renew_ack)
    results = acknowledge(context, key, acknowledgements)
    if epoch == FINAL_EPOCH:
        manager.release_session(context.node_id, session)
    return results


def _response(
    results: Mapping[SessionPartition, AcknowledgeResult], lock_ms: int
) -> ShareAcknowledgeResponse:
    topics: dict[object, ShareAcknowledgeTopicResponse] = {}
    for key, result in results.items():
        topic = ShareAcknowledgeTopicResponse(topic_id=key.topic_id, partitions=[])
        topics.setdefault(key.topic_id, topic).partitions.append(
            ShareAcknowledgePartitionData(
                partition_index=key.partition,
                error_code=result.code,
                error_message=result.message,
                current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            )
        )
    return ShareAcknowledgeResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=lock_ms,
        responses=list(topics.values()),
        node_endpoints=[],
    )
