"""Commands of the controller to nodes, and their requests in each version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from aiokafkawire.broker.topics import NO_LEADER
from aiokafkawire.runtime import Address
from aiokafkawire.wire import ZERO_UUID
from aiokafkawire.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from aiokafkawire.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from aiokafkawire.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

__all__ = (
    "LEADER_DURING_DELETE",
    "ControllerCommand",
    "Key",
    "LeaderAndIsr",
    "LeaderAndIsrCommand",
    "LiveNode",
    "StopReplicaCommand",
    "UpdateMetadataCommand",
    "build_leader_and_isr_request",
    "build_leader_and_isr_response",
    "build_stop_replica_request",
    "build_update_metadata_request",
    "parse_leader_and_isr",
    "parse_stop_replica",
    "parse_update_metadata",
)

Key = tuple[str, int]
"""Topic and partition."""

LEADER_DURING_DELETE = -2
"""Leader of a deleted partition in UpdateMetadata."""

PLAINTEXT = 0
LISTENER = "PLAINTEXT"

LEADER_AND_ISR_BY_TOPIC_VERSION = 2
LEADER_AND_ISR_ERRORS_BY_TOPIC_VERSION = 5
STOP_BY_TOPIC_VERSION = 1
STOP_STATES_VERSION = 3
METADATA_BY_TOPIC_VERSION = 5
METADATA_ENDPOINTS_VERSION = 1


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Leader and replicas of a partition; `leader` may be -1 or `LEADER_DURING_DELETE`."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]

    @property
    def has_leader(self) -> bool:
        """Return True if there is a leader to follow."""
        return self.leader > NO_LEADER


@dataclass(frozen=True, slots=True)
class LiveNode:
    """Address and rack of a node."""

    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """Common part of all commands."""

    controller_id: int
    controller_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrCommand(_Order):
    """Lead or follow these partitions; `leaders` are the addresses to fetch from."""

    partitions: Mapping[Key, LeaderAndIsr]
    leaders: Mapping[int, Address]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaCommand(_Order):
    """Stop these partitions; True deletes the log."""

    partitions: Mapping[Key, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataCommand(_Order):
    """Return this metadata to clients, with exactly these live nodes."""

    partitions: Mapping[Key, LeaderAndIsr]
    live: Mapping[int, LiveNode]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)


ControllerCommand = LeaderAndIsrCommand | StopReplicaCommand | UpdateMetadataCommand


def _by_topic(keys: Iterable[Key]) -> dict[str, list[int]]:
    """Group partitions by topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, index in keys:
        topics.setdefault(topic, []).append(index)
    return topics


def _assignment(state: LeaderAndIsrPartitionState | UpdateMetadataPartitionState) -> LeaderAndIsr:
    return LeaderAndIsr(state.leader, state.leader_epoch, tuple(state.isr), tuple(state.replicas))


def _assignments(
    request: LeaderAndIsrRequest | UpdateMetadataRequest, *, by_name: bool
) -> dict[Key, LeaderAndIsr]:
    """Return the partitions of a request; with `by_name` each one has its own topic name."""
    if by_name:
        ungrouped = request.ungrouped_partition_states
        return {
            (state.topic_name, state.partition_index): _assignment(state) for state in ungrouped
        }
    return {
        (topic.topic_name, state.partition_index): _assignment(state)
        for topic in request.topic_states
        for state in topic.partition_states
    }


# --- LeaderAndIsr --------------------------------------------------------------------------------


def parse_leader_and_isr(request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrCommand:
    """Return the command of a request."""
    return LeaderAndIsrCommand(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        partitions=_assignments(request, by_name=version < LEADER_AND_ISR_BY_TOPIC_VERSION),
        leaders={
            node.broker_id: Address(node.host_name, node.port) for node in request.live_leaders
        },
        topic_ids={topic.topic_name: topic.topic_id for topic in request.topic_states},
    )


def build_leader_and_isr_request(command: LeaderAndIsrCommand, version: int) -> LeaderAndIsrRequest:
    """Return the request of a command."""
    by_name = version < LEADER_AND_ISR_BY_TOPIC_VERSION
    states = {
        key: LeaderAndIsrPartitionState(
            topic_name=key[0] if by_name else "",
            partition_index=key[1],
            controller_epoch=command.controller_epoch,
            leader=assignment.leader,
            leader_epoch=assignment.leader_epoch,
            isr=list(assignment.isr),
            partition_epoch=0,
            replicas=list(assignment.replicas),
        )
        for key, assignment in command.partitions.items()
    }
    request = LeaderAndIsrRequest(
        controller_id=command.controller_id,
        controller_epoch=command.controller_epoch,
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=node, host_name=address.host, port=address.port)
            for node, address in command.leaders.items()
        ],
    )
    if by_name:
        request.ungrouped_partition_states = list(states.values())
        return request
    request.topic_states = [
        LeaderAndIsrTopicState(
            topic_name=topic,
            topic_id=command.topic_ids.get(topic, ZERO_UUID),
            partition_states=[states[topic, index] for index in indexes],
        )
        for topic, indexes in _by_topic(states).items()
    ]
    return request


