"""Base of members whom the coordinator assigns partitions in heartbeats: KIP-848 and KIP-932."""

from __future__ import annotations

import logging
import random
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from uuid import UUID

from aiokafkawire.cluster.routing import CoordinatorType
from aiokafkawire.config import ConsumerConfig, ShareConsumerConfig

from .consumer_protocol.context import ConsumerProtocolSettings
from .consumer_protocol.effects import (
    RaiseError,
    RefreshTopics,
    SendConsumerHeartbeat,
    SendLeaveEpoch,
)
from .consumer_protocol.events import TopicsResolved
from .consumer_protocol.machine import ConsumerProtocolMachine
from .consumer_protocol.states import InGroup
from .heartbeat_requests import HeartbeatRequests
from .member import GroupMember
from .membership.effects import FindCoordinator, ForgetCoordinator, MembershipEffect

__all__ = ("HeartbeatMember", "member_settings")


def member_settings(
    config: ConsumerConfig | ShareConsumerConfig,
    rng: random.Random,
    group_instance_id: str | None = None,
    *,
    may_fall_back: bool = False,
) -> ConsumerProtocolSettings:
    """Return the settings of a member, with a new member id."""
    return ConsumerProtocolSettings(
        member_id=urlsafe_b64encode(rng.randbytes(16)).rstrip(b"=").decode(),
        group_instance_id=group_instance_id,
        max_poll_interval_ms=config.max_poll_interval_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        request_timeout_ms=config.request_timeout_ms,
        default_api_timeout_ms=config.default_api_timeout_ms,
        may_fall_back=may_fall_back,
    )


class HeartbeatMember(GroupMember):
    """A member whose assignment comes with the responses to its heartbeats."""

    _machine: ConsumerProtocolMachine
    _requests: HeartbeatRequests

    def metadata_changed(self) -> None:
        """Read partitions of topics whose names were not known."""
        state = self._machine.state
        # mutation: topic-unknown-at-assignment-never-read
        if isinstance(state, InGroup) and state.target.unresolved:
            self._handle(TopicsResolved(self._topic_names()))

    def _topic_names(self) -> Mapping[UUID, str]:
        topics = self._cluster.metadata.topics
        names = self.topics if self._machine.context.pattern is None else topics
        return {topics[name].topic_id: name for name in names if name in topics}

    def _perform(self, effect: MembershipEffect) -> None:
        match effect:
            case FindCoordinator(request):
                self._start("find-coordinator", self._requests.find_coordinator(request))
            case ForgetCoordinator():
                self._cluster.mark_coordinator_unknown(self.group_id, CoordinatorType.GROUP)
            case SendConsumerHeartbeat():
                self._start("heartbeat", self._requests.heartbeat(effect))
            case SendLeaveEpoch():
                self._start("leave", self._requests.leave(effect))
            case RefreshTopics():
                self._cluster.request_update()
            case RaiseError(error):
                error.group = self.group_id
                self._log(f"heartbeat failed: {error}", logging.WARNING, error=error)
                self._owner.raise_error(error)
            case _:
                super()._perform(effect)
