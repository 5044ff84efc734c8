"""Requests of a group member in the consumer protocol (KIP-848): ConsumerGroupHeartbeat."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import anyio

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import ToCoordinator, ToNode
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import GroupFailed, KafkaError, UnknownServerError, UnsupportedVersion
from aiokafkawire.runtime import Clock, wait_until
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.error_codes import ErrorCode
from aiokafkawire.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

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
from .member_requests import MemberRequests, RequestTask
from .membership import events
from .responses import failure_event, group_error
from .topic_id_partition import TopicIdPartition

if TYPE_CHECKING:
    from aiokafkawire.wire.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

__all__ = (
    "API",
    "ConsumerGroupRequests",
    "HeartbeatApi",
    "heartbeat_event",
    "heartbeat_request",
    "leave_request",
)

API = "ConsumerGroupHeartbeat"

GROUP_FEATURE = "group.version"
"""Finalized feature of clusters with the consumer protocol (KIP-848)."""

FIRST_WITH_PATTERN = 1

MAX_INTERVAL_S = 3_600.0
MIN_INTERVAL_S = 0.01
"""Bounds of the heartbeat interval that a coordinator may ask for."""

UNAVAILABLE = (
    "the coordinator does not support the consumer protocol (KIP-848), which needs Kafka 4.0 with"
    " the feature group.version; use group_protocol='classic' or 'auto'"
)

_RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: events.CoordinatorLoadInProgress,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: events.CoordinatorUnavailable,
    ErrorCode.NOT_COORDINATOR: events.CoordinatorUnavailable,
    ErrorCode.REQUEST_TIMED_OUT: events.CoordinatorUnavailable,
}

_ADVICE = {
    ErrorCode.UNRELEASED_INSTANCE_ID: "close the other consumer with this group_instance_id",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "check group_remote_assignor",
    ErrorCode.GROUP_ID_NOT_FOUND: "a group of another type has this group_id; use another group_id,"
    " or group_protocol='classic' for a group that the coordinator does not convert",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "check the pattern of the subscription",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "raise the broker's group.consumer.max.size",
    ErrorCode.INVALID_REQUEST: "the coordinator refused the heartbeat",
}

LEFT_CODES = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
"""Codes after which the coordinator does not have the member."""


class HeartbeatApi(NamedTuple):
    """Heartbeats of a protocol: the API, and texts of errors.

    `unavailable` is the text of UNSUPPORTED_VERSION, `advice` has texts by error code. Without
    `static_members`, errors of static membership are errors like any other.
    """

    name: str
    unavailable: str
    advice: Mapping[ErrorCode, str]
    static_members: bool = True


CONSUMER_HEARTBEAT = HeartbeatApi(API, UNAVAILABLE, _ADVICE)

_FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class ConsumerGroupRequests(MemberRequests):
    """Requests of one member. Each method returns the task for an effect of the machine.

    `topic_names` returns the names of known topics by id. While `must_check_feature()` returns
    true, nothing is sent to a cluster that is known to lack the protocol.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        config: ConsumerConfig,
        member_id: str,
        *,
        topic_names: Callable[[], Mapping[UUID, str]],
        must_check_feature: Callable[[], bool],
        on_result: Callable[[KafkaError | None], None],
        log: Callable[..., None],
    ) -> None:
        super().__init__(cluster, clock, config, on_result=on_result, log=log)
        self._config = config
        self._member_id = member_id
        self._topic_names = topic_names
        self._must_check_feature = must_check_feature
        self._join_sent = anyio.Event()
        self._join_sent.set()
        self._left = anyio.Event()
        self._left.set()

    def heartbeat(self, effect: SendConsumerHeartbeat) -> RequestTask:
        config = self._config
        message = heartbeat_request(effect, config, self._member_id)

        sent, left = anyio.Event(), self._left
        if joins := effect.epoch == JOIN_EPOCH:
            self._join_sent = sent

        def build(version: int) -> ConsumerGroupHeartbeatRequest:
            sent.set()
            return message

        async def send() -> events.RequestCompleted:
            deadline = self._clock.now() + config.request_timeout_ms / 1000
            if joins:
                # A former leave that arrives later would undo the join.
                await wait_until(left, deadline)
            level = self._cluster.finalized_feature_level(GROUP_FEATURE)
            if self._must_check_feature() and level == 0:
                sent.set()
                return _unavailable(effect.request, str(effect.node))
            try:
                response = await self._cluster.request(
                    VersionedRequest(ApiKey.CONSUMER_GROUP_HEARTBEAT, build),
                    to=ToNode(effect.node),
                    deadline=deadline,
                    retry=False,
                    min_version=0 if effect.pattern is None else FIRST_WITH_PATTERN,
                )
            except KafkaError as error:
                self._on_result(error)
                if isinstance(error, UnsupportedVersion):
                    return _unavailable(effect.request, str(effect.node))
                return failure_event(effect.request, error)
            finally:
                sent.set()
            self._on_result(None)
            names = {} if response.assignment is None else self._topic_names()
            return heartbeat_event(effect, response, names, str(effect.node))

        return send

    def leave(self, effect: SendLeaveEpoch) -> RequestTask:
        message = leave_request(effect, self._config, self._member_id)
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
                    message, to=ToCoordinator(self._group_id), deadline=effect.deadline, retry=False
                )
            except KafkaError as error:
                failure = error
            finally:
                left.set()
            if failure is None and response.error_code not in LEFT_CODES:
                failure = group_error(response.error_code, API, group=self._group_id)
            if failure is not None:
                self._log(
                    f"{text}, but {API} failed: {failure}; the coordinator removes the member when"
                    " its session times out",
                    error=failure,
                )
            elif kept:
                self._log(f"{text}; its partitions are kept for it until the session times out")
            else:
                self._log(text)
            return events.GroupLeft(effect.request)

        return send


