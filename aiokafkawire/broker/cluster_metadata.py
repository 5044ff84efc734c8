"""Metadata of the cluster beside topics, such as quotas, features, the quorum, ACLs, tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafkawire.broker.acl_changes import AclChanges
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.authentication.delegation_tokens import DelegationTokens
from aiokafkawire.broker.authentication.scram_changes import ScramChanges
from aiokafkawire.broker.feature_levels import FeatureLevels
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.quorum import ControllerQuorum
from aiokafkawire.broker.quotas.entities import ClientQuotas
from aiokafkawire.security import Secret
from aiokafkawire.wire import ErrorCode

__all__ = ("ClusterMetadata",)


class ClusterMetadata:
    """Content of KRaft's metadata log beside topics and configs.

    `offset` is the end of that log: it counts the changes of the cluster's state.
    """

    def __init__(self, node_ids: Sequence[int], options: BrokerConfig) -> None:
        key = options.delegation_token_secret_key
        self.tokens = DelegationTokens(
            None if key is None else Secret(key),
            options.delegation_token_max_lifetime_ms,
            options.delegation_token_expiry_time_ms,
        )
        self.quotas = ClientQuotas()
        self.features = FeatureLevels()
        self.quorum = ControllerQuorum(node_ids)
        self.scram = ScramChanges()
        self.acls = AclChanges()
        self.unregistered: set[int] = set()
        self._unregistered_controllers: set[int] = set()
        self.offset = 0

    @property
    def registered(self) -> list[int]:
        """Nodes that are registered, whether they are up or not."""
        return [node for node in self.quorum.node_ids if node not in self.unregistered]

    def unregister(self, node_id: int, live: Sequence[int]) -> None:
        """Forget a node that is down until it starts again. A live one registers again at once.

        Raises:
            ApiError: The node is not registered.
        """
        if node_id not in self.registered:
            raise ApiError(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"Broker ID {node_id} is not currently registered",
            )
        if node_id not in live:
            self.unregistered.add(node_id)

    def unregister_controller(self, node_id: int, live: Sequence[int]) -> None:
        """Forget the controller of a node that is down, as `unregister` does its broker.

        Raises:
            ApiError: The controller is not registered.
        """
        registered = set(self.quorum.node_ids) - self._unregistered_controllers
        if node_id not in registered:
            raise ApiError(
                ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
                f"Controller ID {node_id} is not currently registered.",
            )
        if node_id not in live:
            self._unregistered_controllers.add(node_id)

    def register(self, node_id: int) -> None:
        """Register the broker and the controller of a node that starts."""
        self.unregistered.discard(node_id)
        self._unregistered_controllers.discard(node_id)

    def to_json(self) -> dict[str, Any]:
        """Return the metadata to store."""
        return {
            "client_quotas": self.quotas.to_json(),
            "features": self.features.to_json(),
            "voters": self.quorum.voters,
            "delegation_tokens": self.tokens.to_json(),
            "scram_credentials": self.scram.to_json(),
            "acls": self.acls.to_json(),
        }

    def load(self, stored: Mapping[str, Any]) -> None:
        """Replace all by stored metadata."""
        self.quotas.load(stored.get("client_quotas", ()))
        self.features.load(stored.get("features", {}))
        self.quorum.load(stored.get("voters", ()))
        self.tokens.load(stored.get("delegation_tokens", ()))
        self.scram.load(stored.get("scram_credentials", ()))
        self.acls.load(stored.get("acls", ()))
