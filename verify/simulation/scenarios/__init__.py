"""The scenarios: one module each, with its `SCENARIO`."""

from __future__ import annotations

from importlib import import_module

from verify.simulation.scenario import Scenario

__all__ = ("LATER", "NAMES", "load")

NAMES = (
    "plain",
    "producing",
    "transacting",
    "leaving",
    "churn",
    "chain",
    "short_lived",
    "slow",
    "topics",
    "coordinator",
    "clock",
    "byzantine",
    "idle_day",
    "corners",
    "secure",
    "sessions",
    "mixed_group",
    "protocol_corners",
    "share",
    "worker",
    "exactly_once",
    "share_worker",
)
"""Scenario names in the order in which seeds choose; each is also the module's name."""

LATER = ("mixed_group", "protocol_corners", "share", "worker", "exactly_once", "share_worker")
"""Scenarios that a seed draws after the others: a seed that does not draw one is as before."""


def load(names: tuple[str, ...] = NAMES) -> dict[str, Scenario]:
    """Return the scenarios with these names."""
    modules = (import_module(f"{__name__}.{name}") for name in names)
    return {module.SCENARIO.name: module.SCENARIO for module in modules}
