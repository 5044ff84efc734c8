"""Faults of a run: drawn from a seed, or a fixed few for the short run.

One at a time, so that at most one node loses unreplicated data: the next one waits until all
replicas are in sync again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Kind of fault, as named in the report."""

    KILL = "killed (SIGKILL)"
    FREEZE = "frozen (SIGSTOP)"
    ROLL = "each restarted in turn"
    CUT = "cut off from its clients"
    REQUESTS_LOST = "packets from clients are lost"
    RESPONSES_LOST = "packets to clients are lost"
    ISOLATED = "other nodes do not reach it"
    FULL = "disk full"
    WORKER = "a worker killed, another in its place"


IN_SANDBOX = (Kind.CUT, Kind.REQUESTS_LOST, Kind.RESPONSES_LOST, Kind.ISOLATED, Kind.FULL)
"""Kinds that need their own network and mounts."""

SECONDS = {
    Kind.KILL: (1.0, 15.0),
    Kind.FREEZE: (2.0, 40.0),
    Kind.CUT: (3.0, 30.0),
    Kind.REQUESTS_LOST: (3.0, 30.0),
    Kind.RESPONSES_LOST: (3.0, 30.0),
    Kind.ISOLATED: (3.0, 15.0),
    Kind.FULL: (5.0, 15.0),
}
"""Shortest and longest duration of each kind; the others have no fixed duration."""
CALM_SECONDS = (1.0, 6.0)
"""Time before each fault with all replicas in sync."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `target` numbers the nodes from 0, or the workers."""

    kind: Kind
    target: int = 0
    seconds: float = 0.0
    calm_seconds: float = 2.0


SHORT = (
    Fault(Kind.FREEZE, target=0, seconds=4.0),
    Fault(Kind.KILL, target=1, seconds=2.0),
    Fault(Kind.RESPONSES_LOST, target=2, seconds=5.0),
    Fault(Kind.WORKER, target=0),
    Fault(Kind.FULL, target=0, seconds=5.0),
)
"""Faults of the short run: always the same, about a minute in all."""


def possible(sandboxed: bool) -> list[Kind]:
    """Return the kinds that are possible here."""
    return [kind for kind in Kind if sandboxed or kind not in IN_SANDBOX]


def drawn(seed: int, kinds: Sequence[Kind], nodes: int, workers: int) -> Iterator[Fault]:
    """Yield faults without end: each kind once in random order, then each again, and so on."""
    rng = random.Random(seed)
    while True:
        for kind in rng.sample(kinds, len(kinds)):
            yield Fault(
                kind,
                rng.randrange(workers if kind is Kind.WORKER else nodes),
                round(rng.uniform(*SECONDS.get(kind, (0.0, 0.0))), 1),
                round(rng.uniform(*CALM_SECONDS), 1),
            )
