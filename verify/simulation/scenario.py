"""Definition of a scenario: randomly drawn applications, and their guarantees."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from verify.simulation.harness import Harness
from verify.simulation.plan import Plan

__all__ = ("Scenario",)


@dataclass(frozen=True, slots=True)
class Scenario:
    """`draw` makes the plan from a random generator alone; `run` executes it in a harness.

    `guarantees(plan)` are those that the checker verifies. `share` is the relative number of seeds.
    After `limit_s` simulated seconds a run counts as hung.
    """

    name: str
    draw: Callable[[random.Random], Plan]
    run: Callable[[Harness], Awaitable[None]]
    guarantees: Callable[[Plan], Any]
    share: int = 10
    limit_s: float = 1_800.0
