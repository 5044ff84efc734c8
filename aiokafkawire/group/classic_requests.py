"""Requests of a group member in the classic protocol, from JoinGroup to LeaveGroup."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import ToCoordinator, ToNode
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import GroupFailed, KafkaError
from aiokafkawire.runtime import Clock
from aiokafkawire.types import NodeId
from aiokafkawire.wire import ApiKey, Request, Response
from aiokafkawire.wire.consumer_protocol import encode_subscription
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest
from aiokafkawire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiokafkawire.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from aiokafkawire.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from . import responses
from .assignors import Assignor
from .leader import raising_group_failed
from .member_requests import MemberRequests, RequestTask, leave_failure
from .membership import events
from .membership.effects import SendHeartbeat, SendJoin, SendLeave, SendSync

__all__ = ("JOIN_SLACK_S", "ClassicGroupRequests")

JOIN_SLACK_S = 5.0
"""Extra time for responses to JoinGroup and SyncGroup after the rebalance timeout."""

PROTOCOL_TYPE = "consumer"

MAX_REASON_LENGTH = 255
"""Longest reason in JoinGroup and LeaveGroup (KIP-800)."""

FIRST_WITH_STATIC_MEMBERS: Mapping[ApiKey, int] = {
    ApiKey.JOIN_GROUP: 5,
    ApiKey.SYNC_GROUP: 3,
    ApiKey.HEARTBEAT: 3,
}
FIRST_WITH_MEMBERS_TO_LEAVE = 3
R = TypeVar("R", bound=Response)


class ClassicGroupRequests(MemberRequests):
    """Requests of one member. Each method returns the task for an effect of the machine."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        config: ConsumerConfig,
        assignors: Mapping[str, Assignor],
        *,
        on_result: Callable[[KafkaError | None], None],
        log: Callable[..., None],
    ) -> None:
        super().__init__(cluster, clock, config, on_result=on_result, log=log)
        self._config = config
        self._assignors = assignors

    def _rebalance_deadline(self) -> float:
        return self._clock.now() + self._config.max_poll_interval_ms / 1000 + JOIN_SLACK_S

    def _sync_deadline(self) -> float:
        """Return the deadline for SyncGroup, which only waits for the leader's assignor.

        It is shorter than that of JoinGroup, so that a lost response does not delay the group.
        """
        config = self._config
        limit_ms = max(config.effective_session_timeout_ms, config.request_timeout_ms)
        return min(self._clock.now() + limit_ms / 1000 + JOIN_SLACK_S, self._rebalance_deadline())

    def join(self, effect: SendJoin) -> RequestTask:
        reason = f" ({effect.reason})" if effect.reason else ""
        self._log(f"joining at broker {effect.node}{reason}", logging.DEBUG)
        try:
            protocols = [self._protocol(assignor, effect) for assignor in self._assignors.values()]
        except GroupFailed as error:
            failed = events.FatalErrorOccurred(effect.request, error)

            async def fail() -> events.RequestCompleted:
                return failed

            return fail
        message = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=effect.session_timeout_ms,
            rebalance_timeout_ms=self._config.max_poll_interval_ms,
            member_id=effect.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=effect.reason[:MAX_REASON_LENGTH],
        )
        return self._request(
            effect.request,
            effect.node,
            message,
            self._rebalance_deadline(),
            lambda response, broker: responses.join_event(
                effect.request, response, self._assignors, broker
            ),
        )

    def _protocol(self, assignor: Assignor, effect: SendJoin) -> JoinGroupRequestProtocol:
        with raising_group_failed(assignor):
            subscription = encode_subscription(
                effect.topics,
                user_data=assignor.user_data(effect.topics),
                owned_partitions=effect.owned,
                generation_id=effect.generation,
                rack_id=self._config.client_rack or None,
            )
        return JoinGroupRequestProtocol(name=assignor.name, metadata=subscription)

    def sync(self, effect: SendSync) -> RequestTask:
        number, count = effect.generation.number, len(effect.assignments)
        assignments = f" with the assignments of {count} members" if count else ""
        self._log(f"syncing generation {number}{assignments}", logging.DEBUG)
        message = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=effect.generation.number,
            member_id=effect.generation.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=effect.generation.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in effect.assignments.items()
            ],
        )
        return self._request(
            effect.request,
            effect.node,
            message,
            self._sync_deadline(),
            lambda response, broker: self._notify_assignor(
                effect, responses.sync_event(effect.request, response, broker)
            ),
        )

    def _notify_assignor(
        self, effect: SendSync, answer: events.RequestCompleted
    ) -> events.RequestCompleted:
        if isinstance(answer, events.Synced):
            generation = effect.generation
            assignor = self._assignors[generation.protocol]
            try:
                with raising_group_failed(assignor):
                    assignor.on_assignment(answer.assignment, generation.number)
            except GroupFailed as error:
                return events.FatalErrorOccurred(effect.request, error)
        return answer

    def send_heartbeat(self, effect: SendHeartbeat) -> RequestTask:
        message = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=effect.generation.number,
            member_id=effect.generation.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        timeout_s = self._config.request_timeout_ms / 1000
        return self._request(
            effect.request,
            effect.node,
            message,
            min(effect.deadline, self._clock.now() + timeout_s),
            lambda response, broker: responses.heartbeat_event(effect.request, response, broker),
        )

    def leave(self, effect: SendLeave) -> RequestTask:
        def build(version: int) -> LeaveGroupRequest:
            if version < FIRST_WITH_MEMBERS_TO_LEAVE:
                return LeaveGroupRequest(group_id=self._group_id, member_id=effect.member_id)
            member = MemberIdentity(
                member_id=effect.member_id,
                group_instance_id=self._config.group_instance_id,
                reason=effect.reason,
            )
            return LeaveGroupRequest(group_id=self._group_id, members=[member])

        async def send_leave() -> events.RequestCompleted:
            message: VersionedRequest[LeaveGroupResponse] = VersionedRequest(
                ApiKey.LEAVE_GROUP, build
            )
            try:
                await self._cluster.request(
                    message, to=ToCoordinator(self._group_id), deadline=effect.deadline
                )
            except KafkaError as error:
                self._log(
                    f"left ({effect.reason}), but LeaveGroup failed: {leave_failure(error)}; the"
                    " coordinator removes the member when its session times out",
                    error=error,
                    member_id=effect.member_id,
                )
            else:
                self._log(f"left ({effect.reason})", member_id=effect.member_id)
            return events.GroupLeft(effect.request)

        return send_leave

    def _request(
        self,
        request: int,
        node: NodeId,
        message: Request[R],
        deadline: float,
        read: Callable[[R, str], events.RequestCompleted],
    ) -> RequestTask:
        min_version = 0
        if self._config.group_instance_id is not None:
            min_version = FIRST_WITH_STATIC_MEMBERS[ApiKey(message.api_key)]

        async def send_request() -> events.RequestCompleted:
            try:
                response = await self._cluster.request(
                    message,
                    to=ToNode(node),
                    deadline=deadline,
                    retry=False,
                    min_version=min_version,
                )
            except KafkaError as error:
                self._on_result(error)
                return responses.failure_event(request, error)
            self._on_result(None)
            return read(response, str(node))

        return send_request
