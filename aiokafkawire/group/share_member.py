"""Member of a share group (KIP-932): performs the effects of its machine."""

from __future__ import annotations

from typing import Protocol

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.config import ShareConsumerConfig
from aiokafkawire.logs import count_partitions, list_partitions
from aiokafkawire.runtime import Runtime, Supervisor

from .heartbeat_member import HeartbeatMember, member_settings
from .member import MembershipOwner
from .membership.effects import MembershipEffect
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


class ShareMember(HeartbeatMember):
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
        settings = member_settings(config, runtime.rng)
        self.member_id = settings.member_id
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

    def _perform(self, effect: MembershipEffect) -> None:
        match effect:
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
