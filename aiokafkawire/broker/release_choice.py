"""Release and options of a broker, from its arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from aiokafkawire.broker.apis import CONTROLLER_HANDLERS, HANDLERS
from aiokafkawire.broker.options import BrokerConfig, BrokerOptions
from aiokafkawire.broker.releases import Release, get_release, with_inter_broker_apis
from aiokafkawire.config import did_you_mean
from aiokafkawire.errors import InvalidOption

__all__ = ("resolve_options", "resolve_release")


def resolve_options(given: BrokerOptions, arguments: Sequence[str]) -> tuple[Release, BrokerConfig]:
    """Return the release to answer as, and the options with that release's defaults.

    Args:
        given: Options of the caller.
        arguments: Further valid names, for suggestions.

    Raises:
        InvalidOption: An option is unknown or out of range.
    """
    known = [field.name for field in dataclasses.fields(BrokerConfig)]
    for name in given:
        if name not in known:
            hint = did_you_mean(name, [*arguments, *known])
            raise InvalidOption(f"unknown broker option {name!r}{hint}")
    BrokerConfig(**given)  # checks the values before they choose the release
    release = resolve_release(given.get("as_of"), replicate=given.get("replicate", False))
    options: dict[str, Any] = {**release.defaults, **given}
    config = BrokerConfig(**options)
    if config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms:
        raise InvalidOption(
            "replica_fetch_wait_max_ms must not be more than replica_lag_time_max_ms, or every"
            f" follower would be too slow: {config.replica_fetch_wait_max_ms} is over"
            f" {config.replica_lag_time_max_ms}"
        )
    return release, config


def resolve_release(as_of: str | None, *, replicate: bool) -> Release:
    """Return the release to answer as. Raises `InvalidOption`."""
    release = get_release(as_of, [*HANDLERS, *CONTROLLER_HANDLERS] if replicate else HANDLERS)
    return with_inter_broker_apis(release) if replicate else release
