"""Arguments and results of the operations on the metadata quorum (KIP-595, KIP-853)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from aiokafkawire.types import NodeId

__all__ = ("QuorumInfo", "QuorumNode", "QuorumReplicaState", "RaftVoterEndpoint")


@dataclass(frozen=True, slots=True)
class RaftVoterEndpoint:
    """Address of a controller, with the name of its listener."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumReplicaState:
    """A voter or observer of the metadata log.

    Attributes:
        replica_id: Node id.
        replica_directory_id: Id of its metadata directory; None before Kafka 3.9 or if unknown.
        log_end_offset: Offset after its last record.
        last_fetch_timestamp_ms: Time of its last fetch as the leader knows it, in milliseconds
            since 1970; None if unknown.
        last_caught_up_timestamp_ms: Last time at which it had the leader's whole log, in
            milliseconds since 1970; None if unknown.
    """

    replica_id: NodeId
    replica_directory_id: UUID | None
    log_end_offset: int
    last_fetch_timestamp_ms: int | None
    last_caught_up_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumNode:
    """Addresses of a controller."""

    node_id: NodeId
    endpoints: tuple[RaftVoterEndpoint, ...]


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """State of the metadata quorum.

    Attributes:
        leader_id: Node id of the active controller; None during an election.
        leader_epoch: Epoch of the leader.
        high_watermark: High watermark of the metadata log.
        voters: Controllers that vote, in order of node ids.
        observers: Brokers, and controllers that do not vote.
        nodes: Addresses of the voters by node id; empty before Kafka 3.9.
    """

    leader_id: NodeId | None
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplicaState, ...]
    observers: tuple[QuorumReplicaState, ...]
    nodes: Mapping[NodeId, QuorumNode]
