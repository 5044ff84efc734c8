"""Options of the admin client."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafkawire.config.client_config import ClientConfig, ClientOptions
from aiokafkawire.config.option_fields import append_options

__all__ = ("AdminConfig", "AdminOptions")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """Options of `Admin`; the defaults are those of Java's Admin client."""


class AdminOptions(ClientOptions, total=False):
    """Keyword arguments of `Admin`; see `AdminConfig`."""


append_options(AdminOptions, AdminConfig)
