"""The cluster of the comparison: three nodes with ACLs, SCRAM and delegation tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.brokers.kafka import Kafka, Node
from tests.brokers.process import HOST, free_ports

__all__ = ("NODES", "PASSWORD", "USER", "ParityKafka", "client_options", "java_options")

NODES = 3
USER, PASSWORD = "root", "root-password"
"""A super user: tokens are refused to clients without authentication."""

_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def client_options(bootstrap_servers: str) -> dict[str, Any]:
    """Return the options of our clients."""
    return {
        "bootstrap_servers": bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": USER,
        "sasl_password": PASSWORD,
    }


def java_options(bootstrap_servers: str) -> dict[str, str]:
    """Return the properties of Java's clients."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{_LOGIN} username="{USER}" password="{PASSWORD}";',
    }


class ParityKafka(Kafka):
    """Nodes that talk in plaintext, and a listener with SASL for the clients."""

    def __init__(self) -> None:
        super().__init__(nodes=NODES)
        self._sasl_ports: dict[int, int] = {}

    @property
    def secure_servers(self) -> str:
        """Bootstrap servers of the listener with SASL."""
        return ",".join(f"{HOST}:{port}" for port in self._sasl_ports.values())

    def _settings(self, node: Node, nodes: Sequence[Node]) -> dict[str, str]:
        settings = super()._settings(node, nodes)
        (port,) = free_ports(1)
        self._sasl_ports[node.node_id] = port
        listener = f"SASL_PLAINTEXT://{HOST}:{port}"
        protocols = {"CONTROLLER": "PLAINTEXT"} | {
            name: name for name in ("PLAINTEXT", "SASL_PLAINTEXT")
        }
        return settings | {
            "listeners": f"{settings['listeners']},{listener}",
            "advertised.listeners": f"{settings['advertised.listeners']},{listener}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The nodes themselves are anonymous.
            "super.users": f"User:ANONYMOUS;User:{USER}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{_LOGIN} user_{USER}="{PASSWORD}";'
            ),
            "delegation.token.secret.key": "a-secret-key",
        }