def build_leader_and_isr_response(
    command: LeaderAndIsrCommand, errors: Mapping[Key, int], version: int, error_code: int
) -> LeaderAndIsrResponse:
    """Return a response with errors per partition and one for the whole request."""
    response = LeaderAndIsrResponse(error_code=error_code)
    if version < LEADER_AND_ISR_ERRORS_BY_TOPIC_VERSION:
        response.partition_errors = [
            LeaderAndIsrPartitionError(topic_name=topic, partition_index=index, error_code=code)
            for (topic, index), code in errors.items()
        ]
        return response
    response.topics = [
        LeaderAndIsrTopicError(
            topic_id=command.topic_ids.get(topic, ZERO_UUID),
            partition_errors=[
                LeaderAndIsrPartitionError(partition_index=index, error_code=errors[topic, index])
                for index in indexes
            ],
        )
        for topic, indexes in _by_topic(errors).items()
    ]
    return response


# --- StopReplica ---------------------------------------------------------------------------------


def parse_stop_replica(request: StopReplicaRequest, version: int) -> StopReplicaCommand:
    """Return the command of a request."""
    return StopReplicaCommand(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        partitions=dict(_stopped(request, version)),
    )


def _stopped(request: StopReplicaRequest, version: int) -> Iterator[tuple[Key, bool]]:
    if version >= STOP_STATES_VERSION:
        for states in request.topic_states:
            for state in states.partition_states:
                yield (states.topic_name, state.partition_index), state.delete_partition
    elif version >= STOP_BY_TOPIC_VERSION:
        for topic in request.topics:
            for index in topic.partition_indexes:
                yield (topic.name, index), request.delete_partitions
    else:
        for partition in request.ungrouped_partitions:
            yield (partition.topic_name, partition.partition_index), request.delete_partitions


def build_stop_replica_request(command: StopReplicaCommand, version: int) -> StopReplicaRequest:
    """Return the request of a command; before v3 it deletes all partitions or none."""
    request = StopReplicaRequest(
        controller_id=command.controller_id, controller_epoch=command.controller_epoch
    )
    topics = _by_topic(command.partitions)
    if version >= STOP_STATES_VERSION:
        request.topic_states = [
            StopReplicaTopicState(
                topic_name=topic,
                partition_states=[
                    StopReplicaPartitionState(
                        partition_index=index, delete_partition=command.partitions[topic, index]
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in topics.items()
        ]
        return request
    request.delete_partitions = all(command.partitions.values())
    if version >= STOP_BY_TOPIC_VERSION:
        request.topics = [
            StopReplicaTopicV1(name=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ]
    else:
        request.ungrouped_partitions = [
            StopReplicaPartitionV0(topic_name=topic, partition_index=index)
            for topic, index in command.partitions
        ]
    return request


# --- UpdateMetadata ------------------------------------------------------------------------------


def parse_update_metadata(request: UpdateMetadataRequest, version: int) -> UpdateMetadataCommand:
    """Return the command of a request; nodes without a client address count as down."""
    return UpdateMetadataCommand(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        partitions=_assignments(request, by_name=version < METADATA_BY_TOPIC_VERSION),
        live={
            node.id: LiveNode(address, node.rack or None)
            for node in request.live_brokers
            if (address := _address(node, version)) is not None
        },
    )


def _address(node: UpdateMetadataBroker, version: int) -> Address | None:
    if version < METADATA_ENDPOINTS_VERSION:
        return Address(node.v0_host, node.v0_port)
    plain = (each for each in node.endpoints if each.security_protocol == PLAINTEXT)
    endpoint = next(plain, None)
    return None if endpoint is None else Address(endpoint.host, endpoint.port)


def build_update_metadata_request(
    command: UpdateMetadataCommand, version: int
) -> UpdateMetadataRequest:
    """Return the request of a command."""
    by_name = version < METADATA_BY_TOPIC_VERSION
    states = {
        key: UpdateMetadataPartitionState(
            topic_name=key[0] if by_name else "",
            partition_index=key[1],
            controller_epoch=command.controller_epoch,
            leader=assignment.leader,
            leader_epoch=assignment.leader_epoch,
            isr=list(assignment.isr),
            zk_version=0,
            replicas=list(assignment.replicas),
        )
        for key, assignment in command.partitions.items()
    }
    request = UpdateMetadataRequest(
        controller_id=command.controller_id,
        controller_epoch=command.controller_epoch,
        live_brokers=[_broker(node, live) for node, live in command.live.items()],
    )
    if by_name:
        request.ungrouped_partition_states = list(states.values())
        return request
    request.topic_states = [
        UpdateMetadataTopicState(
            topic_name=topic,
            topic_id=command.topic_ids.get(topic, ZERO_UUID),
            partition_states=[states[topic, index] for index in indexes],
        )
        for topic, indexes in _by_topic(states).items()
    ]
    return request


def _broker(node: int, live: LiveNode) -> UpdateMetadataBroker:
    host, port = live.address
    return UpdateMetadataBroker(
        id=node,
        v0_host=host,
        v0_port=port,
        endpoints=[
            UpdateMetadataEndpoint(
                port=port, host=host, listener=LISTENER, security_protocol=PLAINTEXT
            )
        ],
        rack=live.rack,
    )
