"""One run of a scenario, from the plan to the failures."""

from __future__ import annotations

import dataclasses
import logging
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aiokafkawire.testing.simulation import World
from aiokafkawire.testing.simulation.world import Backend
from verify.invariants.checker import Violation, check
from verify.invariants.events import to_line
from verify.simulation.harness import ConditionTimedOut, Harness, make_world
from verify.simulation.plan import Plan
from verify.simulation.scenario import Scenario

__all__ = ("BACKENDS", "MAX_SHOWN_LINES", "Failure", "RunResult", "draw", "play")

BACKENDS: tuple[Backend, ...] = ("asyncio", "trio")

MAX_SHOWN_LINES = 60
"""Lines of a trace's end in a report."""

MAX_FAILURES = 20
"""Most failures reported for one run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`kind` stays equal when a run is shrunk; `text` says what happened."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of one run. `seconds` are simulated; `trace` is its end, `history` JSON lines.

    `rebalances` is 0 unless the scenario counts them.
    """

    scenario: str
    seed: int
    backend: Backend
    digest: str
    seconds: float
    events: int
    failures: tuple[Failure, ...]
    trace: tuple[str, ...] = ()
    history: tuple[str, ...] = ()
    rebalances: int = 0

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(failure.kind for failure in self.failures)


class TraceHandler(logging.Handler):
    """Adds warnings of a world's clients to its trace, but not those of other threads."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world
        thread = threading.get_ident()
        self.addFilter(lambda record: record.thread == thread)

    def emit(self, record: logging.LogRecord) -> None:
        self._world.trace.note(f"{record.levelname}: {record.getMessage()}")


def draw(scenario: Scenario, seed: int) -> Plan:
    """Return the plan of a seed; it depends on nothing else."""
    return scenario.draw(random.Random(f"{seed}/{scenario.name}/plan"))


def play(
    scenario: Scenario,
    seed: int,
    backend: Backend,
    plan: Plan | None = None,
    *,
    shown_lines: int = MAX_SHOWN_LINES,
    with_history: bool = False,
    prepare: Callable[[World], None] | None = None,
) -> RunResult:
    """Run a plan (default: that of the seed) and check it. Any error is a failure.

    `prepare` is called with the world before the run.
    """
    plan = draw(scenario, seed) if plan is None else plan
    world = make_world(seed, backend, plan)
    if prepare is not None:
        prepare(world)
    harness = Harness(world, plan)
    failures: list[Failure] = []
    listener = TraceHandler(world)
    logging.getLogger("aiokafkawire").addHandler(listener)
    try:
        world.run(lambda: _in_harness(scenario, harness), limit_s=scenario.limit_s)
    except BaseExceptionGroup as group:
        failures += [_failure(error) for error in _leaves(group)]
    except Exception as error:
        failures.append(_failure(error))
    finally:
        logging.getLogger("aiokafkawire").removeHandler(listener)
    left = None if failures else tuple(world.left_behind())
    violations = list(harness.violations)
    if harness.observed is not None:
        guarantees = scenario.guarantees(plan)
        observed = dataclasses.replace(
            harness.observed,
            left_behind=left,
            reprs=tuple(harness.recorder.reprs),
            peaks=harness.recorder.peaks,
            ended_at=world.now(),
        )
        violations += check(harness.recorder.history, observed, guarantees)
    failures += [Failure(f"invariant {each.invariant}", _shown(each)) for each in violations]
    lines = list(world.trace.lines)[-shown_lines:] if shown_lines else []
    return RunResult(
        scenario.name,
        seed,
        backend,
        world.trace.digest,
        world.now(),
        len(harness.recorder.history),
        tuple(failures[:MAX_FAILURES]),
        tuple(lines),
        tuple(map(to_line, harness.recorder.history)) if with_history else (),
        harness.rebalances,
    )


def _shown(violation: Violation) -> str:
    return "\n    ".join([str(violation), *map(str, violation.events)])


async def _in_harness(scenario: Scenario, harness: Harness) -> None:
    async with harness.opened():
        await scenario.run(harness)


def _failure(error: BaseException) -> Failure:
    kind = "invariant 11" if isinstance(error, ConditionTimedOut) else type(error).__name__
    text = f"{type(error).__name__}: {error}{_where(error)}"
    for cause in _leaves(error.__cause__):
        text += f"\n  because of {type(cause).__name__}: {cause}{_where(cause)}"
    return Failure(kind, text)


def _where(error: BaseException) -> str:
    """Return the innermost frames of an error's traceback."""
    lines: list[Any] = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        lines.append(f"\n    at {code.co_qualname} ({code.co_filename}:{traceback.tb_lineno})")
        traceback = traceback.tb_next
    return "".join(lines[-6:])


def _leaves(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, or those of a group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    elif error is not None:
        yield error
