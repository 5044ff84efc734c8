"""Voters of the controller quorum, as far as an embedded cluster has one (KIP-595, KIP-853).

The cluster's state is kept in one place, so the voters have no part in it. They are listed for
admin clients, which can remove voters and add them again.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.primitives import uuid_to_text

__all__ = ("ControllerQuorum",)

CONTROLLER_LISTENER = "CONTROLLER"
"""Name of the listener among controllers."""


class ControllerQuorum:
    """Voters among the nodes of a cluster; the other nodes are observers."""

    def __init__(self, node_ids: Sequence[int]) -> None:
        self.node_ids = list(node_ids)
        self.voters = list(node_ids)

    def directory_id(self, cluster_id: str, node_id: int) -> UUID:
        """Return the id of a node's metadata directory, which stays the same."""
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{cluster_id}/{node_id}")

    def load(self, voters: Sequence[int]) -> None:
        """Restore stored voters, those that are still nodes."""
        self.voters = [node for node in self.node_ids if node in voters] or list(self.node_ids)

    def add_voter(
        self,
        cluster_id: str,
        voter: int,
        directory: UUID,
        listeners: Sequence[str],
        live: Sequence[int],
    ) -> None:
        """Make a live node a voter.

        Raises:
            ApiError: The voter is invalid, a voter already, or no node that can be reached.
        """
        if voter < 0 or directory == ZERO_UUID:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter"
            )
        if CONTROLLER_LISTENER not in listeners:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "Add voter request didn't include the endpoint (Endpoints(endpoints={})) for the"
                f" default listener ListenerName({CONTROLLER_LISTENER})",
            )
        if voter in self.voters:
            raise ApiError(
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {_key(voter, directory)} is already part of the set of voters"
                f" {self._text(cluster_id)}.",
            )
        if voter not in live or directory != self.directory_id(cluster_id, voter):
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                "Aborted add voter operation for since API_VERSIONS returned an error"
                " BROKER_NOT_AVAILABLE",
            )
        self.voters = [node for node in self.node_ids if node in self.voters or node == voter]

    def remove_voter(self, cluster_id: str, voter: int, directory: UUID) -> None:
        """Make a voter an observer.

        Raises:
            ApiError: There is no such voter, or it is the only one.
        """
        if voter < 0 or directory == ZERO_UUID:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter"
            )
        is_voter = voter in self.voters and directory == self.directory_id(cluster_id, voter)
        if not is_voter or len(self.voters) == 1:
            raise ApiError(
                ErrorCode.VOTER_NOT_FOUND,
                f"Cannot remove voter {_key(voter, directory)} from the set of voters"
                f" {self._text(cluster_id)}",
            )
        self.voters.remove(voter)

    def _text(self, cluster_id: str) -> str:
        """Return the voters as in Kafka's messages."""
        keys = [_key(node, self.directory_id(cluster_id, node)) for node in self.voters]
        return f"[{', '.join(keys)}]"


def _key(node_id: int, directory: UUID) -> str:
    return f"ReplicaKey(id={node_id}, directoryId={uuid_to_text(directory)})"
