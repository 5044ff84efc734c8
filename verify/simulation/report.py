"""Reports: a table of scenarios, and for each failed run the commands that repeat it."""

from __future__ import annotations

from dataclasses import dataclass

from verify.simulation.runner import Job
from verify.simulation.shrink import Shrunk
from verify.simulation.single_run import Failure, RunResult

__all__ = ("Tally", "failures", "format_failed_run", "replay_command", "table")

SECONDS_PER_HOUR = 3_600


@dataclass(slots=True)
class Tally:
    """Totals of one scenario."""

    seeds: int = 0
    failed: int = 0
    events: int = 0
    hours: float = 0.0
    cpu_s: float = 0.0
    rebalances: int = 0

    def add(self, result: RunResult, cpu_s: float) -> None:
        self.seeds += 1
        self.failed += bool(result.failures)
        self.events += result.events
        self.hours += result.seconds / SECONDS_PER_HOUR
        self.cpu_s += cpu_s
        self.rebalances += result.rebalances


def table(tallies: dict[str, Tally]) -> str:
    """Return one line per scenario, and one for all."""
    total = Tally()
    for tally in tallies.values():
        total.seeds += tally.seeds
        total.failed += tally.failed
        total.events += tally.events
        total.hours += tally.hours
        total.cpu_s += tally.cpu_s
        total.rebalances += tally.rebalances
    heads = ("scenario", "seeds", "events", "rebalances", "hours", "s CPU", "failed")
    rows = [heads, *(_row(name, tallies[name]) for name in sorted(tallies)), _row("all", total)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    )


def _row(name: str, tally: Tally) -> tuple[str, ...]:
    return (
        name,
        str(tally.seeds),
        str(tally.events),
        str(tally.rebalances or "-"),
        f"{tally.hours:.1f}",
        f"{tally.cpu_s:.0f}",
        str(tally.failed),
    )


def replay_command(job: Job, shrunk: Shrunk | None = None) -> str:
    """Return the command that repeats the run."""
    parts = [f"python -m verify.simulation --seed {job.seed} --scenario {job.scenario}"]
    parts.append(f"--backend {job.backend} --trace")
    if shrunk is not None:
        parts.append(f"--steps {_numbers(shrunk.steps)} --clients {_numbers(shrunk.clients)}")
        parts.append(f"--records {shrunk.records}")
    return " ".join(parts)


def _numbers(numbers: list[int]) -> str:
    return ",".join(map(str, numbers)) or "none"


def failures(found: tuple[Failure, ...]) -> str:
    return "\n".join(f"  {failure.kind}: {failure.text}" for failure in found)


def format_failed_run(
    job: Job, result: RunResult, shrunk: Shrunk | None, last: RunResult | None
) -> str:
    """Report a failed run: failures, the shortest failing plan, and the end of its trace."""
    lines = [
        f"--- seed {job.seed}: {job.scenario} on {job.backend}",
        failures(result.failures),
        f"again: {replay_command(job)}",
    ]
    if shrunk is not None and last is not None:
        lines += [
            f"shortest: {replay_command(job, shrunk)}",
            str(shrunk.made()),
            failures(last.failures),
            "the end of its trace:",
            *last.trace,
        ]
    return "\n".join(lines)
