"""Requests of a group member in the consumer protocol (KIP-848): ConsumerGroupHeartbeat."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import groupby
from typing import Unpack

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.runtime import Clock
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.error_codes import ErrorCode
from aiokafkawire.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)

from .consumer_protocol.effects import SendConsumerHeartbeat, SendLeaveEpoch
from .consumer_protocol.states import JOIN_EPOCH
from .heartbeat_requests import HeartbeatApi, HeartbeatRequests, RequestCallbacks
from .topic_id_partition import TopicIdPartition

__all__ = ("CONSUMER_HEARTBEAT", "ConsumerGroupRequests", "heartbeat_request", "leave_request")

GROUP_FEATURE = "group.version"
"""Finalized feature of clusters with the consumer protocol (KIP-848)."""

FIRST_WITH_PATTERN = 1

UNAVAILABLE = (
    "the coordinator does not support the consumer protocol (KIP-848), which needs Kafka 4.0 with"
    " the feature group.version; use group_protocol='classic' or 'auto'"
)

_ADVICE = {
    ErrorCode.UNRELEASED_INSTANCE_ID: "close the other consumer with this group_instance_id",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "check group_remote_assignor",
    ErrorCode.GROUP_ID_NOT_FOUND: "a group of another type has this group_id; use another group_id,"
    " or group_protocol='classic' for a group that the coordinator does not convert",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "check the pattern of the subscription",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "raise the broker's group.consumer.max.size",
    ErrorCode.INVALID_REQUEST: "the coordinator refused the heartbeat",
}

CONSUMER_HEARTBEAT = HeartbeatApi(
    ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", UNAVAILABLE, _ADVICE
)


class ConsumerGroupRequests(HeartbeatRequests):
    """Requests of one member of the consumer protocol.

    While `must_check_feature()` returns true, nothing is sent to a cluster that is known to lack
    the protocol.
    """

    api = CONSUMER_HEARTBEAT

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        config: ConsumerConfig,
        member_id: str,
        *,
        must_check_feature: Callable[[], bool],
        **callbacks: Unpack[RequestCallbacks],
    ) -> None:
        super().__init__(cluster, clock, config, member_id, **callbacks)
        self._config = config
        self._must_check_feature = must_check_feature

    def _heartbeat_message(self, effect: SendConsumerHeartbeat) -> ConsumerGroupHeartbeatRequest:
        return heartbeat_request(effect, self._config, self._member_id)

    def _leave_message(self, effect: SendLeaveEpoch) -> ConsumerGroupHeartbeatRequest:
        return leave_request(effect, self._config, self._member_id)

    def _is_unavailable(self) -> bool:
        level = self._cluster.finalized_feature_level(GROUP_FEATURE)
        return self._must_check_feature() and level == 0

    def _min_version(self, effect: SendConsumerHeartbeat) -> int:
        return 0 if effect.pattern is None else FIRST_WITH_PATTERN


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
