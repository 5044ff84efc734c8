"""The seam that clients and brokers see."""

from __future__ import annotations

import threading

from aiokafkawire.testing.simulation import World
from aiokafkawire.testing.simulation.runtime import EPOCH_MS
from aiokafkawire.testing.simulation.world import Backend


def test_both_clocks_go_together(backend: Backend) -> None:
    world = World(1, backend=backend)
    clock = world.runtime("10.0.0.1").clock

    async def main() -> None:
        assert (clock.now(), clock.wall_ms()) == (0.0, EPOCH_MS)
        await clock.sleep_until(86_400.0)
        assert clock.now() == 86_400.0
        assert clock.wall_ms() == EPOCH_MS + 86_400_000

    world.run(main)


def test_work_stays_in_the_one_thread(backend: Backend) -> None:
    world = World(1, backend=backend)

    async def main() -> int:
        return await world.runtime("10.0.0.1").offload(threading.get_ident)

    assert world.run(main) == threading.get_ident()
