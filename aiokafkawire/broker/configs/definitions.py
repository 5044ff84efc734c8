"""Definition of a config: type, default and valid values, with Kafka's messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.resources import ConfigResourceType, ConfigSource, ConfigType

__all__ = (
    "BOOLEAN",
    "DOUBLE",
    "INT",
    "LIST",
    "LONG",
    "MAX_LONG",
    "STRING",
    "ConfigDef",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigType",
    "InvalidConfigValue",
    "parse_all",
    "split_list",
)

MAX_LONG = str(2**63 - 1)

INTEGER = re.compile(r"[+-]?[0-9]+")

ANY_REPLICA = "*"
THROTTLED_REPLICAS = re.compile(r"[0-9]+:[0-9]+")


BOOLEAN, STRING, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
LONG, DOUBLE, LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST

_INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


class InvalidConfigValue(ApiError):
    """The config exists, but the value is invalid."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(
            ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {reason}"
        )


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """Definition of a config.

    `option` is the option of `Broker` with the value. `server_property` is the broker config that
    is the default of a topic or group config. `valid_values` are the accepted texts, or the items
    of a list, where they can be listed. `low` and `high` limit numbers. A default of None is no
    value. `since` is the first release with the config, if that is later than 4.3.
    """

    config_type: ConfigType
    default: str | None = ""
    documentation: str = ""
    option: str = ""
    server_property: str = ""
    valid_values: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    since: str = ""

    def value(self, options: BrokerConfig) -> str | None:
        """Return the value that applies unless a client sets another."""
        if not self.option:
            return self.default
        value = getattr(options, self.option)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def parse(self, name: str, value: str) -> str:
        """Return a value in the form that DescribeConfigs shows.

        Raises:
            InvalidConfigValue: The value has the wrong type, or is out of range.
        """
        text = value.strip()
        if self.config_type is BOOLEAN:
            if text.lower() not in {"true", "false"}:
                raise InvalidConfigValue(name, value, "Expected value to be either true or false")
            return text.lower()
        if self.config_type in _INTEGER_BITS:
            return self._parse_integer(name, text)
        if self.config_type is DOUBLE:
            try:
                number = float(text)
            except ValueError:
                raise InvalidConfigValue(name, text, "Not a number of type DOUBLE") from None
            self._check_range(name, number)
            return str(number)
        items = split_list(text) if self.config_type is LIST else [text]
        for item in items:
            if self.valid_values and item not in self.valid_values:
                expected = ", ".join(self.valid_values)
                raise InvalidConfigValue(name, item, f"String must be one of: {expected}")
        return ",".join(items)

    def _parse_integer(self, name: str, text: str) -> str:
        kind = self.config_type
        limit = 2 ** (_INTEGER_BITS[kind] - 1)
        if not INTEGER.fullmatch(text) or not -limit <= int(text) < limit:
            raise InvalidConfigValue(name, text, f"Not a number of type {kind.name}")
        self._check_range(name, int(text))
        return str(int(text))

    def _check_range(self, name: str, number: float) -> None:
        if self.low is not None and number < self.low:
            raise InvalidConfigValue(name, number, f"Value must be at least {self.low}")
        if self.high is not None and number > self.high:
            raise InvalidConfigValue(name, number, f"Value must be no more than {self.high}")


def split_list(value: str) -> list[str]:
    """Return the items of a list config."""
    return [item.strip() for item in value.split(",")] if value.strip() else []


def parse_all(
    configs: Mapping[str, str], definitions: Mapping[str, ConfigDef], kind: str
) -> dict[str, str]:
    """Return the values in the form that DescribeConfigs shows.

    Args:
        configs: Value of each config.
        definitions: Known configs.
        kind: Kind of resource, for the message about an unknown config.

    Raises:
        ApiError: A config is unknown or invalid.
    """
    for name in configs:
        if name not in definitions:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown {kind} config name: {name}")
    return {name: definitions[name].parse(name, value) for name, value in configs.items()}
