"""Look for inputs that break the decoders: `python -m tests.fuzz --seconds 60`.

Guided by coverage, from the kept corpus and golden vectors on. What was found is then read once
more by what is installed, compiled or not, while memory is traced. `--keep` rebuilds the kept
corpus from inputs that reach code which golden vectors do not."""

from __future__ import annotations

import argparse
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from math import inf
from pathlib import Path

from tests.fuzz.kept import keep, kept
from tests.fuzz.security_targets import replayed_flights
from tests.fuzz.targets import MAX_BYTES, TARGETS, Broken, beginnings, bounded, tried
from tests.wire.fuzz import mutate

MAX_RSS_MIB = 1_024
MAX_SECONDS_EACH = 5
"""For one input."""

LIMITS = (f"-rss_limit_mb={MAX_RSS_MIB}", f"-timeout={MAX_SECONDS_EACH}", f"-max_len={MAX_BYTES}")


def is_there() -> bool:
    """Return whether atheris is installed: not on all platforms and versions of Python."""
    try:
        import atheris  # noqa: F401
    except ImportError:
        return False
    return True


def guided(name: str, folder: Path, *arguments: str) -> str:
    """Run libFuzzer; what it says. Raises `Broken` with the input that broke something."""
    again = folder / "again"
    begin = [sys.executable, "-m", "tests.fuzz.guided", name, str(again)]
    again.write_text(f'#!/bin/sh\nexec {shlex.join(begin)} "$@"\n')
    again.chmod(0o755)
    command = [*begin, *arguments, *LIMITS, f"-artifact_prefix={folder}/broken-"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        said = "\n".join(line for line in ran.stderr.splitlines() if "Instrumenting" not in line)
        inputs = [path.read_bytes().hex() for path in sorted(folder.glob("broken-*"))]
        raise Broken(f"{name}: {inputs}\n{said[-6_000:]}")
    return ran.stderr


def written(folder: Path, inputs: Iterable[bytes]) -> Path:
    """A folder of files, as libFuzzer has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for raw in inputs:
        (folder / sha256(raw).hexdigest()).write_bytes(raw)
    return folder


def begin(name: str) -> list[bytes]:
    """Inputs to begin with, besides the kept ones."""
    found = (*beginnings(name), *replayed_flights(name))
    return [raw for raw in found if len(raw) <= MAX_BYTES]


def fuzz(name: str, seconds: int, *, keeps: bool) -> str:
    """One target; what came of it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        begun = begin(name)
        found = written(folder / "found", [*kept(name), *begun])
        said = guided(name, folder, str(found), f"-max_total_time={seconds}")
        counts = re.findall(r"#(\d+)\s+DONE\s+cov: (\d+) ft: (\d+)", said)
        runs, reached, features = map(int, counts[-1])
        inputs = [path.read_bytes() for path in sorted(found.iterdir())]
        read = check(name, inputs)
        if keeps:
            fewest = written(folder / "fewest", begun)
            guided(name, folder, "-merge=1", "-use_counters=0", str(fewest), str(found))
            keep(name, {path.read_bytes() for path in fewest.iterdir()} - set(begun))
    return (
        f"{name}: {runs:,} inputs in {seconds} s reach {reached:,} branches, in {features:,} ways;"
        f" {len(inputs):,} of them, {read:,} good, are within the bounds of memory"
    )


def check(name: str, inputs: Iterable[bytes]) -> int:
    """Read inputs while memory is traced; how many were good. Raises `Broken`."""
    tracemalloc.start()
    try:
        return sum(bounded(name, raw) for raw in inputs)
    finally:
        tracemalloc.stop()


def blind(name: str, seconds: int, max_bytes: float = inf) -> str:
    """Mutate what there is, without guidance; return a summary. Raises `Broken`."""
    rng, runs, size = random.Random(name), 0, 0
    begun = [*kept(name), *begin(name)]
    began = time.monotonic()
    while (took := time.monotonic() - began) < seconds and size < max_bytes:
        raw = mutate(rng, rng.choice(begun), begun)
        tried(name, raw)
        runs, size = runs + 1, size + len(raw)
    return (
        f"{name}: {runs:,} mutated inputs of {size:,} bytes in {took:.0f} s;"
        f" {check(name, begun):,} good ones, within the bounds"
    )


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"these of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    parser.add_argument("--bytes", type=int, help="mutate blindly, up to these bytes for each")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--keep", action="store_true", help="rebuild the kept corpus")
    asked = parser.parse_args(given)
    unknown = sorted(set(asked.names) - TARGETS.keys())
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}")
    guides = is_there()
    if not guides and not asked.bytes:
        print("atheris is not installed: inputs are mutated blindly")

    def one(name: str) -> str:
        if asked.bytes or not guides:
            return blind(name, asked.seconds, asked.bytes or inf)
        return fuzz(name, asked.seconds, keeps=asked.keep)

    with ThreadPoolExecutor(asked.jobs) as pool:
        for report_line in pool.map(one, asked.names or TARGETS):
            print(report_line, flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as error:
        sys.exit(f"broken: {error}")
