"""Member of the consumer protocol (KIP-848): performs the effects of its machine."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from uuid import UUID

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import CoordinatorType
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import count_partitions, list_partitions
from aiokafkawire.runtime import Runtime, Supervisor

from .consumer_protocol.context import ConsumerProtocolSettings
from .consumer_protocol.effects import (
    ChangeEpoch,
    RaiseError,
    RefreshTopics,
    SendConsumerHeartbeat,
    SendLeaveEpoch,
    UseClassicProtocol,
)
from .consumer_protocol.events import TopicsResolved
from .consumer_protocol.machine import ConsumerProtocolMachine
from .consumer_protocol.states import InGroup
from .consumer_requests import ConsumerGroupRequests
from .member import CommittingMember, PartitionOwner
from .membership.effects import (
    AssignPartitions,
    EnterGeneration,
    FindCoordinator,
    ForgetCoordinator,
    MembershipEffect,
    RevokePartitions,
)
from .topic_id_partition import topic_partitions

__all__ = ("ConsumerProtocolMember",)


class ConsumerProtocolMember(CommittingMember):
    """A member in the consumer protocol, in which the coordinator assigns partitions (KIP-848).

    `use_classic` is called, at most once, if this member cannot join because the cluster lacks the
    protocol or the group is of another type. The member is closed then.
    """

    protocol = "consumer"
    _machine: ConsumerProtocolMachine

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        supervisor: Supervisor,
        config: ConsumerConfig,
        *,
        owner: PartitionOwner,
        use_classic: Callable[[KafkaError], None] | None = None,
    ) -> None:
        super().__init__(cluster, runtime, supervisor, config, owner)
        member_id = urlsafe_b64encode(runtime.rng.randbytes(16)).rstrip(b"=").decode()
        settings = ConsumerProtocolSettings(
            member_id=member_id,
            group_instance_id=config.group_instance_id,
            max_poll_interval_ms=config.max_poll_interval_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            request_timeout_ms=config.request_timeout_ms,
            default_api_timeout_ms=config.default_api_timeout_ms,
            may_fall_back=use_classic is not None,
        )
        self._use_classic = use_classic
        self._machine = ConsumerProtocolMachine(settings, runtime.rng, self._clock.now())
        self._requests = ConsumerGroupRequests(
            cluster,
            runtime.clock,
            config,
            member_id,
            topic_names=self._topic_names,
            must_check_feature=lambda: self._machine.context.may_fall_back,
            on_result=owner.on_coordinator_result,
            log=self._log,
        )

    def metadata_changed(self) -> None:
        """Own partitions of topics whose names were not known."""
        state = self._machine.state
        # mutation: topic-unknown-at-assignment-never-read
        if isinstance(state, InGroup) and state.target.unresolved:
            self._handle(TopicsResolved(self._topic_names()))

    def _topic_names(self) -> Mapping[UUID, str]:
        topics = self._cluster.metadata.topics
        names = self.topics if self.pattern is None else topics
        return {topics[name].topic_id: name for name in names if name in topics}

    @property
    def pattern(self) -> str | None:
        """Pattern of topic names that the coordinator matches."""
        return self._machine.context.pattern

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
            case UseClassicProtocol(error):
                assert self._use_classic is not None
                self._use_classic(error)
            case RaiseError(error):
                error.group = self.group_id
                self._log(f"heartbeat failed: {error}", logging.WARNING, error=error)
                self._owner.raise_error(error)
            case RefreshTopics():
                self._cluster.request_update()
            case ChangeEpoch(epoch, owned):
                self._last_generation = self._machine.generation
                self._owner.on_epoch_changed(epoch, topic_partitions(owned))
            case RevokePartitions(request, partitions):
                self._owner.prepare_revoke(partitions)
                self._start("revoke", self._revoke(request, partitions))
            case EnterGeneration(generation, owned):
                self._log(
                    f"member epoch {generation.number}: {count_partitions(owned)}:"
                    f" {list_partitions(owned)}",
                    partitions=len(owned),
                )
                self._owner.on_generation_joined(generation, owned)
            case AssignPartitions(partitions):
                self._owner.assign(partitions)
            case _:
                super()._perform(effect)
