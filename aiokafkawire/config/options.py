"""Option classes from keyword arguments.

Names are Kafka's in snake_case, with the unit appended where Kafka's name lacks it (`batch.size` is
`batch_size_bytes`). Each client has a frozen class, which validates its values, and a TypedDict of
the same names for the keyword arguments of its constructor.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from aiokafkawire.config.client_config import ClientConfig
from aiokafkawire.config.consumer_config import ConsumerConfig
from aiokafkawire.config.option_hints import option_hint
from aiokafkawire.config.producer_config import ProducerConfig
from aiokafkawire.config.share_consumer_config import ShareConsumerConfig
from aiokafkawire.config.worker_config import WorkerConfig, worker_hint
from aiokafkawire.errors import InvalidOption

__all__ = ("make_config", "unknown_option_text")

_Config = TypeVar("_Config", bound=ClientConfig)


def make_config(config_class: type[_Config], options: Mapping[str, Any]) -> _Config:
    """Build an option class from keyword arguments.

    Raises:
        InvalidOption: An option is unknown or its value is invalid. For an unknown option, the
            message suggests the right name, also for names of other Kafka clients.
    """
    known = [field.name for field in dataclasses.fields(config_class)]
    for name in options:
        if name not in known:
            raise InvalidOption(unknown_option_text(name, config_class), option=name)
    if "bootstrap_servers" not in options:
        raise InvalidOption("bootstrap_servers is missing: pass 'host:port' or a list of them")
    return config_class(**options)


def unknown_option_text(name: str, config_class: type[Any], others: str = "") -> str:
    """Return the error message about an option that `config_class` lacks.

    Args:
        name: The option.
        config_class: Declares the options of the client.
        others: End of the text if there is no hint.
    """
    known = [field.name for field in dataclasses.fields(config_class)]
    clients = {
        client: [field.name for field in dataclasses.fields(other)]
        for client, other in _CLIENTS.items()
    }
    owner = next((client for client, options in clients.items() if name in options), None)
    if config_class is WorkerConfig and (hint := worker_hint(name, owner)) is not None:
        return hint
    if owner is not None:
        asked = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", config_class.__name__.removesuffix("Config"))
        asked = "an admin client" if asked == "Admin" else f"a {asked.lower()}"
        return f"{name!r} is a {owner} option, not one of {asked}"
    return f"unknown option {name!r}{option_hint(name, known, clients) or others}"


_CLIENTS: Mapping[str, type[Any]] = {
    "producer": ProducerConfig,
    "consumer": ConsumerConfig,
    "share consumer": ShareConsumerConfig,
}
