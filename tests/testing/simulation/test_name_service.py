"""Look-ups of names, and what befalls them."""

from __future__ import annotations

import anyio
import pytest

from aiokafkawire.runtime import Address
from aiokafkawire.testing.simulation import World
from aiokafkawire.testing.simulation.world import Backend

ONE, OTHER = "10.0.0.1", "10.0.0.2"


async def found(world: World, name: str = "broker") -> list[str]:
    return [address.host for address in await world.runtime(OTHER).resolve(name, 1)]


def test_an_answer_may_change(backend: Backend) -> None:
    world = World(1, backend=backend)

    async def main() -> None:
        world.network.name("broker", ONE, "10.0.0.3")
        assert await found(world) == [ONE, "10.0.0.3"]
        world.network.name("broker", OTHER)
        assert await found(world) == [OTHER]
        world.network.name("broker")
        with pytest.raises(OSError, match="not known"):
            await found(world)
        assert await world.runtime(OTHER).resolve(ONE, 2) == [Address(ONE, 2)]

    world.run(main)


def test_a_name_that_fails(backend: Backend) -> None:
    world = World(1, backend=backend)

    async def main() -> None:
        world.network.name("broker", ONE)
        world.network.name("other", OTHER)
        world.network.fail_name("broker")
        with pytest.raises(OSError, match="Temporary failure"):
            await found(world)
        assert await found(world, "other") == [OTHER]
        world.network.heal_name("broker")
        assert await found(world) == [ONE]

    world.run(main)


def test_a_name_that_hangs(backend: Backend) -> None:
    world = World(1, backend=backend)

    async def main() -> None:
        world.network.name("broker", ONE)
        world.network.hang_name("broker")
        world.network.hang_name("broker")
        with anyio.move_on_after(3_600) as scope:
            await found(world)
        assert scope.cancelled_caught
        answers: list[list[str]] = []

        async def ask() -> None:
            answers.append(await found(world))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await world.clock.sleep_until(world.now() + 60)
            world.network.name("broker", OTHER)
            world.network.heal_name("broker")
        assert answers == [[OTHER]]

    world.run(main)
