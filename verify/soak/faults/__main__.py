"""Run applications on three real nodes of Kafka under faults, one after another.

python -m verify.soak.faults                     # ten minutes: `make faults`
python -m verify.soak.faults --minutes 2         # the short one: its faults are fixed
python -m verify.soak.faults --seed 8
"""

from __future__ import annotations

import argparse
import faulthandler
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from tests.brokers.kafka import DEFAULT_VERSION, Unavailable
from tests.brokers.releases import RELEASES, fetch, java_for
from verify.soak.faults import report, sandbox
from verify.soak.faults.load import WORKERS
from verify.soak.faults.plan import SHORT, Fault, drawn, possible
from verify.soak.faults.run import NODES, Outcome, Run, nodes
from verify.soak.faults.run_folder import folder

MODULE = "verify.soak.faults"
SHORT_MINUTES = 3.0
"""Shorter runs have the fixed faults."""
LEAST_A_MINUTE = 1.2
MOST = 1000
TERMINATED = 143
INTERRUPTED = 130


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="copy histories and logs to DIR")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def planned(minutes: float, seed: int, *, sandboxed: bool) -> tuple[list[Fault], int]:
    """Return the faults of a run, and the minimum number of faults for a valid run."""
    kinds = possible(sandboxed)
    if minutes < SHORT_MINUTES:
        some = [fault for fault in SHORT if fault.kind in kinds]
        return some, len(some)
    faults = list(islice(drawn(seed, kinds, NODES, sum(WORKERS.values())), MOST))
    return faults, int(minutes * LEAST_A_MINUTE)


def say(line: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {line}", flush=True)


def perform(options: argparse.Namespace, place: Path) -> int:
    """Perform the run."""
    faulthandler.register(signal.SIGUSR1)  # faulthandler shows where a hanging process is
    sandboxed = sandbox.inside()
    faults, least = planned(options.minutes, options.seed, sandboxed=sandboxed)
    kafka = nodes(place, small_disks=sandboxed)
    histories = place / "histories"
    histories.mkdir()
    outcome = Outcome()
    try:
        with kafka:
            print(f"Kafka {kafka.release.version}, {NODES} nodes, seed {options.seed}", flush=True)
            run = Run(kafka, histories, say)
            run.perform(faults, options.minutes * 60, outcome)
    except Exception as error:
        traceback.print_exc()
        outcome.problems.append(f"{type(error).__name__}: {error}")
    if options.keep is not None:
        ignored = shutil.ignore_patterns("data")
        shutil.copytree(place, options.keep, ignore=ignored, dirs_exist_ok=True)
    if len(outcome.happened) < least:
        outcome.problems.append(f"{len(outcome.happened)} faults are too few: {least} at least")
    print("\n".join(report.lines(outcome)))
    summary = "FAILED" if outcome.problems else "right"
    print(f"{len(outcome.happened)} faults in {outcome.seconds:.0f} s: {summary}")
    return 1 if outcome.problems else 0


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parsed(given)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        if options.folder is not None:
            return perform(options, options.folder)
        release = RELEASES[DEFAULT_VERSION]
        java_for(release)
        fetch(release)  # inside there is no network for a download
        with folder() as place:
            if (missing_requirement := sandbox.missing_requirement()) is None:
                return sandbox.run(["-m", MODULE, *given, "--folder", str(place)])
            print(f"without dropped packets and full disks: {missing_requirement}")
            return perform(options, place)
    except Unavailable as missing:
        print(missing, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
