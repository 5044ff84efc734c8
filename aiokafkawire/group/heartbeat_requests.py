"""Heartbeats of a member whom the coordinator assigns partitions: KIP-848 and KIP-932."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypedDict, Unpack
from uuid import UUID

import anyio

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import ToCoordinator, ToNode
from aiokafkawire.config import ConsumerConfig, ShareConsumerConfig
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import GroupFailed, KafkaError, UnknownServerError, UnsupportedVersion
from aiokafkawire.runtime import Clock, wait_until
from aiokafkawire.wire import ApiKey, Request
from aiokafkawire.wire.error_codes import ErrorCode

from .consumer_protocol.context import LEAVE_STATIC_EPOCH
from .consumer_protocol.effects import SendConsumerHeartbeat, SendLeaveEpoch
from .consumer_protocol.events import (
    HeartbeatResponded,
    InstanceIdUnreleased,
    MemberFenced,
    ProtocolUnavailable,
    TopicsUnauthorized,
)
from .consumer_protocol.states import JOIN_EPOCH, TargetAssignment
from .member_requests import MemberRequests, RequestTask, leave_failure
from .membership import events
from .responses import failure_event, group_error

if TYPE_CHECKING:
    from aiokafkawire.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
    from aiokafkawire.wire.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

__all__ = ("HeartbeatApi", "HeartbeatRequests", "RequestCallbacks", "heartbeat_event")

MAX_INTERVAL_S = 3_600.0
MIN_INTERVAL_S = 0.01
"""Bounds of the heartbeat interval that a coordinator may ask for."""

LEFT_CODES = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
"""Codes after which the coordinator does not have the member."""

_RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: events.CoordinatorLoadInProgress,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: events.CoordinatorUnavailable,
    ErrorCode.NOT_COORDINATOR: events.CoordinatorUnavailable,
    ErrorCode.REQUEST_TIMED_OUT: events.CoordinatorUnavailable,
}

GROUP_LOST = "the group was deleted, or the brokers started without their data"
"""Advice for GROUP_ID_NOT_FOUND after a heartbeat of a member, whose group the coordinator had."""

_FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class HeartbeatApi(NamedTuple):
    """Heartbeats of a protocol: the API, and texts of errors.

    `unavailable` is the text of UNSUPPORTED_VERSION, `advice` has texts by error code. Without
    `static_members`, errors of static membership are errors like any other.
    """

    key: ApiKey
    name: str
    unavailable: str
    advice: Mapping[ErrorCode, str]
    static_members: bool = True
    min_version: int = 0


class RequestCallbacks(TypedDict):
    """Functions of the member: `topic_names` returns the names of known topics by id."""

    topic_names: Callable[[], Mapping[UUID, str]]
    on_result: Callable[[KafkaError | None], None]
    log: Callable[..., None]


class HeartbeatRequests(MemberRequests):
    """Requests of one member. Each method returns the task for an effect of the machine.

    A join is sent after the response to an earlier leave, which would undo it. A leave is sent
    after an earlier join, which would undo it in turn.
    """

    api: ClassVar[HeartbeatApi]

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        config: ConsumerConfig | ShareConsumerConfig,
        member_id: str,
        **callbacks: Unpack[RequestCallbacks],
    ) -> None:
        super().__init__(
            cluster, clock, config, on_result=callbacks["on_result"], log=callbacks["log"]
        )
        self._member_id = member_id
        self._topic_names = callbacks["topic_names"]
        self._join_sent = anyio.Event()
        self._join_sent.set()
        self._left = anyio.Event()
        self._left.set()

    @abstractmethod
    def _heartbeat_message(self, effect: SendConsumerHeartbeat) -> Request[Any]:
        """Return a heartbeat with the fields that the coordinator must know."""

    @abstractmethod
    def _leave_message(self, effect: SendLeaveEpoch) -> Request[Any]:
        """Return the heartbeat that leaves the group."""

    def _is_unavailable(self) -> bool:
        """Return whether the cluster is known to lack the protocol."""
        return False

    def _min_version(self, effect: SendConsumerHeartbeat) -> int:
        return self.api.min_version

    def heartbeat(self, effect: SendConsumerHeartbeat) -> RequestTask:
        message = self._heartbeat_message(effect)
        sent, left = anyio.Event(), self._left
        if joins := effect.epoch == JOIN_EPOCH:
            self._join_sent = sent

        def build(version: int) -> Request[Any]:
            sent.set()
            return message

        async def send() -> events.RequestCompleted:
            deadline = self._clock.now() + self._request_timeout_s
            broker = str(effect.node)
            if joins:
                await wait_until(left, deadline)
            if self._is_unavailable():
                sent.set()
                return _unavailable(self.api, effect.request, broker)
            try:
                response = await self._cluster.request(
                    VersionedRequest(self.api.key, build),
                    to=ToNode(effect.node),
                    deadline=deadline,
                    retry=False,
                    min_version=self._min_version(effect),
                )
            except KafkaError as error:
                self._on_result(error)
                if isinstance(error, UnsupportedVersion):
                    return _unavailable(self.api, effect.request, broker)
                return failure_event(effect.request, error)
            finally:
                sent.set()
            self._on_result(None)
            names = {} if response.assignment is None else self._topic_names()
            return heartbeat_event(self.api, effect, response, names, broker)

        return send

    def leave(self, effect: SendLeaveEpoch) -> RequestTask:
        message = self._leave_message(effect)
        kept = effect.epoch == LEAVE_STATIC_EPOCH
        text = f"left {'for now ' if kept else ''}({effect.reason})"
        join_sent, left = self._join_sent, anyio.Event()
        self._left = left

        async def send() -> events.RequestCompleted:
            failure: KafkaError | None = None
            try:
                # A join that is sent later, when both wait for a connection, would stay in the
                # group.
                await wait_until(join_sent, effect.deadline)
                response = await self._cluster.request(
                    message,
                    to=ToCoordinator(self._group_id),
                    deadline=effect.deadline,
                    retry=False,
                    min_version=self.api.min_version,
                )
            except KafkaError as error:
                failure = error
            finally:
                left.set()
            name = self.api.name
            if failure is None and response.error_code not in LEFT_CODES:
                failure = group_error(response.error_code, name, group=self._group_id)
            if failure is not None:
                self._log(
                    f"{text}, but {name} failed: {leave_failure(failure)}; the coordinator removes"
                    " the member when its session times out",
                    error=failure,
                )
            elif kept:
                self._log(f"{text}; its partitions are kept for it until the session times out")
            else:
                self._log(text)
            return events.GroupLeft(effect.request)

        return send


def heartbeat_event(
    api: HeartbeatApi,
    effect: SendConsumerHeartbeat,
    response: ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse,
    names: Mapping[UUID, str],
    broker: str | None = None,
) -> events.RequestCompleted:
    """Return the event for the response to a heartbeat."""
    request, code = effect.request, response.error_code
    if code == ErrorCode.NONE:
        return _success_event(effect, response, names)
    if code in _RETRIABLE:
        return _RETRIABLE[ErrorCode(code)](request)
    joins = effect.epoch == JOIN_EPOCH
    error = _failure(api, code, response.error_message, broker, joins=joins)
    if code in _FENCED or (code == ErrorCode.GROUP_ID_NOT_FOUND and not joins):
        return MemberFenced(request, error)
    if code == ErrorCode.FENCED_INSTANCE_ID and api.static_members:
        return events.InstanceFenced(request, error)
    if code == ErrorCode.UNRELEASED_INSTANCE_ID and api.static_members:
        return InstanceIdUnreleased(request, error)
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return _unavailable(api, request, broker)
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return ProtocolUnavailable(request, error)
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        if effect.topics:
            error.reason += f"; subscribed: {', '.join(effect.topics):.300}"
        return TopicsUnauthorized(request, error)
    if isinstance(error, UnknownServerError):
        return events.UnknownServerErrorReceived(request, error)
    if error.retriable:
        return events.CoordinatorUnavailable(request)
    return events.FatalErrorOccurred(request, error)


def _unavailable(api: HeartbeatApi, request: int, broker: str | None) -> ProtocolUnavailable:
    error = UnsupportedVersion(api.unavailable, api=api.name, broker=broker)
    return ProtocolUnavailable(request, error)


def _failure(
    api: HeartbeatApi, code: int, message: str | None, broker: str | None, *, joins: bool
) -> KafkaError:
    """Return the error for a code, with the coordinator's text and advice."""
    error = group_error(code, api.name, broker)
    if code not in api.advice:
        return error
    advice = api.advice[ErrorCode(code)]
    if code == ErrorCode.GROUP_ID_NOT_FOUND and not joins:
        advice = GROUP_LOST
    text = f"{ErrorCode(code).name}: {message}" if message else ErrorCode(code).name
    failed = GroupFailed(f"{text} ({advice})", api=api.name, broker=broker)
    failed.__cause__ = error
    return failed


def _success_event(
    effect: SendConsumerHeartbeat,
    response: ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse,
    names: Mapping[UUID, str],
) -> events.RequestCompleted:
    epoch, interval_s = response.member_epoch, response.heartbeat_interval_ms / 1000
    if epoch <= JOIN_EPOCH:
        return events.ProtocolViolation(effect.request, f"member epoch {epoch} in a response")
    target: TargetAssignment | None = None
    if response.assignment is not None:
        target = TargetAssignment(
            unresolved={
                topic.topic_id: tuple(
                    sorted({number for number in topic.partitions if number >= 0})
                )
                for topic in response.assignment.topic_partitions
            }
        ).resolve(names)
    interval_s = min(max(interval_s, MIN_INTERVAL_S), MAX_INTERVAL_S)
    return HeartbeatResponded(effect.request, epoch, interval_s, target)
