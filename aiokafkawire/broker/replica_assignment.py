"""Replicas of new partitions: chosen by the cluster, or given by a client."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.wire import ErrorCode

__all__ = ("check_counts", "spread_replicas", "validate_assignments")


def check_counts(partitions: int, replication_factor: int, nodes: int) -> None:
    """Raise `ApiError` unless a topic can have this number of partitions and of replicas."""
    if replication_factor < 1:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions < 1:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if replication_factor > nodes:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target"
            f" replication factor of {replication_factor} cannot be reached because only"
            f" {nodes} broker(s) are registered or some brokers have all their log directories"
            " cordoned.",
        )


def spread_replicas(
    name: str, indexes: range, replication_factor: int, nodes: Sequence[int]
) -> list[list[int]]:
    """Return the replicas of partitions of a topic, spread over the nodes."""
    start = zlib.crc32(name.encode())
    return [
        [nodes[(start + index + replica) % len(nodes)] for replica in range(replication_factor)]
        for index in indexes
    ]


def validate_assignments(
    assignments: Mapping[int, Sequence[int]], nodes: Collection[int], first_partition: int = 0
) -> list[list[int]]:
    """Return the replicas that a client gives, in the order of the partitions.

    Raises:
        ApiError: A partition is missing, or has unknown or repeated replicas.
    """
    indexes = range(first_partition, first_partition + len(assignments))
    assigned = [list(replicas) for _, replicas in sorted(assignments.items())]
    for replicas in assigned:
        _check_replicas(replicas, nodes)
        if len(replicas) != len(assigned[0]):
            raise _invalid(
                f"The manual partition assignment includes a partition with {len(replicas)}"
                " replica(s), but this is not consistent with previous partitions, which have"
                f" {len(assigned[0])} replica(s)."
            )
    if sorted(assignments) != list(indexes):
        raise _invalid("partitions should be a consecutive 0-based integer sequence")
    return assigned


def _check_replicas(replicas: Sequence[int], nodes: Collection[int]) -> None:
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    previous: int | None = None
    for node in sorted(replicas):
        if node not in nodes:
            raise _invalid(
                f"The manual partition assignment includes broker {node}, but no such broker is"
                " registered."
            )
        if node == previous:
            raise _invalid(
                f"The manual partition assignment includes the broker {node} more than once."
            )
        previous = node


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
