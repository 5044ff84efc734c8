"""Options of the admin client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiokafkawire.config.client_config import ClientConfig, CommonOptions
from aiokafkawire.config.option_fields import append_options, option

__all__ = ("AdminConfig", "AdminOptions")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """Options of `Admin`; the defaults are those of Java's Admin client."""

    bootstrap_controllers: str | Sequence[str] | None = option(
        None,
        "Addresses of KRaft controllers, instead of `bootstrap_servers` (KIP-919, Kafka 3.7+). The"
        " client then sends all requests to the active controller, which answers those about"
        " configs, the quorum, features, elections, reassignments and access control.",
    )

    @property
    def uses_controllers(self) -> bool:
        """True if the client talks to controllers instead of brokers (KIP-919)."""
        return self.bootstrap_controllers is not None


class AdminOptions(CommonOptions, total=False):
    """Keyword arguments of `Admin`; see `AdminConfig`."""

    bootstrap_servers: str | Sequence[str]
    bootstrap_controllers: str | Sequence[str]


append_options(AdminOptions, AdminConfig)
