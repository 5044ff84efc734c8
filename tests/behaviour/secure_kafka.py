"""Listeners of real Kafka with the security of a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.behaviour.security import requested
from tests.brokers.security.cases import password_access
from tests.brokers.security.servers import SecureKafka, SecureServers

__all__ = ("SecureServers", "client_options", "listener_of")


def listener_of(kafka: SecureKafka, config: pytest.Config) -> str:
    """Return the name of the first listener with the protocol and the mechanism."""
    protocol, mechanism = requested(config)
    return next(
        each.name
        for each in kafka.listeners.values()
        if each.protocol == protocol and (mechanism is None or mechanism in each.mechanisms)
    )


def client_options(servers: SecureServers, listener: str, config: pytest.Config) -> dict[str, Any]:
    """Return the options of a client, without its bootstrap servers."""
    protocol, mechanism = requested(config)
    options: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        options["ssl_cafile"] = str(servers.pki.authority)
    if mechanism is not None:
        _, access = password_access(servers, listener, mechanism)
        options["sasl_mechanism"] = mechanism
        options["sasl_username"], options["sasl_password"] = access.username, access.password
    return options