def heartbeat_request(
    effect: SendConsumerHeartbeat, config: ConsumerConfig, member_id: str
) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat with the fields that the coordinator must know."""
    assert config.group_id is not None
    joins = effect.epoch == JOIN_EPOCH
    return ConsumerGroupHeartbeatRequest(
        group_id=config.group_id,
        member_id=member_id,
        member_epoch=effect.epoch,
        instance_id=config.group_instance_id,
        rack_id=(config.client_rack or None) if joins else None,
        rebalance_timeout_ms=config.max_poll_interval_ms if effect.full else -1,
        subscribed_topic_names=None if effect.topics is None else list(effect.topics),
        subscribed_topic_regex=effect.pattern,
        server_assignor=config.group_remote_assignor if effect.full else None,
        topic_partitions=None if effect.owned is None else _by_topic(effect.owned),
    )


def leave_request(
    effect: SendLeaveEpoch, config: ConsumerConfig, member_id: str
) -> ConsumerGroupHeartbeatRequest:
    """Return the heartbeat that leaves the group."""
    assert config.group_id is not None
    return ConsumerGroupHeartbeatRequest(
        group_id=config.group_id,
        member_id=member_id,
        member_epoch=effect.epoch,
        instance_id=config.group_instance_id,
    )


def _by_topic(
    partitions: Collection[TopicIdPartition],
) -> list[ConsumerGroupHeartbeatTopicPartitions]:
    ordered = sorted(partitions)
    return [
        ConsumerGroupHeartbeatTopicPartitions(
            topic_id=topic_id, partitions=[owned.partition for owned in group]
        )
        for topic_id, group in groupby(ordered, key=lambda owned: owned.topic_id)
    ]


def heartbeat_event(
    effect: SendConsumerHeartbeat,
    response: ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse,
    names: Mapping[UUID, str],
    broker: str | None = None,
    api: HeartbeatApi = CONSUMER_HEARTBEAT,
) -> events.RequestCompleted:
    """Return the event for the response to a heartbeat."""
    request, code = effect.request, response.error_code
    if code == ErrorCode.NONE:
        return _success_event(effect, response, names)
    if code in _RETRIABLE:
        return _RETRIABLE[ErrorCode(code)](request)
    error = _failure(api, code, response.error_message, broker)
    joins = effect.epoch == JOIN_EPOCH
    if code in _FENCED or (code == ErrorCode.GROUP_ID_NOT_FOUND and not joins):
        return MemberFenced(request, error)
    if code == ErrorCode.FENCED_INSTANCE_ID and api.static_members:
        return events.InstanceFenced(request, error)
    if code == ErrorCode.UNRELEASED_INSTANCE_ID and api.static_members:
        return InstanceIdUnreleased(request, error)
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return _unavailable(request, broker, api)
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


def _unavailable(
    request: int, broker: str | None, api: HeartbeatApi = CONSUMER_HEARTBEAT
) -> ProtocolUnavailable:
    error = UnsupportedVersion(api.unavailable, api=api.name, broker=broker)
    return ProtocolUnavailable(request, error)


def _failure(api: HeartbeatApi, code: int, message: str | None, broker: str | None) -> KafkaError:
    """Return the error for a code, with the coordinator's text and advice."""
    error = group_error(code, api.name, broker)
    if code not in api.advice:
        return error
    text = f"{ErrorCode(code).name}: {message}" if message else ErrorCode(code).name
    failed = GroupFailed(f"{text} ({api.advice[ErrorCode(code)]})", api=api.name, broker=broker)
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
