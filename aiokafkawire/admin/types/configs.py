"""Arguments and results of the operations on configs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from aiokafkawire.wire.resources import ConfigResourceType, ConfigSource, ConfigType

__all__ = (
    "AlterConfigOp",
    "AlterConfigOpType",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
)


@dataclass(frozen=True, slots=True, order=True)
class ConfigResource:
    """A resource with configs.

    Attributes:
        type: Type of the resource.
        name: Name of the topic, group or client metrics subscription; for a broker or its loggers
            the node id as text, or "" for the defaults of all brokers.
    """

    type: ConfigResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name!r}"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A place that a config's value may come from, and its value there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config of a resource, in `describe_configs` and of a topic in `create_topics`.

    Attributes:
        name: Name of the config.
        value: Its value; None if it is sensitive or unset.
        source: Source of the value.
        is_read_only: True if it cannot be altered.
        is_sensitive: True for a secret, whose value brokers never return.
        synonyms: Places that the value may come from, the first with a value wins; empty unless
            asked for.
        type: Type of the value; UNKNOWN before Kafka 2.6.
        documentation: Description; None unless asked for.
    """

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """True if the value is Kafka's default."""
        return self.source is ConfigSource.DEFAULT_CONFIG


class AlterConfigOpType(IntEnum):
    """Change of a config, with Kafka's number."""

    SET = 0
    DELETE = 1
    """Reset to the default."""

    APPEND = 2
    """Add values to a list, if it lacks them."""

    SUBTRACT = 3
    """Remove values from a list."""


@dataclass(frozen=True, slots=True)
class AlterConfigOp:
    """One change for `incremental_alter_configs`; `value` is None to delete."""

    name: str
    value: str | None
    op_type: AlterConfigOpType = AlterConfigOpType.SET
