"""Member of a share group (KIP-932): performs the effects of its machine."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import CoordinatorType
from aiokafkawire.config import ShareConsumerConfig
from aiokafkawire.logs import count_partitions, list_partitions
from aiokafkawire.runtime import Runtime, Supervisor

from .consumer_protocol.context import ConsumerProtocolSettings
from .consumer_protocol.effects import (
    RaiseError,
    RefreshTopics,
    SendConsumerHeartbeat,
    SendLeaveEpoch,
)
from .consumer_protocol.events import TopicsResolved
from .consumer_protocol.states import InGroup
from .member import GroupMember, MembershipOwner
from .membership.effects import FindCoordinator, ForgetCoordinator, MembershipEffect
from .share_protocol.effects import ReplaceAssignment
from .share_protocol.machine import ShareProtocolMachine
from .share_requests import ShareGroupRequests
from .topic_id_partition import Partitions, topic_partitions

__all__ = ("ShareAssignmentOwner", "ShareMember")


class ShareAssignmentOwner(MembershipOwner, Protocol):
    """Client that reads the partitions of a member: the share consumer."""

    def replace_assignment(self, partitions: Partitions) -> None:
        """Read exactly these partitions from now on."""
        ...


class ShareMember(GroupMember):
    """A member of a share group. Several members may read a partition."""

    protocol = "share"
    _machine: ShareProtocolMachine
    _owner: ShareAssignmentOwner

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        supervisor: Supervisor,
        config: ShareConsumerConfig,
        *,
        owner: ShareAssignmentOwner,
    ) -> None:
        super().__init__(cluster, runtime, supervisor, config, owner)
        self.member_id = urlsafe_b64encode(runtime.rng.randbytes(16)).rstrip(b"=").decode()
        settings = ConsumerProtocolSettings(
            member_id=self.member_id,
            group_instance_id=None,
            max_poll_interval_ms=config.max_poll_interval_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            request_timeout_ms=config.request_timeout_ms,
            default_api_timeout_ms=config.default_api_timeout_ms,
        )
        self._machine = ShareProtocolMachine(settings, runtime.rng, self._clock.now())
        self._requests = ShareGroupRequests(
            cluster,
            runtime.clock,
            config,
            self.member_id,
            topic_names=self._topic_names,
            on_result=owner.on_coordinator_result,
            log=self._log,
        )

    def metadata_changed(self) -> None:
        """Read partitions of topics whose names were not known."""
        state = self._machine.state
        if isinstance(state, InGroup) and state.target.unresolved:
            self._handle(TopicsResolved(self._topic_names()))

    def _topic_names(self) -> Mapping[UUID, str]:
        topics = self._cluster.metadata.topics
        return {topics[name].topic_id: name for name in self.topics if name in topics}

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
            case ReplaceAssignment(partitions):
                self._last_generation = self._machine.generation or self._last_generation
                owned = topic_partitions(partitions)
                self._log(
                    f"assigned {count_partitions(owned)}: {list_partitions(owned)}",
                    partitions=len(owned),
                )
                self._owner.replace_assignment(partitions)
            case _:
                super()._perform(effect)
