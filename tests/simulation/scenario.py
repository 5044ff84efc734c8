"""A scenario: applications that do something, which a seed draws, and what they are promised."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation.harness import Harness
from tests.simulation.plan import Plan

__all__ = ("Scenario",)


@dataclass(frozen=True, slots=True)
class Scenario:
    """`draw` decides everything by the chance that it is given; `run` plays the plan on a stage.

    `guarantees(plan)` is what the checker holds the history to. `share` is how many seeds it gets
    beside the other scenarios. `limit_s` is the simulated time after which a run has hung.
    """

    name: str
    draw: Callable[[random.Random], Plan]
    run: Callable[[Harness], Awaitable[None]]
    guarantees: Callable[[Plan], Any]
    share: int = 10
    limit_s: float = 1_800.0
