"""Common parts of the APIs of the controller quorum."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode

__all__ = ("check_change",)


def check_change(context: RequestContext, cluster_id: str | None) -> None:
    """Raise `ApiError` unless the client may change the quorum of this cluster."""
    context.authorize(AclOperation.ALTER, ResourceType.CLUSTER)
    ours = context.cluster.cluster_id
    if cluster_id is not None and cluster_id != ours:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'The given id "{cluster_id}" doesn\'t match the cluster id "{ours}"',
        )
