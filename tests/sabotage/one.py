"""Run programmes by seed with one fault planted, until one fails; prints what came of it as JSON.

A process of its own for each fault: `python -m tests.sabotage.one NAME --seeds 500`.
"""

from __future__ import annotations

import argparse
import json
import logging

from tests.sabotage.faults import SABOTAGES
from tests.sabotage.planting import Sabotage, plant

__all__ = ("until_caught",)


def until_caught(sabotage: Sabotage, first: int, seeds: int, skip: int = 0) -> dict[str, object]:
    """Plant the fault and try seeds, those of the programme that is named for it before the others.

    `runs` of the result is how many were tried, those left out (`skip`) included.
    """
    plant(sabotage)
    # Only now: these bring in the package.
    from tests.simulation.programmes import load
    from tests.simulation.runner import jobs_of, perform, spare_the_collector

    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    spare_the_collector()
    jobs = sorted(
        jobs_of(range(first, first + seeds), load()),
        key=lambda job: job.programme != sabotage.programme,
    )
    for runs, job in enumerate(jobs[skip:], skip + 1):
        played = perform(job, shown_lines=0)
        if played.failures:
            return {
                "caught": True,
                "runs": runs,
                "seed": job.seed,
                "programme": job.programme,
                "backend": job.backend,
                "kinds": sorted(played.kinds),
                "text": played.failures[0].text,
            }
    return {"caught": False, "runs": seeds}


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.sabotage.one", description=__doc__)
    parser.add_argument("name", choices=sorted(SABOTAGES))
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help="runs that are known to say nothing")
    asked = parser.parse_args()
    print(json.dumps(until_caught(SABOTAGES[asked.name], asked.first, asked.seeds, asked.skip)))


if __name__ == "__main__":
    main()
