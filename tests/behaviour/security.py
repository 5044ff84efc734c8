"""Security of the connections in a run of these tests: `--security-protocol`, `--sasl-mechanism`.

The tests name bootstrap servers alone; the other options are added where clients read theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from aiokafkawire.broker import BrokerSasl, BrokerTls, CertificateAuthority
from aiokafkawire.broker.authentication.authenticator import MECHANISM_SINCE
from aiokafkawire.consumer import consumer
from aiokafkawire.producer import producer
from aiokafkawire.producer.transactions import end_detached
from tests.behaviour.client_options import add_worker_options, change_options
from tests.brokers.releases import number_of

__all__ = (
    "add_client_options",
    "broker_arguments",
    "not_secured",
    "requested",
)

TLS_SINCE = "0.9.0"

USERS = {"alice": "alice-password"}

MODULES = (consumer, producer, end_detached)
"""Modules that read the options of a client."""


@cache
def _authority() -> CertificateAuthority:
    return CertificateAuthority()


def requested(config: pytest.Config) -> tuple[str, str | None]:
    """Return security protocol and mechanism of a run."""
    protocol: str = config.getoption("--security-protocol")
    mechanism: str = config.getoption("--sasl-mechanism")
    return protocol, mechanism if protocol.startswith("SASL") else None


def broker_arguments(config: pytest.Config) -> dict[str, Any]:
    """Return the arguments of an embedded broker."""
    protocol, mechanism = requested(config)
    arguments: dict[str, Any] = {}
    if protocol.endswith("SSL"):
        arguments["tls"] = BrokerTls(authority=_authority())
    if mechanism is not None:
        arguments["sasl"] = BrokerSasl(users=USERS, mechanisms=[mechanism])
    return arguments


def add_client_options(patch: pytest.MonkeyPatch, options: Mapping[str, Any]) -> None:
    """Let all clients have these options, in this process and in those of `workers`."""

    for module in MODULES:
        change_options(patch, module, lambda given: {**options, **given})
    add_worker_options(patch, options)


def not_secured(config: pytest.Config, release: str) -> str | None:
    """Return why a release cannot be used with the security of a run; None if it can."""
    protocol, mechanism = requested(config)
    since = TLS_SINCE if mechanism is None else MECHANISM_SINCE[mechanism]
    if protocol == "PLAINTEXT" or number_of(release) >= number_of(since):
        return None
    return f"not on {release}: {mechanism or 'TLS'} (from {since} on)"
