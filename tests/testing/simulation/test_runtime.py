"""The seam that clients and brokers see."""

from __future__ import annotations

import threading

from aiokafkawire.testing.simulation import World
from aiokafkawire.testing.simulation.world import Backend


def test_each_runtime_has_its_own_random_generator() -> None:
    one, other = (World(1) for _ in range(2))
    first = [one.runtime("10.0.0.1").rng.random() for _ in range(3)]
    assert len(set(first)) == 3
    assert [other.runtime("10.0.0.1").rng.random() for _ in range(3)] == first


def test_work_stays_in_the_one_thread(backend: Backend) -> None:
    world = World(1, backend=backend)

    async def main() -> int:
        return await world.runtime("10.0.0.1").offload(threading.get_ident)

    assert world.run(main) == threading.get_ident()
