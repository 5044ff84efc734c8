"""Member of the consumer protocol (KIP-848): performs the effects of its machine."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import count_partitions, list_partitions
from aiokafkawire.runtime import Runtime, Supervisor

from .consumer_protocol.effects import (
    ChangeEpoch,
    UseClassicProtocol,
)
from .consumer_protocol.machine import ConsumerProtocolMachine
from .consumer_requests import ConsumerGroupRequests
from .heartbeat_member import HeartbeatMember, member_settings
from .member import CommittingMember, PartitionOwner
from .membership.effects import (
    AssignPartitions,
    EnterGeneration,
    MembershipEffect,
    RevokePartitions,
)
from .topic_id_partition import topic_partitions

__all__ = ("ConsumerProtocolMember",)


class ConsumerProtocolMember(HeartbeatMember, CommittingMember):
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
        settings = member_settings(
            config, runtime.rng, config.group_instance_id, may_fall_back=use_classic is not None
        )
        self._use_classic = use_classic
        self._machine = ConsumerProtocolMachine(settings, runtime.rng, self._clock.now())
        self._requests = ConsumerGroupRequests(
            cluster,
            runtime.clock,
            config,
            settings.member_id,
            topic_names=self._topic_names,
            must_check_feature=lambda: self._machine.context.may_fall_back,
            on_result=owner.on_coordinator_result,
            log=self._log,
        )

    @property
    def pattern(self) -> str | None:
        """Pattern of topic names that the coordinator matches."""
        return self._machine.context.pattern

    def _perform(self, effect: MembershipEffect) -> None:
        match effect:
            case UseClassicProtocol(error):
                assert self._use_classic is not None
                self._use_classic(error)
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
