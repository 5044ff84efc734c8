"""Requests of a member of a share group (KIP-932): ShareGroupHeartbeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import ToCoordinator, ToNode
from aiokafkawire.config import ShareConsumerConfig
from aiokafkawire.errors import KafkaError, UnsupportedVersion
from aiokafkawire.runtime import Clock
from aiokafkawire.wire.error_codes import ErrorCode
from aiokafkawire.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from .consumer_protocol.effects import SendConsumerHeartbeat, SendLeaveEpoch
from .consumer_protocol.states import JOIN_EPOCH
from .consumer_requests import LEFT_CODES, HeartbeatApi, heartbeat_event
from .member_requests import MemberRequests, RequestTask
from .membership import events
from .responses import failure_event, group_error

__all__ = ("ShareGroupRequests",)

SHARE_HEARTBEAT = HeartbeatApi(
    "ShareGroupHeartbeat",
    "the coordinator does not support share groups (KIP-932), which need Kafka 4.2, or 4.1 with the"
    " feature share.version",
    {
        ErrorCode.GROUP_ID_NOT_FOUND: "a group of another type has this group_id; use another one",
        ErrorCode.GROUP_MAX_SIZE_REACHED: "raise the broker's group.share.max.size",
        ErrorCode.INVALID_REQUEST: "the coordinator refused the heartbeat",
    },
    static_members=False,
)

FIRST_STABLE_VERSION = 1
"""Version 0 was an early access in Kafka 4.0."""


class ShareGroupRequests(MemberRequests):
    """Requests of one member. Each method returns the task for an effect of the machine.

    `topic_names` returns the names of known topics by id.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        config: ShareConsumerConfig,
        member_id: str,
        *,
        topic_names: Callable[[], Mapping[UUID, str]],
        on_result: Callable[[KafkaError | None], None],
        log: Callable[..., None],
    ) -> None:
        super().__init__(cluster, clock, config, on_result=on_result, log=log)
        self._rack_id = config.client_rack or None
        self._member_id = member_id
        self._topic_names = topic_names

    def heartbeat(self, effect: SendConsumerHeartbeat) -> RequestTask:
        message = ShareGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=effect.epoch,
            rack_id=self._rack_id if effect.epoch == JOIN_EPOCH else None,
            subscribed_topic_names=None if effect.topics is None else list(effect.topics),
        )

        async def send() -> events.RequestCompleted:
            try:
                response = await self._cluster.request(
                    message,
                    to=ToNode(effect.node),
                    deadline=self._clock.now() + self._request_timeout_s,
                    retry=False,
                    min_version=FIRST_STABLE_VERSION,
                )
            except KafkaError as error:
                if isinstance(error, UnsupportedVersion):
                    error.reason = SHARE_HEARTBEAT.unavailable
                self._on_result(error)
                return failure_event(effect.request, error)
            self._on_result(None)
            names, broker = self._topic_names(), str(effect.node)
            return heartbeat_event(effect, response, names, broker, SHARE_HEARTBEAT)

        return send

    def leave(self, effect: SendLeaveEpoch) -> RequestTask:
        message = ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=effect.epoch
        )

        async def send() -> events.RequestCompleted:
            failure: KafkaError | None = None
            try:
                response = await self._cluster.request(
                    message,
                    to=ToCoordinator(self._group_id),
                    deadline=effect.deadline,
                    retry=False,
                    min_version=FIRST_STABLE_VERSION,
                )
            except KafkaError as error:
                failure = error
            else:
                if response.error_code not in LEFT_CODES:
                    api = SHARE_HEARTBEAT.name
                    failure = group_error(response.error_code, api, group=self._group_id)
            text = f"left ({effect.reason})"
            if failure is not None:
                text += (
                    f", but {SHARE_HEARTBEAT.name} failed: {failure}; the coordinator removes the"
                    " member when its session times out"
                )
            self._log(text, error=failure)
            return events.GroupLeft(effect.request)

        return send
