"""A few seeds of each programme on each backend; the many are `make simulate`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from aiokafkawire.testing.simulation.world import Backend
from tests.simulation.play import BACKENDS, play
from tests.simulation.programmes import NAMES, load

SEEDS: dict[Backend, int] = {"asyncio": 0, "trio": 1}


SHORT = [
    pytest.param(name, marks=pytest.mark.slow) if name == "idle_day" else name for name in NAMES
]
"""A day has many heartbeats: it takes seconds."""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SHORT)
def test_nothing_that_is_promised_fails(name: str, backend: Backend) -> None:
    played = play(load((name,))[name], SEEDS[backend], backend)
    assert not played.failures, "\n".join([*map(str, played.failures), *played.trace])


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_seed_is_the_same_run_in_every_process(backend: Backend) -> None:
    told = [_digests(backend, hash_seed, malloc) for hash_seed, malloc in OTHERS]
    assert told[0] == told[1]
    assert len(set(told[0])) == len(DIGESTED)


OTHERS = (("1", "pymalloc"), ("2", "malloc"))
DIGESTED = [name for name in NAMES if name != "idle_day"]

DIGESTS = """
import sys
from tests.simulation.play import play
from tests.simulation.programmes import load

for name, programme in load(tuple(sys.argv[2:])).items():
    print(name, play(programme, 1, sys.argv[1], shown_lines=0).digest)
"""


def _digests(backend: Backend, hash_seed: str, malloc: str) -> list[str]:
    command = [sys.executable, "-c", DIGESTS, backend, *DIGESTED]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONMALLOC": malloc}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
