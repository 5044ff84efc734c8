"""The programmes, one module each, which has its `PROGRAMME`."""

from __future__ import annotations

from importlib import import_module

from tests.simulation.scenario import Programme

__all__ = ("NAMES", "load")

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
    "liar",
    "idle_day",
    "corners",
)
"""In the order in which seeds choose among them; a module's name is its programme's."""


def load(names: tuple[str, ...] = NAMES) -> dict[str, Programme]:
    """The programmes of these names."""
    modules = (import_module(f"{__name__}.{name}") for name in names)
    return {module.PROGRAMME.name: module.PROGRAMME for module in modules}
