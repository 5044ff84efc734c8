"""Requests of a member of a share group (KIP-932): ShareGroupHeartbeat."""

from __future__ import annotations

from typing import Unpack

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.config import ShareConsumerConfig
from aiokafkawire.runtime import Clock
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.error_codes import ErrorCode
from aiokafkawire.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from .consumer_protocol.effects import SendConsumerHeartbeat, SendLeaveEpoch
from .consumer_protocol.states import JOIN_EPOCH
from .heartbeat_requests import HeartbeatApi, HeartbeatRequests, RequestCallbacks

__all__ = ("ShareGroupRequests",)

FIRST_STABLE_VERSION = 1
"""Version 0 was an early access in Kafka 4.0."""


class ShareGroupRequests(HeartbeatRequests):
    """Requests of one member of a share group."""

    api = HeartbeatApi(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        "ShareGroupHeartbeat",
        "the coordinator does not support share groups (KIP-932), which need Kafka 4.2, or 4.1 with"
        " the feature share.version",
        {
            ErrorCode.GROUP_ID_NOT_FOUND: "a group of another type has this group_id; use another"
            " one",
            ErrorCode.GROUP_MAX_SIZE_REACHED: "raise the broker's group.share.max.size",
            ErrorCode.INVALID_REQUEST: "the coordinator refused the heartbeat",
        },
        static_members=False,
        min_version=FIRST_STABLE_VERSION,
    )

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        config: ShareConsumerConfig,
        member_id: str,
        **callbacks: Unpack[RequestCallbacks],
    ) -> None:
        super().__init__(cluster, clock, config, member_id, **callbacks)
        self._rack_id = config.client_rack or None

    def _heartbeat_message(self, effect: SendConsumerHeartbeat) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=effect.epoch,
            rack_id=self._rack_id if effect.epoch == JOIN_EPOCH else None,
            subscribed_topic_names=None if effect.topics is None else list(effect.topics),
        )

    def _leave_message(self, effect: SendLeaveEpoch) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=effect.epoch
        )
