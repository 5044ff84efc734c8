"""One run: a programme on a stage, from its plan to what was wrong with it."""

from __future__ import annotations

import dataclasses
import logging
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aiokafkawire.testing.simulation import World
from aiokafkawire.testing.simulation.world import Backend
from tests.invariants.checker import Violation, check
from tests.invariants.events import to_line
from tests.simulation.harness import Stage, Unsettled, world_of
from tests.simulation.plan import Plan
from tests.simulation.scenario import Programme

__all__ = ("BACKENDS", "MAX_SHOWN_LINES", "Failure", "Played", "draw", "play")

BACKENDS: tuple[Backend, ...] = ("asyncio", "trio")

MAX_SHOWN_LINES = 60
"""Of the end of a trace, in a report."""

MAX_FAILURES = 20
"""That are told of one run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`kind` is what stays the same when a run is made shorter; `text` says what happened."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one run. `seconds` are simulated; `trace` is its end, `history` JSON lines."""

    programme: str
    seed: int
    backend: Backend
    digest: str
    seconds: float
    events: int
    failures: tuple[Failure, ...]
    trace: tuple[str, ...] = ()
    history: tuple[str, ...] = ()

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(failure.kind for failure in self.failures)


class Listener(logging.Handler):
    """Adds the warnings of a world's clients to its trace, not those of other threads' clients."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world
        thread = threading.get_ident()
        self.addFilter(lambda record: record.thread == thread)

    def emit(self, record: logging.LogRecord) -> None:
        self._world.trace.note(f"{record.levelname}: {record.getMessage()}")


def draw(programme: Programme, seed: int) -> Plan:
    """The plan of a seed: nothing else decides it."""
    return programme.draw(random.Random(f"{seed}/{programme.name}/plan"))


def play(
    programme: Programme,
    seed: int,
    backend: Backend,
    plan: Plan | None = None,
    *,
    shown_lines: int = MAX_SHOWN_LINES,
    with_history: bool = False,
) -> Played:
    """Run a plan (the seed's own, unless given) and judge it. Whatever goes wrong is a failure."""
    plan = draw(programme, seed) if plan is None else plan
    world = world_of(seed, backend, plan)
    stage = Stage(world, plan)
    failures: list[Failure] = []
    listener = Listener(world)
    logging.getLogger("aiokafkawire").addHandler(listener)
    try:
        world.run(lambda: _on_stage(programme, stage), limit_s=programme.limit_s)
    except BaseExceptionGroup as group:
        failures += [_failure(error) for error in _leaves(group)]
    except Exception as error:
        failures.append(_failure(error))
    finally:
        logging.getLogger("aiokafkawire").removeHandler(listener)
    left = None if failures else tuple(world.left_behind())
    violations = list(stage.violations)
    if stage.observed is not None:
        promises = programme.promises(plan)
        observed = dataclasses.replace(
            stage.observed,
            left_behind=left,
            reprs=tuple(stage.recorder.reprs),
            peaks=stage.recorder.peaks,
            ended_at=world.now(),
        )
        violations += check(stage.recorder.history, observed, promises)
    failures += [Failure(f"invariant {each.invariant}", _shown(each)) for each in violations]
    lines = list(world.trace.lines)[-shown_lines:] if shown_lines else []
    return Played(
        programme.name,
        seed,
        backend,
        world.trace.digest,
        world.now(),
        len(stage.recorder.history),
        tuple(failures[:MAX_FAILURES]),
        tuple(lines),
        tuple(map(to_line, stage.recorder.history)) if with_history else (),
    )


def _shown(violation: Violation) -> str:
    return "\n    ".join([str(violation), *map(str, violation.events)])


async def _on_stage(programme: Programme, stage: Stage) -> None:
    async with stage.opened():
        await programme.run(stage)


def _failure(error: BaseException) -> Failure:
    kind = "invariant 11" if isinstance(error, Unsettled) else type(error).__name__
    text = f"{type(error).__name__}: {error}{_where(error)}"
    for cause in _leaves(error.__cause__):
        text += f"\n  because of {type(cause).__name__}: {cause}{_where(cause)}"
    return Failure(kind, text)


def _where(error: BaseException) -> str:
    """The innermost lines of where an error came from."""
    lines: list[Any] = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        lines.append(f"\n    at {code.co_qualname} ({code.co_filename}:{traceback.tb_lineno})")
        traceback = traceback.tb_next
    return "".join(lines[-6:])


def _leaves(error: BaseException | None) -> Iterator[BaseException]:
    """The error, or those of a group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    elif error is not None:
        yield error
