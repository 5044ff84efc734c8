"""Operations on the metadata quorum and on registered nodes."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from aiokafkawire.admin.items import response_error
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.response_values import unless_negative, unless_zero
from aiokafkawire.admin.types.quorum import (
    QuorumInfo,
    QuorumNode,
    QuorumReplicaState,
    RaftVoterEndpoint,
)
from aiokafkawire.errors import ProtocolError
from aiokafkawire.types import NodeId
from aiokafkawire.wire.messages import describe_quorum as messages
from aiokafkawire.wire.messages.add_raft_voter import AddRaftVoterListener, AddRaftVoterRequest
from aiokafkawire.wire.messages.describe_quorum import (
    DescribeQuorumPartitionData,
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopicData,
)
from aiokafkawire.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from aiokafkawire.wire.messages.unregister_broker import UnregisterBrokerRequest
from aiokafkawire.wire.messages.unregister_controller import UnregisterControllerRequest

__all__ = ("QuorumOperations",)

METADATA_TOPIC = "__cluster_metadata"
"""Topic of the metadata log, which has one partition."""


class QuorumOperations(Operations):
    """Operations on the metadata quorum."""

    async def describe_metadata_quorum(self, *, timeout_ms: int | None = None) -> QuorumInfo:
        """Describe the controllers: their leader, and the progress of each.

        Args:
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            Leader, epoch, high watermark, voters and observers.

        Raises:
            UnsupportedVersion: The brokers use ZooKeeper, or are older than 3.3.
            KafkaError: No broker could answer.
        """
        response = await self._requester(timeout_ms).request(
            DescribeQuorumRequest(
                topics=[
                    DescribeQuorumTopicData(
                        topic_name=METADATA_TOPIC,
                        partitions=[DescribeQuorumPartitionData(partition_index=0)],
                    )
                ]
            )
        )
        return _read_quorum(response)

    async def add_raft_voter(
        self,
        voter_id: NodeId,
        voter_directory_id: UUID,
        endpoints: Iterable[RaftVoterEndpoint],
        *,
        cluster_id: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Add a controller to the voters of the metadata quorum (KIP-853).

        Args:
            voter_id: Node id of the controller.
            voter_directory_id: Id of its metadata directory.
            endpoints: Its addresses.
            cluster_id: The request fails in a cluster with another id; by default not checked.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Raises:
            BrokerError: Such as DUPLICATE_VOTER.
            UnsupportedVersion: Brokers before 3.9, and clusters with fixed voters, cannot do this.
            KafkaError: No broker could answer.
        """
        requester = self._requester(timeout_ms)
        await requester.request(
            AddRaftVoterRequest(
                cluster_id=cluster_id,
                timeout_ms=requester.timeout_ms,
                voter_id=voter_id,
                voter_directory_id=voter_directory_id,
                listeners=[
                    AddRaftVoterListener(name=each.listener, host=each.host, port=each.port)
                    for each in endpoints
                ],
            )
        )

    async def remove_raft_voter(
        self,
        voter_id: NodeId,
        voter_directory_id: UUID,
        *,
        cluster_id: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Remove a controller from the voters of the metadata quorum (KIP-853).

        Args:
            voter_id: Node id of the controller.
            voter_directory_id: Id of its metadata directory.
            cluster_id: The request fails in a cluster with another id; by default not checked.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Raises:
            BrokerError: Such as VOTER_NOT_FOUND.
            UnsupportedVersion: Brokers before 3.9, and clusters with fixed voters, cannot do this.
            KafkaError: No broker could answer.
        """
        await self._requester(timeout_ms).request(
            RemoveRaftVoterRequest(
                cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=voter_directory_id
            )
        )

    async def unregister_broker(self, broker_id: NodeId, *, timeout_ms: int | None = None) -> None:
        """Remove the registration of a broker that does not return, with KRaft.

        Args:
            broker_id: The broker, which must be down.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Raises:
            BrokerError: Such as BROKER_ID_NOT_REGISTERED.
            UnsupportedVersion: The brokers use ZooKeeper, or are older than 3.3.
            KafkaError: No broker could answer.
        """
        await self._requester(timeout_ms).request(UnregisterBrokerRequest(broker_id=broker_id))

    async def unregister_controller(
        self, controller_id: NodeId, *, timeout_ms: int | None = None
    ) -> None:
        """Remove the registration of a controller that does not return (Kafka 4.4+).

        Args:
            controller_id: The controller, which must be down.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Raises:
            BrokerError: Such as CONTROLLER_ID_NOT_REGISTERED.
            UnsupportedVersion: The brokers are older than 4.4.
            KafkaError: No broker could answer.
        """
        await self._requester(timeout_ms).request(
            UnregisterControllerRequest(controller_id=controller_id)
        )


def _read_quorum(response: DescribeQuorumResponse) -> QuorumInfo:
    found = [
        (topic.topic_name, part.partition_index, part)
        for topic in response.topics
        for part in topic.partitions
    ]
    if [key for *key, _ in found] != [[METADATA_TOPIC, 0]]:
        raise ProtocolError(
            f"the DescribeQuorum response must have partition 0 of {METADATA_TOPIC} alone",
            api="DescribeQuorum",
        )
    part: DescribeQuorumPartitionResult = found[0][-1]
    error = response_error(part.error_code, part.error_message, api="DescribeQuorum")
    if error is not None:
        raise error
    nodes = {
        node.node_id: QuorumNode(
            node.node_id,
            tuple(RaftVoterEndpoint(each.name, each.host, each.port) for each in node.listeners),
        )
        for node in response.nodes
    }
    return QuorumInfo(
        unless_negative(part.leader_id),
        part.leader_epoch,
        part.high_watermark,
        _replicas(part.current_voters),
        _replicas(part.observers),
        {node_id: nodes[node_id] for node_id in sorted(nodes)},
    )


def _replicas(
    states: Iterable[messages.QuorumReplicaState],
) -> tuple[QuorumReplicaState, ...]:
    replicas = [
        QuorumReplicaState(
            state.replica_id,
            unless_zero(state.replica_directory_id),
            state.log_end_offset,
            unless_negative(state.last_fetch_timestamp),
            unless_negative(state.last_caught_up_timestamp),
        )
        for state in states
    ]
    return tuple(sorted(replicas, key=lambda replica: replica.replica_id))
