"""Run scenarios by seed with one mutation planted, until one fails; print the result as JSON.

The first half of the seeds runs the scenario that the mutation names, so that each of its cases is
drawn; the second half draws the scenarios.

Each mutation takes a process of its own: `python -m verify.mutation.one NAME --seeds 500`.
"""

from __future__ import annotations

import argparse
import json
import logging

from verify.mutation.mutations import MUTATIONS
from verify.mutation.planting import Mutation, plant

__all__ = ("until_caught",)


def until_caught(mutation: Mutation, first: int, seeds: int, skip: int = 0) -> dict[str, object]:
    """Plant the mutation and run seeds until one fails.

    `runs` of the result counts the seeds that were run, and those left out by `skip`.
    """
    plant(mutation)
    # These import the package, which must not happen before.
    from verify.simulation.runner import make_jobs, run_job, tune_garbage_collector
    from verify.simulation.scenarios import load

    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    tune_garbage_collector()
    middle = first + (seeds + 1) // 2
    own = make_jobs(range(first, middle), load((mutation.scenario,)))
    drawn = make_jobs(range(middle, first + seeds), load())
    for runs, job in enumerate([*own, *drawn][skip:], skip + 1):
        result = run_job(job, shown_lines=0)
        if result.failures:
            return {
                "caught": True,
                "runs": runs,
                "seed": job.seed,
                "scenario": job.scenario,
                "backend": job.backend,
                "kinds": sorted(result.kinds),
                "text": result.failures[0].text,
            }
    return {"caught": False, "runs": seeds}


def main() -> None:
    parser = argparse.ArgumentParser("python -m verify.mutation.one", description=__doc__)
    parser.add_argument("name", choices=sorted(MUTATIONS))
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first runs")
    asked = parser.parse_args()
    print(json.dumps(until_caught(MUTATIONS[asked.name], asked.first, asked.seeds, asked.skip)))


if __name__ == "__main__":
    main()
