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
@pytest.mark.parametrize("name", ["producing", "transacting", "churn"])
def test_a_seed_is_the_same_run_in_every_process(name: str, backend: Backend) -> None:
    told = [_digest(name, backend, hash_seed, malloc) for hash_seed, malloc in OTHERS]
    assert "digest" in told[0]
    assert told[0] == told[1]


OTHERS = (("1", "pymalloc"), ("2", "malloc"))


def _digest(name: str, backend: Backend, hash_seed: str, malloc: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", "--seed", "1", "--programme", name]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONMALLOC": malloc}
    command += ["--backend", backend]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout
